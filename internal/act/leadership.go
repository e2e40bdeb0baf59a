package act

import (
	"context"
	"fmt"

	"github.com/maesh/provider-ichor/internal/decide/permit"
)

// A Leader can hand etcd's leadership over. *talos.Client satisfies it.
type Leader interface {
	Prover
	ForfeitLeadership(ctx context.Context) error
}

// MoveLeadership asks the target to hand etcd's leadership to another member. Whether it did is read back by the next
// survey: the call succeeds as well when the target was no leader.
func (a *Actor) MoveLeadership(ctx context.Context, lock Lock, p permit.Permit, step string, t Target, m Leader) error {
	if err := a.permitted(ctx, lock, p, t, step); err != nil {
		return err
	}
	if err := prove(ctx, t, m); err != nil {
		return fmt.Errorf("cannot move leadership away from %q: %w", t.Name, err)
	}
	if err := m.ForfeitLeadership(ctx); err != nil {
		return fmt.Errorf("cannot move leadership away from %q: %w", t.Name, err)
	}
	return nil
}
