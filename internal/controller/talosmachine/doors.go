package talosmachine

import (
	"context"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/act"
	"github.com/maesh/provider-ichor/internal/connect"
	"github.com/maesh/provider-ichor/internal/survey"
)

// A looker asks one machine what it is and what it runs. *survey.Surveyor satisfies it.
type looker interface {
	Machine(ctx context.Context, mg *v1alpha1.TalosMachine, a *connect.Access) (survey.Observation, error)
}

// doors are what connect opened, seen from here.
type doors struct {
	*connect.Access
	looker looker
}

// knock opens clusters through connect.
func knock(c *connect.Connector, l looker) func(ctx context.Context, cluster *v1alpha1.TalosCluster, removal bool) (Doors, error) {
	return func(ctx context.Context, cluster *v1alpha1.TalosCluster, removal bool) (Doors, error) {
		open := c.Cluster
		if removal {
			open = c.ForRemoval
		}
		a, err := open(ctx, cluster)
		if err != nil {
			return nil, err
		}
		return doors{Access: a, looker: l}, nil
	}
}

func (d doors) Machine(address string) act.Machine { return d.Access.Machine(address) }

func (d doors) Maintenance(address, fingerprint string) act.Configurer {
	return d.Access.Maintenance(address, fingerprint)
}

func (d doors) Look(ctx context.Context, mg *v1alpha1.TalosMachine) (survey.Observation, error) {
	return d.looker.Machine(ctx, mg, d.Access)
}

func (d doors) Drain() v1alpha1.MachineDrain { return d.Settings.Drain }

func (d doors) ImageFactory() string { return d.Settings.ImageFactory }
