// Package taloscluster adapts the kind TalosCluster to survey, decide and act: its PKI, its bootstrap, its credentials and
// its teardown. It must never touch a machine by itself: the only call to one is act's Bootstrap.
package taloscluster

import (
	"context"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/act"
	"github.com/maesh/provider-ichor/internal/clusterlock"
	"github.com/maesh/provider-ichor/internal/connect"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/permit"
)

// A Surveyor tells what is known of a cluster. *survey.Surveyor satisfies it.
type Surveyor interface {
	// Objects tells what the objects alone say.
	Objects(ctx context.Context, nn types.NamespacedName) (facts.Cluster, error)
	// Overview is at most some seconds old, if no rest is granted, and does not ask workers: for status, never for an act.
	Overview(ctx context.Context, nn types.NamespacedName, rest time.Duration) (facts.Cluster, error)
	// Cluster is read afresh, for a decision under the lock. Without a target, no pods are read for anybody.
	Cluster(ctx context.Context, nn types.NamespacedName, target facts.MachineID) (facts.Cluster, error)
}

// A Lock is the held lock of a cluster.
type Lock interface {
	act.Lock
	Release(ctx context.Context) error
}

// Locks are the disruption locks of clusters, by the names of the clusters.
type Locks interface {
	// Acquire the lock for the bootstrap of a cluster. Errors of package disruption and *clusterlock.HeldError are waits.
	Acquire(ctx context.Context, cluster types.NamespacedName, h clusterlock.Holder) (Lock, error)
	// Peek tells who holds the lock; nil if nobody does.
	Peek(ctx context.Context, cluster types.NamespacedName) (*clusterlock.Info, error)
	// Release the lock if h holds it.
	Release(ctx context.Context, cluster types.NamespacedName, h clusterlock.Holder) error
}

// An Actor carries out the one step that a TalosCluster needs. *act.Actor satisfies it.
type Actor interface {
	Bootstrap(ctx context.Context, lock act.Lock, p permit.Permit, step string, t act.Target, m act.Bootstrapper) error
}

// An Access opens the machines of one cluster. Nothing is dialled before the first call.
type Access interface {
	Machine(address string) act.Bootstrapper
}

// An Opener gives access to a cluster by what its ProviderConfig says. It answers *connect.NotReadyError while the cluster
// has no PKI and its ProviderConfig has no credentials.
type Opener interface {
	Open(ctx context.Context, c *v1alpha1.TalosCluster) (Access, error)
}

// A connector makes one external per pass. It is shared by all passes and never changes.
type connector struct {
	usage Tracker
	open  Opener
	with  external
}

// A Tracker notes that a managed resource uses its ProviderConfig.
type Tracker interface {
	Track(ctx context.Context, mg resource.ModernManaged) error
}

// Connect opens the cluster. It asks for nothing when the cluster is being deleted: a teardown needs no ProviderConfig, and
// in a namespace that is terminating the note of its use could not be created, so that the cluster could never go.
func (c *connector) Connect(ctx context.Context, mg *v1alpha1.TalosCluster) (managed.TypedExternalClient[*v1alpha1.TalosCluster], error) {
	e := c.with
	if meta.WasDeleted(mg) {
		return &e, nil
	}
	// The same holds for a cluster that nobody allowed to be deleted while its namespace was: it says what is the matter.
	if err := c.usage.Track(ctx, mg); err != nil && !kerrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil, errors.Wrap(err, "cannot track the use of the ProviderConfig")
	}
	access, err := c.open.Open(ctx, mg)
	if notReady := (*connect.NotReadyError)(nil); errors.As(err, &notReady) {
		return &e, nil
	} else if err != nil {
		return nil, err
	}
	e.access = access
	return &e, nil
}

// Disconnect does nothing: connections are pooled across passes.
func (c *connector) Disconnect(context.Context) error { return nil }
