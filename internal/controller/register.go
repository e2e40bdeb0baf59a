// Package controller wires the controllers of every kind to one manager. It must never decide or do anything itself: it
// is where the parts are put together, for the provider and for tests alike.
package controller

import (
	"context"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/controller"
	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/customresourcesgate"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/clusterlock"
	"github.com/maesh/provider-ichor/internal/connect"
	"github.com/maesh/provider-ichor/internal/controller/providerconfig"
	"github.com/maesh/provider-ichor/internal/controller/taloscluster"
	"github.com/maesh/provider-ichor/internal/controller/talosmachine"
	"github.com/maesh/provider-ichor/internal/disruption"
	"github.com/maesh/provider-ichor/internal/survey"
	"github.com/maesh/provider-ichor/internal/talos"
)

// Options of all controllers.
type Options struct {
	controller.Options

	// Clock that every controller reads.
	Clock clock.WithTicker

	// Wait is how long a pass that waits is put off; waiting.Interval if zero.
	Wait time.Duration

	// Pool of connections to machines. It is closed by whoever made it, after the manager has stopped.
	Pool *talos.Pool
}

// NewScheme returns a scheme with every kind that the provider reads or writes.
func NewScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, errors.Wrap(err, "cannot build the scheme")
		}
	}
	return s, nil
}

// CacheOptions keep the caches of a manager small and free of secrets: of Secrets (metadata only) and Leases, only those
// of our clusters are watched, and not the heartbeats of every node of the management cluster.
func CacheOptions(sync *time.Duration) (cache.Options, error) {
	ours, err := labels.NewRequirement(v1alpha1.LabelCluster, selection.Exists, nil)
	if err != nil {
		return cache.Options{}, errors.Wrap(err, "cannot select the Secrets and Leases of clusters")
	}
	selector := labels.NewSelector().Add(*ours)
	return cache.Options{
		SyncPeriod:       sync,
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}:                            {Label: selector},
			&coordinationv1.Lease{}:                     {Label: selector},
			&apiextensionsv1.CustomResourceDefinition{}: {Transform: customresourcesgate.TransformStripCRDSchema},
		},
	}, nil
}

// ClientOptions make the client of a manager read afresh what must not be cached: a Get of one Secret would otherwise
// bring every Secret of the cluster into memory.
func ClientOptions() client.Options {
	return client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{
		&corev1.Secret{}, &coordinationv1.Lease{},
	}}}
}

// SetupGated adds the controllers as soon as all of their kinds exist in the API server: with Crossplane's safe start,
// they appear when somebody activates them. A failure to add them is told to failed, since nobody waits for it.
func SetupGated(mgr ctrl.Manager, o Options, failed func(error)) error {
	if err := customresourcesgate.Setup(mgr, controller.Options{Logger: o.Logger, Gate: o.Gate, MaxConcurrentReconciles: 1}); err != nil {
		return errors.Wrap(err, "cannot watch for the kinds of the provider")
	}
	o.Gate.Register(func() {
		if err := Setup(mgr, o); err != nil {
			failed(err)
		}
	}, kinds()...)
	return nil
}

// kinds are those without which no controller can run.
func kinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		v1alpha1.TalosClusterGroupVersionKind,
		v1alpha1.TalosMachineGroupVersionKind,
		v1alpha1.ProviderConfigGroupVersionKind,
		v1alpha1.ClusterProviderConfigGroupVersionKind,
		v1alpha1.ProviderConfigUsageGroupVersionKind,
	}
}

// Setup adds the controllers of every kind to a manager.
func Setup(mgr ctrl.Manager, o Options) error {
	uncached := mgr.GetAPIReader()
	gate := disruption.NewGate(newLocks(mgr.GetClient(), uncached, o.Clock), uncached)
	connector := connect.New(uncached, o.Pool, o.Clock)
	surveyor := survey.New(uncached, connector, o.Clock).WithCache(mgr.GetClient())

	if err := providerconfig.Setup(mgr, o.Options); err != nil {
		return err
	}
	if err := taloscluster.Setup(mgr, taloscluster.Options{
		Options: o.Options, Clock: o.Clock, Wait: o.Wait, Survey: surveyor, Gate: gate, Connect: connector,
	}); err != nil {
		return err
	}
	return talosmachine.Setup(mgr, talosmachine.Options{
		Options: o.Options, Clock: o.Clock, Wait: o.Wait, Survey: surveyor, Gate: gate, Connect: connector,
	})
}

// newLocks returns the locks of our clusters: each Lease has a label by which it is watched, and none is held for what is gone.
func newLocks(c client.Client, uncached client.Reader, clk clock.WithTicker) *clusterlock.Locks {
	return clusterlock.New(c, uncached, clk, clusterlock.WithLabels(leaseLabels), clusterlock.WithHolderGone(holderGone(uncached)))
}

// leaseLabels are the labels by which the Leases of our clusters are watched and no others.
func leaseLabels(lease types.NamespacedName) map[string]string {
	return map[string]string{v1alpha1.LabelCluster: clusterlock.ClusterName(lease.Name)}
}

// holderGone tells whether the object that a lock is held for is gone for good: it, or what has its name, has another UID.
// A kind that is not ours is never said to be gone.
func holderGone(uncached client.Reader) func(ctx context.Context, namespace string, h clusterlock.Holder) (bool, error) {
	return func(ctx context.Context, namespace string, h clusterlock.Holder) (bool, error) {
		var o client.Object
		switch h.Kind {
		case v1alpha1.TalosMachineKind:
			o = &v1alpha1.TalosMachine{}
		case v1alpha1.TalosClusterKind:
			o = &v1alpha1.TalosCluster{}
		default:
			return false, nil
		}
		err := uncached.Get(ctx, types.NamespacedName{Namespace: namespace, Name: h.Name}, o)
		if kerrors.IsNotFound(err) {
			return true, nil
		}
		if err != nil {
			return false, errors.Wrapf(err, "cannot look for %s %q", h.Kind, h.Name)
		}
		return o.GetUID() != h.UID, nil
	}
}
