package taloscluster

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/act"
	"github.com/maesh/provider-ichor/internal/clusterlock"
	"github.com/maesh/provider-ichor/internal/connect"
	"github.com/maesh/provider-ichor/internal/disruption"
)

// An opener opens clusters by way of connect.
type opener struct{ connect *connect.Connector }

// Open is strict: a ProviderConfig that is missing or wrong is told, unless the cluster is being deleted.
func (o opener) Open(ctx context.Context, c *v1alpha1.TalosCluster) (Access, error) {
	a, err := o.connect.Cluster(ctx, c)
	if err != nil {
		return nil, err
	}
	return access{a}, nil
}

type access struct{ *connect.Access }

// Machine opens the Talos API of a machine of the cluster.
func (a access) Machine(address string) act.Bootstrapper { return a.Access.Machine(address) }

// locks are the locks of clusters behind the gate. There is no other way to them from here.
type locks struct{ *disruption.Gate }

// Acquire never completes a transition: what ends one is the removal of a control plane.
func (l locks) Acquire(ctx context.Context, cluster types.NamespacedName, h clusterlock.Holder) (Lock, error) {
	held, err := l.AcquireDisruptiveLock(ctx, cluster, h, false)
	if err != nil {
		return nil, err
	}
	return held, nil
}
