package soak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/maesh/provider-ichor/internal/lab"
)

// faultKubernetesDown is of the cluster that a machine belongs to, so a blank one cannot have it.
const faultKubernetesDown = "kubernetes-down"

// anyMachine draws from all of them, blank ones included where that makes sense.
func (c *campaign) anyMachine(ctx context.Context, e Event) (lab.Machine, error) {
	all, err := c.lab.Fleet.Machines(ctx)
	if err != nil {
		return lab.Machine{}, err
	}
	if e.Fault == faultKubernetesDown {
		all = slices.DeleteFunc(all, func(m lab.Machine) bool { return m.Stage != stageRunning })
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

// killProvider ends the provider, and starts another after a while.
func (c *campaign) killProvider(ctx context.Context, e Event) (string, error) {
	return c.withProvider(ctx, e, func(ctx context.Context, on bool) error {
		if on {
			return c.lab.KillProvider()
		}
		// Without an API server it would end at once, as in a pod that is started again and again.
		c.management.Lock()
		defer c.management.Unlock()
		if err := c.lab.StartProvider(ctx); err != nil {
			return err
		}
		return c.lab.AwaitProvider(ctx)
	})
}

// stopProvider stops the provider for a while: it goes on later with what it knew.
func (c *campaign) stopProvider(ctx context.Context, e Event) (string, error) {
	pid := 0
	return c.withProvider(ctx, e, func(_ context.Context, on bool) error {
		if on {
			pid = c.lab.ProviderPID()
			from := time.Now()
			c.watch.note(func(j *judge) { j.paused = append(j.paused, period{from, from.Add(24 * time.Hour)}) })
			return syscall.Kill(pid, syscall.SIGSTOP)
		}
		defer c.watch.note(func(j *judge) { j.paused[len(j.paused)-1].to = time.Now() })
		return syscall.Kill(pid, syscall.SIGCONT)
	})
}

func (c *campaign) withProvider(ctx context.Context, e Event, set func(ctx context.Context, on bool) error) (string, error) {
	select {
	case c.provider <- struct{}{}:
	default:
		return "not now: it is not running", nil
	}
	return "", c.lasts(ctx, e, func(ctx context.Context, on bool) error {
		if !on {
			defer func() { <-c.provider }()
		}
		return set(ctx, on)
	})
}

// lasts switches something on, and off after a while or at the end of the campaign, whatever comes first.
func (c *campaign) lasts(ctx context.Context, e Event, set func(ctx context.Context, on bool) error) error {
	begun, on := time.Now(), set(ctx, true)
	c.lasting.Go(func() {
		c.until(ctx, e.For)
		if lasted := time.Since(begun); on == nil && lasted > lifetime {
			c.count(e.name(lasted), Done)
		}
		if err := set(context.WithoutCancel(ctx), false); err != nil {
			c.fail(fmt.Errorf("cannot undo %q: %w", e, err))
		}
	})
	return on
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
