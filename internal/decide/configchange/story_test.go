package configchange

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/story"
)

// boot is what machines of stories are in unless they say otherwise.
var boot = facts.Of("boot-1")

// configs are the configurations that stories speak of.
var configs = map[string]Config{
	"same":    {BootID: boot, Active: facts.Of(true), Persistent: facts.Of(true)},
	"drifted": {BootID: boot, Active: facts.Of(false), Persistent: facts.Of(false), NeedsReboot: facts.Of(false)},
	"differs": {BootID: boot, Active: facts.Of(false), Persistent: facts.Of(false), NeedsReboot: facts.Of(true)},
	"staged":  {BootID: boot, Active: facts.Of(false), Persistent: facts.Of(true), NeedsReboot: facts.Of(true)},
	"unknown": {BootID: boot, Active: facts.Unknown[bool]("cannot read the machine configuration: not authorized")},
	"unread":  {BootID: facts.Unknown[string]("no answer within 10s"), Active: facts.Of(false), Persistent: facts.Of(true), NeedsReboot: facts.Of(true)},
}

// TestStories looks at changes before each of their steps. Run it with -rewrite to write down what is decided now, and
// commit that only if you understand what changed and want it.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			f, err := story.Parse(d.Input)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			target := facts.MachineID("id-" + d.CmdArgs[0].Key)
			config, ok := configs[d.Cmd]
			if !ok {
				d.Fatalf(t, "there is no configuration %q", d.Cmd)
			}
			switch d := Next(f, target, config).(type) {
			case Act:
				if err := d.Permit.Check(target, d.Step.String(), f.TakenAt); err != nil {
					t.Errorf("the permit of %s is not good: %v", d.Step, err)
				}
				return fmt.Sprintf("act %s\n  %s\n", d.Step, d.Message)
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

func TestStepNames(t *testing.T) {
	seen := map[string]bool{}
	for s := Stage; s <= Uncordon; s++ {
		if name := s.String(); name == "" || name == "unknown" || seen[name] {
			t.Errorf("step %d has the name %q", int(s), name)
		}
		seen[s.String()] = true
	}
	for _, s := range []Step{0, -1, Uncordon + 1} {
		if got := s.String(); got != "unknown" {
			t.Errorf("step %d has the name %q", int(s), got)
		}
	}
}

// TestVerdict is the whole table: each of the three is yes, no or unknown.
func TestVerdict(t *testing.T) {
	y, n, u := facts.Of(true), facts.Of(false), facts.Unknown[bool]("cannot be read")
	cases := []struct {
		reason string
		c      Config
		want   State
	}{
		{"What runs could not be compared, so nothing is known, whatever the disk holds.", Config{boot, u, u, u}, Unknown},
		{"", Config{boot, u, y, y}, Unknown}, {"", Config{boot, u, y, n}, Unknown}, {"", Config{boot, u, y, u}, Unknown},
		{"", Config{boot, u, n, y}, Unknown}, {"", Config{boot, u, n, n}, Unknown}, {"", Config{boot, u, n, u}, Unknown},
		{"", Config{boot, u, u, y}, Unknown}, {"", Config{boot, u, u, n}, Unknown},
		{"It runs what is declared.", Config{boot, y, y, y}, InSync},
		{"", Config{boot, y, y, n}, InSync}, {"", Config{boot, y, y, u}, InSync},
		{"Old versions of Talos do not tell what is on disk.", Config{boot, y, u, y}, InSync},
		{"", Config{boot, y, u, n}, InSync}, {"", Config{boot, y, u, u}, InSync},
		{"The next boot would take it away; to apply it again puts it on disk.", Config{boot, y, n, y}, Drifted},
		{"", Config{boot, y, n, n}, Drifted}, {"", Config{boot, y, n, u}, Drifted},
		{"The next boot brings it.", Config{boot, n, y, y}, Staged},
		{"", Config{boot, n, y, n}, Staged}, {"", Config{boot, n, y, u}, Staged},
		{"It can change while it runs.", Config{boot, n, n, n}, Drifted},
		{"", Config{boot, n, u, n}, Drifted},
		{"It cannot.", Config{boot, n, n, y}, NeedsReboot},
		{"", Config{boot, n, u, y}, NeedsReboot},
		{"It is not known that it can: through the gate, which is right in either case.", Config{boot, n, n, u}, NeedsReboot},
		{"", Config{boot, n, u, u}, NeedsReboot},
	}
	for _, tc := range cases {
		if got := Verdict(tc.c); got != tc.want {
			t.Errorf("%s Verdict(%+v) = %d, want %d", tc.reason, tc.c, got, tc.want)
		}
	}
}
