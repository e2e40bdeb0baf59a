package modelcheck

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	r := Result{
		Rows: []Row{
			{Config: "three", States: 10, Transitions: 30, Questions: 4, Seconds: 1.5},
			{Config: "five", States: 1000, Transitions: 4000, Questions: 50, Seconds: 20, Violation: "I1"},
		},
		Mutants: []Mutant{
			{Name: "anybody may go", Rule: "4.1", Story: []string{"asked", "gone"}},
			{Name: "nobody looks"},
		},
		Rules: []string{"I1", "progress"},
	}
	want := `configuration                                    states  transitions  decisions  seconds  violations
three                                                10           30          4      1.5  none
five                                               1000         4000         50     20.0  I1
all                                                1010         4030         54     21.5  1
rules: I1, progress

broken on purpose                                    seen as   moves
anybody may go                                       4.1           2
nobody looks                                         none          0
mutants found: 1 of 2
`
	if diff := cmp.Diff(want, r.Table()); diff != "" {
		t.Errorf("the table: -want, +got:\n%s", diff)
	}
	if r.Violations() != 1 || r.Found() != 1 {
		t.Errorf("%d violations and %d mutants found, want 1 and 1", r.Violations(), r.Found())
	}
}
