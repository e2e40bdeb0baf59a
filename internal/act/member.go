package act

import (
	"context"
	"errors"
	"fmt"

	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/permit"
	"github.com/maesh/provider-ichor/internal/talos"
)

// A MemberRemover is a control plane that can remove a member of its etcd. *talos.Client satisfies it.
type MemberRemover interface {
	RemoveMember(ctx context.Context, id uint64) error
}

// RemoveMember removes a member of etcd through the first of the peers that answers. Peers are other machines than the
// one whose member it is. A member that is gone is no error. A call whose outcome is not known is not repeated through
// another peer: the next survey tells.
func (a *Actor) RemoveMember(ctx context.Context, lock Lock, p permit.Permit, step string, t Target, member facts.MemberID, peers []MemberRemover) error {
	if member == 0 {
		return fmt.Errorf("cannot %s %q: no member is named", step, t.Name)
	}
	if err := a.irreversible(ctx, lock, p, t, step, nil); err != nil {
		return err
	}
	var errs []error
	for i, peer := range peers {
		if i > 0 {
			// A peer that does not answer takes its time to say so, in which the lock may have been lost.
			if err := lock.Check(ctx); err != nil {
				return fmt.Errorf("cannot %s %q: %w", step, t.Name, err)
			}
		}
		err := peer.RemoveMember(ctx, uint64(member))
		class := talos.ClassOf(err)
		switch {
		case err == nil, class == talos.NotFound:
			return nil
		case class == talos.Unreachable, class == talos.NotReady:
			errs = append(errs, err)
		default:
			return fmt.Errorf("cannot remove etcd member %x of %q: %w", uint64(member), t.Name, err)
		}
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("no other control plane of the cluster answers"))
	}
	return fmt.Errorf("cannot remove etcd member %x of %q: %w", uint64(member), t.Name, errors.Join(errs...))
}
