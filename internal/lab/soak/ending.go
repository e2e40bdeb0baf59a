package soak

import (
	"time"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/lab"
)

const stageRunning = "running"

// An ending is that of a removal which was to wipe a machine.
type ending struct {
	at      time.Time
	machine string
	object  string
}

// How removals end.
const (
	endedDone      = "done"
	endedCalledOff = "called off"
	endedUndone    = "of machines that nobody had approved"
)

// endOf is how the removal of a machine ended whose object is gone, by the last version of that.
func endOf(last *v1alpha1.TalosMachine) string {
	switch {
	case last.LeftAlone():
		return endedCalledOff
	case !last.Spec.ForProvider.Approved:
		return endedUndone
	}
	return endedDone
}

// configured notes the calls that matter to whether a machine has to be wiped: it does from the configuration that it takes
// on, and that it has been asked for is the least.
func (j *judge) configured(c lab.RPC) {
	switch {
	case c.Method == callApply && c.Done && c.Code == 0:
		j.unwiped[c.Machine] = true
	case c.Method == callReset:
		delete(j.unwiped, c.Machine)
	}
}

// truly holds I4 against removals that have ended: each machine was reset after its last configuration, is no member of etcd,
// and does not run any more what it ran.
func (j *judge) truly(l look) {
	rest := j.endings[:0]
	for _, e := range j.endings {
		if !l.begun.After(e.at) {
			rest = append(rest, e)
			continue
		}
		if j.unwiped[e.machine] {
			j.breakf(e.at, "I4", "%s is gone, and %s was not reset since it was configured", e.object, e.machine)
		}
		if m, ok := l.voter(e.machine, 0); ok {
			j.breakf(e.at, "I4", "%s is gone, and etcd still has the member %016x at %s", e.object, m.id, e.machine)
		}
		if l.stages[e.machine] == stageRunning {
			j.breakf(e.at, "I4", "%s is gone, and %s still runs", e.object, e.machine)
		}
	}
	j.endings = rest
}
