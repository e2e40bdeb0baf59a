package soak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/maesh/provider-ichor/internal/lab"
)

// faultKubernetesDown is of the cluster that a machine belongs to, so a blank one cannot have it.
const faultKubernetesDown = "kubernetes-down"

// harm has something go wrong. It returns what with.
func (c *campaign) harm(ctx context.Context, e Event) (string, error) {
	switch e.Do {
	case Break:
		return c.breakMachine(ctx, e)
	case Cut:
		return c.cutPower(ctx, e)
	case Kill:
		return c.killProvider(ctx, e)
	case Pause:
		return c.stopProvider(ctx, e)
	case Twin:
		return c.runTwin(ctx, e)
	case Outage:
		return c.stopManagement(ctx, e)
	case Unlock:
		return c.unlock(ctx, e)
	case Steal:
		return c.steal(ctx, e)
	default:
		return "", fmt.Errorf("there is no action %d", e.Do)
	}
}

// anyMachine draws from all of them, blank ones included where that makes sense. Every other event that lay in wait for a job takes
// the machine that the job is for.
func (c *campaign) anyMachine(ctx context.Context, e Event) (lab.Machine, error) {
	all, err := c.lab.Fleet.Machines(ctx)
	if err != nil {
		return lab.Machine{}, err
	}
	if e.Fault == faultKubernetesDown {
		all = slices.DeleteFunc(all, func(m lab.Machine) bool { return m.Stage != stageRunning })
	}
	if victim, _, ok := c.watch.job(); ok && e.Midway && e.Pick%2 == 0 {
		if i := slices.IndexFunc(all, func(m lab.Machine) bool { return m.Name == victim }); i >= 0 {
			return all[i], nil
		}
	}
	if len(all) == 0 {
		return lab.Machine{}, errors.New("no machine is there for it")
	}
	return draw(all, e.Pick, func(m lab.Machine) string { return m.Name }), nil
}

// draw chooses one. What is taken out of a plan, or comes into a cluster besides, changes nothing unless it is the very one.
func draw[T any](from []T, pick uint64, name func(T) string) T {
	weight := func(of T) uint64 {
		h := fnv.New64a()
		_, _ = fmt.Fprintf(h, "%x %s", pick, name(of)) // A hash takes everything.
		return h.Sum64()
	}
	return slices.MaxFunc(from, func(a, b T) int { return cmp.Compare(weight(a), weight(b)) })
}

// breakMachine gives a machine a fault for a while.
func (c *campaign) breakMachine(ctx context.Context, e Event) (string, error) {
	m, err := c.anyMachine(ctx, e)
	if err != nil {
		return "", err
	}
	set := func(ctx context.Context, on bool) error { return c.lab.Fleet.SetFault(ctx, m.Name, e.Fault, on) }
	if strings.HasPrefix(e.Fault, "etcd-") {
		return c.hurts(ctx, m.Name, e, set)
	}
	return m.Name, c.lasts(ctx, e, set)
}

func (c *campaign) cutPower(ctx context.Context, e Event) (string, error) {
	m, err := c.anyMachine(ctx, e)
	if err != nil {
		return "", err
	}
	return c.hurts(ctx, m.Name, e, func(ctx context.Context, on bool) error { return c.lab.Fleet.SetPower(ctx, m.Name, !on) })
}

// hurts has something last that takes a member of etcd down. A second one would take the quorum, and prove nothing.
func (c *campaign) hurts(ctx context.Context, machine string, e Event, set func(ctx context.Context, on bool) error) (string, error) {
	select {
	case c.hurt <- struct{}{}:
	default:
		return "not now: etcd is hurt already", nil
	}
	from := time.Now()
	c.watch.note(func(j *judge) { j.hurt = append(j.hurt, period{from, from.Add(24 * time.Hour)}) })
	return machine, c.lasts(ctx, e, func(ctx context.Context, on bool) error {
		if on {
			return set(ctx, true)
		}
		defer func() { <-c.hurt }()
		defer c.watch.note(func(j *judge) { j.hurt[len(j.hurt)-1].to = time.Now() })
		return set(ctx, false)
	})
}

// lasts switches something on, and off after a while or at the end of the campaign, whatever comes first.
func (c *campaign) lasts(ctx context.Context, e Event, set func(ctx context.Context, on bool) error) error {
	begun, on := time.Now(), set(ctx, true)
	c.lasting.Go(func() {
		c.until(ctx, e.For)
		c.lasted(e, on, begun)
		if err := set(context.WithoutCancel(ctx), false); err != nil {
			c.fail(fmt.Errorf("cannot undo %q: %w", e, err))
		}
	})
	return on
}

// lasted notes a fault that is over, unless it never came to be.
func (c *campaign) lasted(e Event, failed error, from time.Time) {
	if failed != nil || e.Do < Break {
		return
	}
	what, to := e.name(time.Since(from)), time.Now()
	if what != e.name(0) {
		c.count(what, Done)
	}
	if e.Do == Kill || e.Do == Pause || e.Do == Steal {
		to = from
	}
	c.throw(what, from, to)
}

// until waits for a while, or for the end of the campaign.
func (c *campaign) until(ctx context.Context, d time.Duration) {
	enough := time.NewTimer(d)
	defer enough.Stop()
	select {
	case <-enough.C:
	case <-c.ended:
	case <-ctx.Done():
	}
}
