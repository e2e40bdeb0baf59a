package soak

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// An Outcome is what came of something that was asked for or done.
type Outcome int

// The outcomes. Unasked is what there was nobody for to ask, as while the provider is dead; NotNow what there was nothing for.
const (
	Done Outcome = 1 + iota
	Refused
	Unasked
	NotNow
	Failed
)

var outcomes = []Outcome{Done, Refused, Unasked, NotNow, Failed}

var headings = map[Outcome]string{Done: "done", Refused: "refused", Unasked: "unasked", NotNow: "not then", Failed: "failed"}

// A Tally counts what was done by what came of it, and how removals ended.
type Tally struct {
	Events   map[string]map[Outcome]int
	Removals map[string]int
	// Thrown are faults by their kind, and Struck those of them that were there while a job held the lock and a provider was there
	// to do it: what only matters at the moment when it comes, as a kill does, by then; and anything else at some time of it.
	Thrown, Struck map[string]int
	// Jobs are how often a machine took the lock.
	Jobs int
	// Latest is how long after its lock was lost the latest call came that was on its way by then, or whose sender had been stopped.
	Latest time.Duration
	// Looks at etcd, Calls that changed something, and Writes of the lock and of machines, which were judged.
	Looks, Calls, Writes int
	// Campaigns that were run, and the Violations in them.
	Campaigns, Violations int
}

func newTally() Tally {
	return Tally{Events: map[string]map[Outcome]int{}, Removals: map[string]int{}, Thrown: map[string]int{}, Struck: map[string]int{}}
}

func (t Tally) count(what string, came Outcome) {
	if t.Events[what] == nil {
		t.Events[what] = map[Outcome]int{}
	}
	t.Events[what][came]++
}

// Add another one to it.
func (t *Tally) Add(other Tally) {
	if t.Events == nil {
		*t = newTally()
	}
	for what, byOutcome := range other.Events {
		for came, n := range byOutcome {
			if t.Events[what] == nil {
				t.Events[what] = map[Outcome]int{}
			}
			t.Events[what][came] += n
		}
	}
	add(t.Removals, other.Removals)
	add(t.Thrown, other.Thrown)
	add(t.Struck, other.Struck)
	t.Jobs += other.Jobs
	t.Latest = max(t.Latest, other.Latest)
	t.Looks, t.Calls, t.Writes = t.Looks+other.Looks, t.Calls+other.Calls, t.Writes+other.Writes
	t.Campaigns, t.Violations = t.Campaigns+other.Campaigns, t.Violations+other.Violations
}

func add(to, from map[string]int) {
	for what, n := range from {
		to[what] += n
	}
}

// Proof is an error if there were faults and none of them struck a job: then nothing was proven of how jobs take them.
func (t Tally) Proof() error {
	if len(t.Thrown) > 0 && len(t.Struck) == 0 {
		return errors.New("no fault struck a job that was in flight, so this proves nothing")
	}
	return nil
}

// String is the tally as tables.
func (t Tally) String() string {
	var b strings.Builder
	for _, o := range outcomes {
		fmt.Fprintf(&b, "%9s", headings[o])
	}
	b.WriteByte('\n')
	for _, what := range slices.Sorted(maps.Keys(t.Events)) {
		for _, o := range outcomes {
			if n := t.Events[what][o]; n > 0 {
				fmt.Fprintf(&b, "%9d", n)
			} else {
				fmt.Fprintf(&b, "%9s", "-")
			}
		}
		fmt.Fprintf(&b, "  %s\n", what)
	}
	fmt.Fprintf(&b, "%9s%9s  a job that was in flight\n", "thrown", "struck")
	for _, what := range slices.Sorted(maps.Keys(t.Thrown)) {
		fmt.Fprintf(&b, "%9d%9d  %s\n", t.Thrown[what], t.Struck[what], what)
	}
	fmt.Fprintf(&b, "%9d  jobs held the lock; the latest call came %s after its own was lost\n", t.Jobs, t.Latest.Round(time.Millisecond))
	for _, how := range slices.SortedFunc(maps.Keys(t.Removals), func(x, y string) int {
		return cmp.Or(t.Removals[y]-t.Removals[x], strings.Compare(x, y))
	}) {
		fmt.Fprintf(&b, "%9d  removals %s\n", t.Removals[how], how)
	}
	fmt.Fprintf(&b, "%9d  looks at etcd, %d calls and %d writes of the management cluster judged\n", t.Looks, t.Calls, t.Writes)
	fmt.Fprintf(&b, "%9d  campaigns\n%9d  violations\n", t.Campaigns, t.Violations)
	return b.String()
}
