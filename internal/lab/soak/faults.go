package soak

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/maesh/provider-ichor/internal/lab"
)

// anyMachine draws from all of them, blank ones included.
func (c *campaign) anyMachine(ctx context.Context, e Event) (lab.Machine, error) {
	all, err := c.lab.Fleet.Machines(ctx)
	if err != nil {
		return lab.Machine{}, err
	}
	return all[e.Pick%len(all)], nil
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
	c.watch.note(func(j *judge) { j.hurt = append(j.hurt, span{from, from.Add(24 * time.Hour)}) })
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
		return c.lab.StartProvider(ctx)
	})
}

// stopProvider stops the provider for a while: it goes on later with what it knew.
func (c *campaign) stopProvider(ctx context.Context, e Event) (string, error) {
	pid := 0
	return c.withProvider(ctx, e, func(_ context.Context, on bool) error {
		if on {
			pid = c.lab.ProviderPID()
			from := time.Now()
			c.watch.note(func(j *judge) { j.paused = append(j.paused, span{from, from.Add(24 * time.Hour)}) })
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
	on := set(ctx, true)
	c.lasting.Go(func() {
		enough := time.NewTimer(e.For)
		defer enough.Stop()
		select {
		case <-enough.C:
		case <-c.ended:
		case <-ctx.Done():
		}
		if err := set(context.WithoutCancel(ctx), false); err != nil {
			c.fail(fmt.Errorf("cannot undo %q: %w", e, err))
		}
	})
	return on
}
