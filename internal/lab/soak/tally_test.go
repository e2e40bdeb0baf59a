package soak

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTally(t *testing.T) {
	one, two := newTally(), newTally()
	one.count("approve", Done)
	one.count("approve", Refused)
	one.Removals["done"], one.Calls, one.Campaigns = 2, 7, 1
	two.count("approve", Done)
	two.count("steal the Lease", NotNow)
	two.Removals["done"], two.Removals["called off"], two.Looks, two.Writes, two.Campaigns, two.Violations = 1, 4, 5, 6, 1, 1
	var all Tally
	all.Add(one)
	all.Add(two)
	want := `     done  refused  unasked not then   failed
        2        1        -        -        -  approve
        -        -        -        1        -  steal the Lease
        4  removals called off
        3  removals done
        5  looks at etcd, 7 calls and 6 writes of the management cluster judged
        2  campaigns
        1  violations
`
	if diff := cmp.Diff(want, all.String()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if one.Events["approve"][Done] != 1 {
		t.Error("adding has changed what was added")
	}
}
