package soak

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTally(t *testing.T) {
	one, two := newTally(), newTally()
	one.count("approve", Done)
	one.count("approve", Refused)
	one.Removals["done"], one.Calls, one.Campaigns = 2, 7, 1
	two.count("approve", Done)
	two.count("steal the Lease", NotNow)
	one.Thrown["steal the Lease"], two.Thrown["steal the Lease"], two.Thrown["cut the power"], two.Struck["steal the Lease"] = 2, 3, 1, 1
	one.Jobs, two.Jobs, one.Latest, two.Latest = 3, 4, 70*time.Millisecond, 20*time.Millisecond
	two.Removals["done"], two.Removals["called off"], two.Looks, two.Writes, two.Campaigns, two.Violations = 1, 4, 5, 6, 1, 1
	var all Tally
	all.Add(one)
	all.Add(two)
	want := `     done  refused  unasked not then   failed
        2        1        -        -        -  approve
        -        -        -        1        -  steal the Lease
   thrown   struck  a job that was in flight
        1        0  cut the power
        5        1  steal the Lease
        7  jobs held the lock; the latest call came 70ms after its own was lost
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

func TestProof(t *testing.T) {
	nothing, missed, hit := newTally(), newTally(), newTally()
	missed.Thrown["steal the Lease"], hit.Thrown["steal the Lease"], hit.Struck["steal the Lease"] = 3, 3, 1
	for name, tc := range map[string]struct {
		tally  Tally
		proves bool
	}{"NoFaults": {nothing, true}, "AllMissed": {missed, false}, "OneStruck": {hit, true}} {
		if err := tc.tally.Proof(); (err == nil) != tc.proves {
			t.Errorf("%s: %v", name, err)
		}
	}
}
