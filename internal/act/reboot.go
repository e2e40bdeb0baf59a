package act

import (
	"context"
	"fmt"

	"github.com/maesh/provider-ichor/internal/decide/permit"
)

// A Rebooter can be rebooted. *talos.Client satisfies it.
type Rebooter interface {
	Prover
	Reboot(ctx context.Context) error
}

// Reboot reboots the target. The call returns at once; a changed boot ID and a running, ready machine tell that it
// happened. A reboot comes back, so the lock is not marked irreversible.
func (a *Actor) Reboot(ctx context.Context, lock Lock, p permit.Permit, step string, t Target, m Rebooter) error {
	if err := p.Check(t.ID, step, a.clock.Now()); err != nil {
		return fmt.Errorf("cannot %s %q: %w", step, t.Name, err)
	}
	if err := prove(ctx, t, m); err != nil {
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
