package deleteguard

import (
	"strings"
	"testing"

	"github.com/maesh/provider-ichor/internal/decide/facts"
)

func reasonOf(r *Refusal) Reason {
	if r == nil {
		return ""
	}
	return r.Reason
}

func TestCheckDelete(t *testing.T) {
	if r := CheckDelete("TalosCluster", "prod", true); r != nil {
		t.Errorf("a delete that a person allowed is refused: %v", r)
	}
	r := CheckDelete("TalosCluster", "prod", false)
	if reasonOf(r) != NotAllowed {
		t.Fatalf("a delete that nobody allowed: %v", r)
	}
	for _, want := range []string{`TalosCluster "prod"`, `ichor.maesh.dev/allow-delete: "true"`, "managementPolicies"} {
		if !strings.Contains(r.Error(), want) {
			t.Errorf("%q does not say %q", r.Error(), want)
		}
	}
}

// TestCheckControlPlaneQuorum is the table of the decision record, and what lies around it.
func TestCheckControlPlaneQuorum(t *testing.T) {
	cases := []struct {
		current int
		want    Reason
		numbers []string
	}{
		{current: -1, want: LastControlPlane},
		{current: 0, want: LastControlPlane},
		{current: 1, want: LastControlPlane, numbers: []string{"1 is approved"}},
		{current: 2, want: QuorumWouldBreak, numbers: []string{"2 control planes are approved", "1 would be left", "a quorum of 2 needs 2"}},
		{current: 3}, {current: 4}, {current: 5}, {current: 6}, {current: 7},
	}
	for _, tc := range cases {
		r := CheckControlPlaneQuorum(tc.current)
		if got := reasonOf(r); got != tc.want {
			t.Errorf("one of %d: %q, want %q", tc.current, got, tc.want)
		}
		for _, n := range tc.numbers {
			if !strings.Contains(r.Error(), n) {
				t.Errorf("one of %d: %q does not say %q", tc.current, r.Error(), n)
			}
		}
	}
}

func TestCheckControlPlaneCount(t *testing.T) {
	for declared := 1; declared <= 5; declared += 2 {
		for current := range 8 {
			want := Reason("")
			if current <= declared {
				want = BelowDeclaredCount
			}
			if got := reasonOf(CheckControlPlaneCount(current, declared)); got != want {
				t.Errorf("one of %d with %d declared: %q, want %q", current, declared, got, want)
			}
		}
	}
}

func TestAllowDeleteDoesNotOverrideQuorum(t *testing.T) {
	for _, n := range []int{1, 2} {
		f := facts.Cluster{Declared: facts.Of(1)}
		for i := range n {
			f.Machines = append(f.Machines, facts.Machine{ID: facts.MachineID(rune('a' + i)), Role: facts.ControlPlane, Approved: true, AllowDelete: true})
		}
		allowed := reasonOf(CheckAdmission(f, "a"))
		f.Machines[0].AllowDelete = false
		if got := reasonOf(CheckAdmission(f, "a")); got != NotAllowed {
			t.Errorf("%d control planes, not allowed: %q", n, got)
		}
		if allowed != LastControlPlane && allowed != QuorumWouldBreak {
			t.Errorf("%d control planes: with the annotation the answer is %q, and not the one about quorum", n, allowed)
		}
	}
}
