package act

import (
	"context"
	"fmt"

	"github.com/maesh/provider-ichor/internal/decide/permit"
)

// A Bootstrapper can begin a new etcd cluster. *talos.Client satisfies it.
type Bootstrapper interface {
	Prover
	Bootstrap(ctx context.Context) error
}

// Bootstrap begins the cluster's etcd on the target. It happens once in a cluster's life: a second etcd cluster with the
// same PKI would split the cluster in two without an error anywhere. What it answers proves nothing; the member list of
// the target tells.
func (a *Actor) Bootstrap(ctx context.Context, lock Lock, p permit.Permit, step string, t Target, m Bootstrapper) error {
	if err := a.irreversible(ctx, lock, p, t, step, m); err != nil {
		return err
	}
	if err := m.Bootstrap(ctx); err != nil {
		return fmt.Errorf("cannot bootstrap the cluster on %q: %w", t.Name, err)
	}
	return nil
}
