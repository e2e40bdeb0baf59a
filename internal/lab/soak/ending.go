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
	// seen is the first look after it. It is judged at the next one, when it is known what was sent to the machine meanwhile.
	seen *look
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
	switch c.Method {
	case callApply:
		j.applied[c.Machine] = c.Time
		if c.Done && c.Code == 0 {
			j.unwiped[c.Machine] = true
		}
	case callReset:
		delete(j.unwiped, c.Machine)
	}
}

// truly holds I4 against removals that have ended: each machine was reset after its last configuration, is no member of etcd,
// and does not run any more what it ran. One that is configured anew by then tells nothing.
func (j *judge) truly(l look) {
	rest := j.endings[:0]
	for _, e := range j.endings {
		if e.seen == nil {
			if l.begun.After(e.at) {
				e.seen = &l
			}
			rest = append(rest, e)
			continue
		}
		if j.applied[e.machine].After(e.at) {
			continue
		}
		if j.unwiped[e.machine] {
			j.breakf(e.at, "I4", "%s is gone, and %s was not reset since it was configured", e.object, e.machine)
		}
		if m, ok := e.seen.voter(e.machine, 0); ok {
			j.breakf(e.at, "I4", "%s is gone, and etcd still has the member %016x at %s", e.object, m.id, e.machine)
		}
		if e.seen.stages[e.machine] == stageRunning {
			j.breakf(e.at, "I4", "%s is gone, and %s still runs", e.object, e.machine)
		}
	}
	j.endings = rest
}
