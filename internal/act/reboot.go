package act

import (
	"context"
	"fmt"

	"github.com/maesh/provider-ichor/internal/decide/permit"
)

// A Rebooter can be rebooted. *talos.Client satisfies it.
type Rebooter interface {
	Prover
	BootID(ctx context.Context) (string, error)
	Reboot(ctx context.Context) error
}

// Reboot reboots the target. The call returns at once; a changed boot ID and a running, ready machine tell that it
// happened. A machine that has booted since the step was decided is left alone: it may have been for the same reason, and what
// it needs now is to be decided anew. A reboot comes back, so the lock is not marked irreversible.
func (a *Actor) Reboot(ctx context.Context, lock Lock, p permit.Permit, step string, t Target, m Rebooter) error {
	if err := p.Check(t.ID, step, a.clock.Now()); err != nil {
		return fmt.Errorf("cannot %s %q: %w", step, t.Name, err)
	}
	if err := prove(ctx, t, m); err != nil {
		return fmt.Errorf("cannot %s %q: %w", step, t.Name, err)
	}
	if err := sameBoot(ctx, t, m); err != nil {
		return fmt.Errorf("cannot %s %q: %w", step, t.Name, err)
	}
	if err := lock.Check(ctx); err != nil {
		return fmt.Errorf("cannot %s %q: %w", step, t.Name, err)
	}
	if err := m.Reboot(ctx); err != nil {
		return fmt.Errorf("cannot reboot %q: %w", t.Name, err)
	}
	return nil
}

// sameBoot returns an error unless the machine is in the boot that the step was decided for.
func sameBoot(ctx context.Context, t Target, m Rebooter) error {
	boot, err := m.BootID(ctx)
	if err != nil {
		return fmt.Errorf("cannot read the boot ID of the machine: %w", err)
	}
	if t.BootID == "" || boot != t.BootID {
		return fmt.Errorf("it is in boot %q, and this was decided for boot %q: nothing was sent to it, and it is looked at again", boot, t.BootID)
	}
	return nil
}
