package act

import (
	"context"
	"fmt"

	"github.com/maesh/provider-ichor/internal/decide/permit"
	"github.com/maesh/provider-ichor/internal/talos"
)

// A Configurer can be given a machine configuration. *talos.Client satisfies it.
type Configurer interface {
	Prover
	ApplyConfig(ctx context.Context, config []byte, mode talos.Mode) (talos.ApplyResult, error)
}

// FirstConfig gives a blank machine, through its maintenance API, its first configuration. The mode is auto, the only one
// that the maintenance API of every supported Talos version takes; a blank machine has nothing that a reboot could
// disturb. It needs to be that machine all the same: a configuration holds the keys of the cluster.
func FirstConfig(ctx context.Context, t Target, m Configurer, config []byte) error {
	return applyConfig(ctx, t, m, config, talos.Auto)
}

// ChangeConfig gives a running machine a configuration that it takes on without a reboot, or refuses. It needs neither
// lock nor permit, since nothing is disturbed.
func ChangeConfig(ctx context.Context, t Target, m Configurer, config []byte) error {
	return applyConfig(ctx, t, m, config, talos.NoReboot)
}

// StageConfig gives the target a configuration for its next boot. The machine goes on with the one that it runs.
func (a *Actor) StageConfig(ctx context.Context, lock Lock, p permit.Permit, step string, t Target, m Configurer, config []byte) error {
	if err := a.permitted(ctx, lock, p, t, step); err != nil {
		return err
	}
	return applyConfig(ctx, t, m, config, talos.Staged)
}

func applyConfig(ctx context.Context, t Target, m Configurer, config []byte, mode talos.Mode) error {
	if err := prove(ctx, t, m); err != nil {
		return fmt.Errorf("cannot apply the configuration of %q: %w", t.Name, err)
	}
	if _, err := m.ApplyConfig(ctx, config, mode); err != nil {
		return fmt.Errorf("cannot apply the configuration of %q: %w", t.Name, err)
	}
	return nil
}
