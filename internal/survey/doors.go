package survey

import (
	"context"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/connect"
)

// New returns a Surveyor that opens clusters by way of c. The reader must not be cached: see NewWith.
func New(reader client.Reader, c *connect.Connector, clk clock.PassiveClock) *Surveyor {
	return NewWith(reader, opener{c}, clk)
}

// Machine asks one machine what it is and what it runs: see Look.
func (s *Surveyor) Machine(ctx context.Context, m *v1alpha1.TalosMachine, a *connect.Access) (Observation, error) {
	return s.Look(ctx, m, access{a})
}

type opener struct{ *connect.Connector }

// Open tolerates a ProviderConfig that is gone: a survey only reads, and a removal must not wait for it.
func (o opener) Open(ctx context.Context, c *v1alpha1.TalosCluster) (Access, error) {
	a, err := o.ForRemoval(ctx, c)
	if err != nil {
		return nil, err
	}
	return access{a}, nil
}

// access narrows what connect opens down to what can be read.
type access struct{ a *connect.Access }

func (a access) Machine(address string) Machine { return a.a.Machine(address) }

func (a access) Maintenance(address, fingerprint string) Machine {
	return a.a.Maintenance(address, fingerprint)
}

func (a access) Kubernetes() (kubernetes.Interface, error) { return a.a.Kubernetes() }
