package bootstrap

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/story"
)

// TestStories asks whether etcd may be begun. Run it with -rewrite to write down what is decided now, and commit that only
// if you understand what changed and want it.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			f, err := story.Parse(d.Input)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			switch d := Next(f).(type) {
			case Send:
				if err := d.Permit.Check(d.Machine, Step, f.TakenAt); err != nil {
					t.Errorf("the permit is not good: %v", err)
				}
				return fmt.Sprintf("send to %s\n  %s\n", d.Machine, d.Message)
			case Wait:
				return fmt.Sprintf("wait %s\n  %s\n", d.Reason, d.Message)
			case Refuse:
				return fmt.Sprintf("refuse %s\n  %s\n", d.Refusal.Reason, d.Refusal.Error())
			case Done:
				return "done\n"
			default:
				t.Fatalf("Next said %T", d)
				return ""
			}
		})
	})
}

// TestOnceAndForAll gives three control planes every mix of what is known of them, with and without a record, and holds every
// Send against what makes it safe (I9).
func TestOnceAndForAll(t *testing.T) {
	kinds := []string{
		"blank", "blank unpinned", "service=Preparing", "service=Failed", "service=Running", "silent", "", "voter", "voter sick",
		"voter silent", "service=Preparing last=b1", "service=Preparing deleting", "service=Preparing uuid=x", "blank removed",
		"service=Preparing same=y", "service=Preparing unapproved",
	}
	sent := 0
	for _, record := range []string{"", "uuid-cp-2", "uuid-cp-2 answered=boot-1", "uuid-cp-2 answered=boot-0", "uuid-gone"} {
		for code := range len(kinds) * len(kinds) * len(kinds) {
			var at [3]string
			for i := range at {
				at[i] = kinds[code%len(kinds)]
				code /= len(kinds)
			}
			text := fmt.Sprintf("prod declared=2 bootstrapped=%s\ncp-1 %s\ncp-2 %s\ncp-3 %s", record, at[0], at[1], at[2])
			f, err := story.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			send, ok := Next(f).(Send)
			if !ok {
				continue
			}
			sent++
			if why := unsafe(f, send.Machine); why != "" {
				t.Fatalf("%s\nBootstrap is sent to %s: %s", text, send.Machine, why)
			}
		}
	}
	if sent == 0 {
		t.Error("Bootstrap was never sent")
	}
}

// unsafe says why Bootstrap must not be sent to a machine, as the design words it.
func unsafe(f facts.Cluster, to facts.MachineID) string {
	target, _ := f.Machine(to)
	was, _ := target.Live.Get()
	switch {
	case len(f.Etcd.Views) > 0:
		return "a member of etcd answers"
	case f.Bootstrapped != "" && f.Bootstrapped != target.UUID:
		return "it was written down for another machine"
	case facts.Is(was.BootID, f.BootstrapBoot):
		return "it has answered in this boot"
	case target.Role != facts.ControlPlane || !target.Approved || target.Removed || target.Deleting || target.UUID == "":
		return "it is no control plane that is to stay"
	}
	for _, m := range f.Machines {
		if !m.Approved || m.Removed {
			continue
		}
		live, answers := m.Live.Get()
		switch {
		case !answers:
			return m.Name + " does not answer"
		case m.LastMember != 0:
			return m.Name + " was a member before"
		case live.Mode == facts.Configured && !facts.Is(live.EtcdService, "Preparing"):
			return m.Name + " may have data of etcd"
		case m.UUID != "" && m.UUID != live.UUID:
			return "another machine answers for " + m.Name
		case len(m.SameMachine) > 0:
			return m.Name + " is declared twice"
		}
	}
	return ""
}
