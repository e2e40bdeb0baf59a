package demo

import (
	"context"
	"errors"
	"fmt"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// twoAtOnce deletes two of four control planes in one call. Both deletes are admitted, since either one alone is fine.
func (d *Demo) twoAtOnce(ctx context.Context) error {
	names, err := d.controlPlanes(ctx)
	if err != nil {
		return err
	}
	if len(names) != 4 {
		return fmt.Errorf("there are %d control planes, want 4", len(names))
	}
	both := make([]*removal, 2)
	for i := range both {
		if both[i], err = d.beginRemoval(ctx, names[i]); err != nil {
			return err
		}
	}
	if err := d.remove(ctx, names[0], names[1]); err != nil {
		return err
	}
	var goes, stays *removal
	err = d.await(ctx, "one of the two is gone", func(ctx context.Context) error {
		told := [2]error{d.gone(ctx, both[0]), d.gone(ctx, both[1])}
		switch {
		case told[0] == nil:
			goes, stays = both[0], both[1]
		case told[1] == nil:
			goes, stays = both[1], both[0]
		default:
			return errors.Join(told[:]...)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := d.left(ctx, goes); err != nil {
		return err
	}
	err = d.await(ctx, stays.name+" says why it stays", func(ctx context.Context) error {
		told := d.gone(ctx, stays)
		if told == nil {
			return errors.New("it is gone as well")
		}
		return says(told.Error(), string(v1alpha1.ReasonBelowDeclaredCount), "Approve a replacement first")
	})
	if err != nil {
		return err
	}
	return d.untouched(ctx, stays)
}

// untouched wants a machine whose delete was asked for to be what it was before: nothing was sent to it.
func (d *Demo) untouched(ctx context.Context, r *removal) error {
	now, err := d.lab.Fleet.At(ctx, r.before.Address)
	if err != nil {
		return err
	}
	if now.Stage != stageRunning || now.BootID != r.before.BootID || now.EtcdHealthy != r.before.EtcdHealthy {
		return fmt.Errorf("%s is in stage %q of boot %s", r.name, now.Stage, now.BootID)
	}
	sent, err := d.lab.Fleet.Changes(ctx, r.before.Name, r.from)
	if err != nil {
		return err
	}
	if len(sent) > 0 {
		return fmt.Errorf("%s was sent to %s", sent[0].Method, r.name)
	}
	return nil
}
