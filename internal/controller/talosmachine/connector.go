package talosmachine

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/connect"
)

// A tracker records that a machine uses its provider config.
type tracker interface {
	Track(ctx context.Context, mg resource.ModernManaged) error
}

// A connector begins each pass over a machine.
type connector struct {
	parts

	usage tracker
	// knock opens the doors of a cluster. *connect.NotReadyError says that it has none yet.
	// A removal must not wait for a provider config that was deleted before it.
	knock func(ctx context.Context, cluster *v1alpha1.TalosCluster, removal bool) (Doors, error)
	// nodes wake machines up when their Nodes change.
	nodes *nodeWatches
}

// Connect begins a pass. A cluster that does not exist, or that has no PKI yet, is no failure: what that means depends on
// the machine.
func (c *connector) Connect(ctx context.Context, mg *v1alpha1.TalosMachine) (managed.TypedExternalClient[*v1alpha1.TalosMachine], error) {
	// The usage of an object that goes matters to nobody. In a namespace that is being deleted nothing can be created, and
	// what nobody allowed to be deleted lives on there and must go on saying what is the matter.
	if !meta.WasDeleted(mg) {
		if err := c.usage.Track(ctx, mg); err != nil && !kerrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil, errors.Wrap(err, "cannot track the usage of the provider config")
		}
	}
	return c.open(ctx, mg)
}

// Disconnect does nothing: connections outlive a pass.
func (c *connector) Disconnect(context.Context) error { return nil }

func (c *connector) open(ctx context.Context, mg *v1alpha1.TalosMachine) (*external, error) {
	e := &external{parts: c.parts}
	if mg.ClusterName() == "" {
		e.shut = errors.New("the machine belongs to no TalosCluster yet")
		return e, nil
	}
	cluster := &v1alpha1.TalosCluster{}
	err := c.kube.Get(ctx, clusterOf(mg), cluster)
	if kerrors.IsNotFound(err) {
		c.nodes.Forget(clusterOf(mg))
		e.shut = errors.Errorf("TalosCluster %q does not exist", mg.ClusterName())
		return e, nil
	}
	if err != nil {
		return nil, errors.Wrap(err, "cannot get the TalosCluster")
	}
	e.cluster = cluster
	doors, err := c.knock(ctx, cluster, meta.WasDeleted(mg))
	if notReady := (*connect.NotReadyError)(nil); errors.As(err, &notReady) {
		e.shut = err
		return e, nil
	}
	if err != nil {
		return nil, errors.Wrap(err, "cannot open the cluster")
	}
	e.doors = doors
	c.watchNodes(cluster, doors) //nolint:contextcheck // The watch outlives the pass.
	return e, nil
}

// watchNodes watches the Nodes of a cluster for as long as the cluster is meant to be there.
func (c *connector) watchNodes(cluster *v1alpha1.TalosCluster, d Doors) {
	key := client.ObjectKeyFromObject(cluster)
	if meta.WasDeleted(cluster) {
		c.nodes.Forget(key)
		return
	}
	api, err := d.Kubernetes()
	if err != nil {
		return // Told of where it matters, by the survey.
	}
	c.nodes.Ensure(key, api)
}
