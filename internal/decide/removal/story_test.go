package removal

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/story"
)

// TestStories tells one kind of incident in each file of testdata. Run it with -rewrite to write down what is decided now,
// and commit that only if you understand what changed and want it.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			f, err := story.Parse(d.Input)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			target := facts.MachineID("id-" + d.CmdArgs[0].Key)
			switch d.Cmd {
			case "remove":
				return tell(t, f, target, Next(f, target))
			case "irreversible":
				return fmt.Sprintln(Irreversible(f, target))
			}
			d.Fatalf(t, "a story has no %q", d.Cmd)
			return ""
		})
	})
}

// tell writes a decision for people, and checks what must be true of every one.
func tell(t *testing.T, f facts.Cluster, target facts.MachineID, d Decision) string {
	t.Helper()
	var b strings.Builder
	irreversible := false
	switch d := d.(type) {
	case Act:
		fmt.Fprintf(&b, "act %s", d.Step)
		if d.Record != (facts.Record{}) {
			fmt.Fprintf(&b, " {%s %s member=%x reset=%t}", d.Record.UUID, d.Record.BootID, uint64(d.Record.Member), d.Record.Reset)
		}
		if d.Member != 0 {
			fmt.Fprintf(&b, " member=%x", uint64(d.Member))
		}
		irreversible = d.Irreversible
		ended(&b, irreversible, d.Message)
		if err := d.Permit.Check(target, d.Step.String(), f.TakenAt); err != nil {
			t.Errorf("the permit of %s is not good: %v", d.Step, err)
		}
	case Wait:
		fmt.Fprintf(&b, "wait %s", d.Reason)
		irreversible = d.Irreversible
		ended(&b, irreversible, d.Message)
	case Refuse:
		fmt.Fprintf(&b, "refuse %s", d.Refusal.Reason)
		irreversible = d.Irreversible
		ended(&b, irreversible, d.Refusal.Error())
		if d.Refusal.Message == "" || d.Refusal.WayOut == "" {
			t.Errorf("a refusal without message or way out: %+v", d.Refusal)
		}
	case Done:
		b.WriteString("done\n")
	}
	if !irreversible && Irreversible(f, target) {
		if _, done := d.(Done); !done {
			t.Errorf("what is decided shows as reversible, and the removal is not: %+v", d)
		}
	}
	return b.String()
}

func ended(b *strings.Builder, irreversible bool, message string) {
	if irreversible {
		b.WriteString(", no way back")
	}
	fmt.Fprintf(b, "\n  %s\n", message)
}

func TestStepNames(t *testing.T) {
	seen := map[string]bool{}
	for s := Record; s <= Release; s++ {
		if name := s.String(); name == "" || name == "unknown" || seen[name] {
			t.Errorf("step %d has the name %q", int(s), name)
		}
		seen[s.String()] = true
	}
	for _, s := range []Step{0, -1, Release + 1} {
		if got := s.String(); got != "unknown" {
			t.Errorf("step %d has the name %q", int(s), got)
		}
	}
}
