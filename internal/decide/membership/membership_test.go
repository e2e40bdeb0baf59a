package membership

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/story"
)

// TestStories asks what etcd says of machines. Run it with -rewrite to write down what is found now, and commit that only if
// you understand what changed and want it.
func TestStories(t *testing.T) {
	states := map[State]string{Listed: "listed", Vanishing: "vanishing", Absent: "absent", Unknown: "unknown"}
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			f, err := story.Parse(d.Input)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			if d.Cmd == "begun" {
				return fmt.Sprintf("begun %t, never begun %t\n", Begun(f), NeverBegun(f))
			}
			m, _ := f.Machine(facts.MachineID("id-" + d.CmdArgs[0].Key))
			found := Of(f, m)
			out := states[found.State]
			if found.Member.ID != 0 {
				out += fmt.Sprintf(" %x by %s", uint64(found.Member.ID), strings.Join(found.Listers, ", "))
			}
			if found.Why != "" {
				out += ": " + found.Why
			}
			return out + "\n"
		})
	})
}

func TestOwner(t *testing.T) {
	f, err := story.Parse("prod\ncp-1 voter\ncp-2 voter silent\ncp-3 last=a1\ncp-4 silent last=a9\ncp-5 silent last=a9\ncp-6 voter id=b1\ncp-7 voter id=b1\ncp-8 voter removed")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason    string
		id        facts.MemberID
		want      string
		name      string
		contested bool
	}{
		"SaysSo":     {reason: "What a machine says to run now counts before what another was last seen to.", id: 0xa1, want: "cp-1", name: "cp-1"},
		"WasSeen":    {reason: "One that does not answer is what it was last seen to be.", id: 0xa2, want: "cp-2", name: "cp-2"},
		"TwoWere":    {reason: "Two that were seen to be the same are neither.", id: 0xa9, name: "member a9"},
		"TwoSaySo":   {reason: "Two that say to be the same are clones.", id: 0xb1, name: "member b1", contested: true},
		"Nobody":     {reason: "A member may have no machine.", id: 0xff, name: "member ff"},
		"WasRemoved": {reason: "A machine whose removal was completed runs nothing.", id: 0xa8, name: "member a8"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m, ok := Owner(f, tc.id)
			if m.Name != tc.want || ok != (tc.want != "") {
				t.Errorf("\n%s\nOwner(%x) = %q, %t, want %q", tc.reason, uint64(tc.id), m.Name, ok, tc.want)
			}
			if got := Name(f, tc.id); got != tc.name {
				t.Errorf("\n%s\nName(%x) = %q, want %q", tc.reason, uint64(tc.id), got, tc.name)
			}
			if got := Contested(f, tc.id); got != tc.contested {
				t.Errorf("\n%s\nContested(%x) = %t, want %t", tc.reason, uint64(tc.id), got, tc.contested)
			}
		})
	}
}

func TestIsListed(t *testing.T) {
	f, err := story.Parse("prod\ncp-1 voter sees=a1,a2\ncp-2 voter sick sees=a1,a2,a9?\ncp-3 voter mute")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		id     facts.MemberID
		want   bool
	}{
		"ByAll":    {reason: "Whoever lists it will do.", id: 0xa1, want: true},
		"BySick":   {reason: "A voter that does not serve may be the only one to tell.", id: 0xa9, want: true},
		"ByNobody": {reason: "Who tells no list lists nobody.", id: 0xa3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := IsListed(f, tc.id); got != tc.want {
				t.Errorf("\n%s\nIsListed(%x) is %t, want %t", tc.reason, uint64(tc.id), got, tc.want)
			}
		})
	}
}

func TestHost(t *testing.T) {
	cases := map[string]string{
		"192.0.2.1":          "192.0.2.1",
		"192.0.2.1:50000":    "192.0.2.1",
		"cp-1.example:50001": "cp-1.example",
		"2001:db8::1":        "2001:db8::1",
		"[2001:db8::1]:5000": "2001:db8::1",
		"[2001:db8::1]":      "2001:db8::1",
		"[2001:db8::1":       "[2001:db8::1",
	}
	for address, want := range cases {
		if got := host(address); got != want {
			t.Errorf("host(%q) = %q, want %q", address, got, want)
		}
	}
}
