package soak

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

const (
	// relief is how long it takes until a provider that is stopped for long is replaced, as when its node hangs.
	relief = 20 * time.Second
	// together is how long the one that replaced it works on when it has woken up.
	together = 20 * time.Second
)

// killProvider ends the provider, and starts another after a while.
func (c *campaign) killProvider(ctx context.Context, e Event) (string, error) {
	return c.withProvider(ctx, e, func(ctx context.Context, on bool) error {
		if on {
			c.watch.note((*judge).goes)
			return c.lab.KillProvider()
		}
		// Without an API server it would end at once, as in a pod that is started again and again.
		c.management.Lock()
		defer c.management.Unlock()
		if err := c.lab.StartProvider(ctx); err != nil {
			return err
		}
		defer c.watch.note((*judge).comes)
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
			c.watch.note(func(j *judge) {
				j.paused = append(j.paused, period{from, from.Add(24 * time.Hour)})
				j.goes()
			})
			if e.For > lifetime {
				c.lasting.Go(func() { c.relieve(ctx, e) })
			}
			return syscall.Kill(pid, syscall.SIGSTOP)
		}
		// It is noted before: what it sends as soon as it wakes is its own.
		c.watch.note(func(j *judge) {
			j.paused[len(j.paused)-1].to = time.Now()
			j.comes()
		})
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

// relieve replaces a provider that is stopped, until that has been awake again for a while.
func (c *campaign) relieve(ctx context.Context, e Event) {
	c.until(ctx, relief)
	if c.over(ctx) {
		return
	}
	c.second <- struct{}{} // One that runs besides ends soon.
	if err := c.startSecond(ctx); err != nil {
		c.fail(err)
		return
	}
	if err := c.webhooks(ctx, c.lab.AskSecondProvider); err != nil {
		c.fail(fmt.Errorf("cannot have the webhooks of the second provider asked: %w", err))
	}
	c.tellf("        another provider takes over from that of #%d", e.Number)
	c.until(ctx, e.For-relief+together)
	if err := c.webhooks(context.WithoutCancel(ctx), c.lab.AskProvider); err != nil {
		c.fail(fmt.Errorf("cannot have the webhooks of the first provider asked: %w", err))
	}
	if err := c.stopSecond(false); err != nil {
		c.fail(err)
	}
	c.tellf("        the provider that took over from that of #%d has ended", e.Number)
}

// webhooks changes who is asked, however long the API server is away.
func (c *campaign) webhooks(ctx context.Context, change func(context.Context) error) error {
	return c.surely(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		return change(ctx)
	})
}

// runTwin has a second provider work besides the first for a while. Every other one ends at once, as if it were killed.
func (c *campaign) runTwin(ctx context.Context, e Event) (string, error) {
	select {
	case c.second <- struct{}{}:
	default:
		return "not now: there is a second one already", nil
	}
	if err := c.startSecond(ctx); err != nil {
		return "", err
	}
	return "", c.lasts(ctx, e, func(_ context.Context, on bool) error {
		if on {
			return nil
		}
		return c.stopSecond(e.Pick%2 == 1)
	})
}

// startSecond starts the second provider, for whoever has taken its place. Without an API server it would end at once.
func (c *campaign) startSecond(ctx context.Context) error {
	c.management.Lock()
	defer c.management.Unlock()
	if err := c.lab.StartSecondProvider(ctx); err != nil {
		<-c.second
		return err
	}
	c.watch.note((*judge).comes)
	if err := c.lab.AwaitSecondProvider(ctx); err != nil {
		return errors.Join(err, c.stopSecond(true))
	}
	return nil
}

// stopSecond ends it, in order or at once, and leaves its place.
func (c *campaign) stopSecond(once bool) error {
	defer func() { <-c.second }()
	c.watch.note((*judge).goes)
	if once {
		return c.lab.KillSecondProvider()
	}
	return c.lab.StopSecondProvider()
}
