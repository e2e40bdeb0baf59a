package soak

import (
	"slices"
	"strings"
	"time"

	"github.com/maesh/provider-ichor/internal/lab"
)

const (
	// flight is how long a call may be on its way after its sender made sure of the lock, on two cores that everything shares. What
	// the tally says of the latest call shows how much of it is needed.
	flight = 2 * time.Second
	// lifetime is how long a lock lives that its holder does not renew.
	lifetime = 5 * time.Minute
	// machineHolder is how holders begin that are machines.
	machineHolder = "TalosMachine/"
)

// A tenure is the time for which somebody held the lock.
type tenure struct {
	holder string
	// from, to and renewed are when it began, ended and was last renewed; to is zero as long as it has not ended.
	from, to, renewed time.Time
}

// held notes who holds the lock since a write of it.
func (j *judge) held(at time.Time, holder string) {
	if n := len(j.tenures); n > 0 && j.tenures[n-1].to.IsZero() {
		if j.tenures[n-1].holder == holder {
			j.tenures[n-1].renewed = at
			return
		}
		j.tenures[n-1].to = at
	}
	if holder != "" {
		j.tenures = append(j.tenures, tenure{holder: holder, from: at, renewed: at})
	}
}

// machine tells whether a machine was the holder.
func (t tenure) machine() bool { return strings.HasPrefix(t.holder, machineHolder) }

// underLock holds I7 against a call that disturbs: the lock was held for the machine that is disturbed when the call was sent.
// A member that is removed by another is not known to be anybody's, so there any machine's lock will do.
func (j *judge) underLock(c lab.RPC) {
	if j.followed.IsZero() || c.Time.Before(j.followed) {
		return
	}
	since := j.hindsight(c.Time, flight)
	who := "nobody"
	for _, t := range slices.Backward(j.tenures) {
		if t.from.After(c.Time.Add(time.Second)) { // It may have been written down a little late.
			continue
		}
		if !t.to.IsZero() && t.to.Before(since) {
			break
		}
		mine := j.owners[t.holder] == c.Machine || c.Method == callRemove && t.machine()
		if mine && t.renewed.Add(lifetime).After(since) {
			if !t.to.IsZero() {
				j.latest = max(j.latest, c.Time.Sub(t.to))
			}
			return
		}
		if who = t.holder; mine {
			who += ", which had not renewed it for " + c.Time.Sub(t.renewed).Round(time.Second).String()
		}
	}
	j.breakf(c.Time, "I7", "%s was sent to %s while the lock was held by %s", short(c.Method), c.Machine, who)
}

// hindsight is since when what the sender of a call knew may date, if it was no older than that but for the time in which the
// sender was stopped. One that is still stopped sends nothing, so then the call is another's, who knows better.
func (j *judge) hindsight(at time.Time, old time.Duration) time.Time {
	since := at.Add(-old)
	for _, p := range j.paused {
		if !p.to.After(at) && p.to.After(since) {
			since = since.Add(-p.to.Sub(p.from))
		}
	}
	return since
}
