package act

import (
	"context"
	"fmt"

	"github.com/maesh/provider-ichor/internal/decide/permit"
)

// A Leaver can take its own member out of etcd. *talos.Client satisfies it.
type Leaver interface {
	Prover
	LeaveEtcd(ctx context.Context) error
}

// LeaveEtcd starts the target's leave from etcd and returns. The call may take nine minutes, in which the lock is
// renewed; if the lock is lost, the call is cancelled. Whatever it answers proves nothing: an error may hide a leave that
// happened, and a second leave would hang. Only the member lists of the others tell.
func (a *Actor) LeaveEtcd(ctx context.Context, lock Lock, p permit.Permit, step string, t Target, m Leaver) error {
	if a.Running(t.ID) {
		return nil
	}
	if err := a.irreversible(ctx, lock, p, t, step, m); err != nil {
		return err
	}
	started := a.background.Go(string(t.ID), func(ctx context.Context) error { return lock.RenewWhile(ctx, m.LeaveEtcd) })
	if !started && !a.Running(t.ID) {
		return fmt.Errorf("cannot %s %q: too many long calls run already", step, t.Name)
	}
	return nil
}
