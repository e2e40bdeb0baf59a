package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/maesh/provider-ichor/internal/lab"
	"github.com/maesh/provider-ichor/internal/lab/story"
)

// killInterval is how often the calls are looked at for the leave. The step after it is a second away at least.
const killInterval = 20 * time.Millisecond

func (d *Demo) killedAfterLeave(ctx context.Context) error {
	names, err := d.controlPlanes(ctx)
	if err != nil {
		return err
	}
	r, err := d.beginRemoval(ctx, names[0])
	if err != nil {
		return err
	}
	if err := d.remove(ctx, names[0]); err != nil {
		return err
	}
	if err := d.awaitLeave(ctx, r); err != nil {
		return err
	}
	d.sayf("      $ kill -9 <provider>   # %s has just left etcd\n", r.name)
	if err := d.lab.KillProvider(); err != nil {
		return err
	}
	sent, err := d.lab.Fleet.Changes(ctx, r.before.Name, r.from)
	if err != nil {
		return err
	}
	if count(sent, story.CallReset) > 0 {
		return errors.New("the provider was killed too late: the machine is being reset already")
	}
	d.sayf("        starting another provider\n")
	if err := d.lab.StartProvider(ctx); err != nil {
		return err
	}
	if err := d.ends(ctx, r); err != nil {
		return err
	}
	return d.serve(ctx, len(names)-1)
}

// awaitLeave returns as soon as a machine has left etcd.
func (d *Demo) awaitLeave(ctx context.Context, r *removal) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(killInterval)
	defer ticker.Stop()
	for {
		sent, err := d.lab.Fleet.Changes(ctx, r.before.Name, r.from)
		if err != nil {
			return err
		}
		if left(sent) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain until %s leaves etcd: %w", r.name, ctx.Err())
		case <-ticker.C:
		}
	}
}

func left(sent []lab.RPC) bool {
	for _, c := range sent {
		if c.Method == story.CallLeave && c.Done && c.Code == 0 {
			return true
		}
	}
	return false
}
