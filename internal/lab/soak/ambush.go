package soak

import (
	"context"
	"fmt"
	"time"
)

const (
	// tooLate is what comes of an event whose moment had not come when everything had to end.
	tooLate = "not now: everything ends"
	// lurk is how long an event lies in wait for a job; then it strikes what there is. After patient of it, it baits one.
	lurk    = 45 * time.Second
	patient = 15 * time.Second
	// blink is how often it looks: a step of a job may take no longer than a few of them.
	blink = 100 * time.Millisecond
)

// lieInWait waits until a job that disturbs has gone on for as long as the event says, and baits one if none comes by itself. It
// returns where the job was by then, and false once everything has to end.
func (c *campaign) lieInWait(ctx context.Context, e Event, bait func(context.Context, Event)) (where string, ok bool) {
	begun, hungry := time.Now(), true
	for time.Since(begun) < lurk && !c.over(ctx) {
		machine, since, ok := c.watch.job()
		if ok && since >= e.After {
			return fmt.Sprintf("%s into the job of %s", since.Round(blink), machine), !c.over(ctx)
		}
		if !ok && hungry && time.Since(begun) >= patient {
			hungry = false
			bait(ctx, e)
		}
		c.until(ctx, blink)
	}
	return "no job came", !c.over(ctx)
}

// over tells whether everything has to end.
func (c *campaign) over(ctx context.Context) bool {
	select {
	case <-c.ended:
		return true
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// A strike is one time that a fault was there.
type strike struct {
	what string
	// from and to are the same for what only matters at the moment when it comes, as it does of whoever holds the lock by then.
	from, to time.Time
}

// throw notes that a fault was there.
func (c *campaign) throw(what string, from, to time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.strikes = append(c.strikes, strike{what: what, from: from, to: to})
}

// struck tells whether a job was in flight at some time of a period. If one was, it was so at the beginning, or when a job took
// the lock, or when a provider came back.
func (j *judge) struck(from, to time.Time) bool {
	moments := []time.Time{from}
	for _, t := range j.tenures {
		moments = append(moments, t.from)
	}
	for _, p := range j.absent {
		moments = append(moments, p.to)
	}
	for _, at := range moments {
		if at.Before(from) || at.After(to) {
			continue
		}
		if _, in := j.inFlight(at); in {
			return true
		}
	}
	return false
}

// inFlight is the tenure of the machine that held the lock at some time, if a provider was there to do something with it.
func (j *judge) inFlight(at time.Time) (tenure, bool) {
	if j.excused(j.absent, at, 0) {
		return tenure{}, false
	}
	for _, t := range j.tenures {
		if t.machine() && !t.from.After(at) && (t.to.IsZero() || t.to.After(at)) && t.renewed.Add(lifetime).After(at) {
			return t, true
		}
	}
	return tenure{}, false
}

// comes notes that a provider begins to run or goes on, and goes that one ends or is stopped.
func (j *judge) comes() {
	if j.running++; j.running == 1 {
		j.absent[len(j.absent)-1].to = time.Now()
	}
}

func (j *judge) goes() {
	if j.running--; j.running == 0 {
		from := time.Now()
		j.absent = append(j.absent, period{from, from.Add(24 * time.Hour)})
	}
}
