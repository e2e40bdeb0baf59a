package taloscluster

import (
	"context"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/controller"
	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/feature"
	"github.com/crossplane/crossplane-runtime/v2/pkg/ratelimiter"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/crossplane-runtime/v2/pkg/statemetrics"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/act"
	"github.com/maesh/provider-ichor/internal/connect"
	"github.com/maesh/provider-ichor/internal/controller/waiting"
	"github.com/maesh/provider-ichor/internal/disruption"
	"github.com/maesh/provider-ichor/internal/survey"
)

// Options of the controller of TalosClusters.
type Options struct {
	controller.Options

	// Clock of everything that takes the time.
	Clock clock.PassiveClock
	// Wait is how long a pass that waits is put off; waiting.Interval if it is not positive.
	Wait time.Duration
	// Survey reads what is decided on.
	Survey *survey.Surveyor
	// Gate to the locks of clusters.
	Gate *disruption.Gate
	// Connect opens clusters.
	Connect *connect.Connector
}

// Setup adds a controller that reconciles TalosClusters.
func Setup(mgr ctrl.Manager, o Options) error {
	controllerName := managed.ControllerName(v1alpha1.TalosClusterGroupKind.String())
	record := waiting.NewRecorder(event.NewAPIRecorder(mgr.GetEventRecorderFor(controllerName)), o.Clock) //nolint:staticcheck // Crossplane grants providers core events, not those of events.k8s.io.
	hints := waiting.NewHints(o.Wait)
	noticing := hints.Manager(mgr)
	conn := &connector{
		usage: resource.NewProviderConfigUsageTracker(mgr.GetClient(), &v1alpha1.ProviderConfigUsage{}),
		open:  opener{o.Connect},
		with: external{
			kube:     noticing.GetClient(),
			uncached: mgr.GetAPIReader(),
			keeper:   &keeper{kube: mgr.GetClient(), uncached: mgr.GetAPIReader()},
			survey:   o.Survey,
			locks:    locks{o.Gate},
			actor:    act.New(noticing.GetClient(), o.Clock, act.NewBackground()),
			clock:    o.Clock,
			record:   record,
			hints:    hints,
		},
	}
	r := managed.NewReconciler(noticing, resource.ManagedKind(v1alpha1.TalosClusterGroupVersionKind), reconcilerOptions(noticing.GetClient(), o, conn, record)...)
	if err := addStateMetrics(mgr, o); err != nil {
		return err
	}
	return errors.Wrap(ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		WithOptions(o.ForControllerRuntime()).
		For(&v1alpha1.TalosCluster{}, builder.WithPredicates(resource.DesiredStateChanged())).
		Watches(&v1alpha1.TalosMachine{}, handler.EnqueueRequestsFromMapFunc(clusterOfMachine)).
		Watches(&coordinationv1.Lease{}, handler.EnqueueRequestsFromMapFunc(clusterOfLabel), builder.WithPredicates(holderChanged())).
		// Metadata only: no key ever gets into a cache.
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(clusterOfLabel)).
		Complete(ratelimiter.NewReconciler(controllerName, waiting.Wrap(r, hints), o.GlobalRateLimiter)), "cannot set up the controller of TalosClusters")
}

func addStateMetrics(mgr ctrl.Manager, o Options) error {
	if o.MetricOptions == nil || o.MetricOptions.MRStateMetrics == nil {
		return nil
	}
	states := statemetrics.NewMRStateRecorder(mgr.GetClient(), o.Logger, o.MetricOptions.MRStateMetrics, &v1alpha1.TalosClusterList{}, o.MetricOptions.PollStateMetricInterval)
	return errors.Wrap(mgr.Add(states), "cannot record the states of TalosClusters")
}

func reconcilerOptions(kube client.Client, o Options, conn *connector, record event.Recorder) []managed.ReconcilerOption {
	opts := []managed.ReconcilerOption{
		managed.WithTypedExternalConnector[*v1alpha1.TalosCluster](conn),
		managed.WithFinalizer(resource.NewAPIFinalizer(kube, v1alpha1.FinalizerCluster)),
		// The external name is the ID of the cluster, which the PKI decides. A create that died half-way finds its PKI
		// again, so that it never has to be asked what became of it.
		managed.WithInitializers(),
		managed.WithDeterministicExternalName(true),
		// The PKI is read back from the API server, which does not forget for a while what it was told.
		managed.WithCreationGracePeriod(0),
		managed.WithPollInterval(o.PollInterval),
		managed.WithPollJitterHook(o.PollInterval / 10),
		managed.WithLogger(o.Logger.WithValues("controller", managed.ControllerName(v1alpha1.TalosClusterGroupKind.String()))),
		managed.WithRecorder(record),
	}
	if o.Features.Enabled(feature.EnableBetaManagementPolicies) {
		opts = append(opts, managed.WithManagementPolicies())
	}
	if o.MetricOptions != nil && o.MetricOptions.MRMetrics != nil {
		opts = append(opts, managed.WithMetricRecorder(o.MetricOptions.MRMetrics))
	}
	return opts
}

// clusterOfMachine maps a TalosMachine to the TalosCluster that it belongs to.
func clusterOfMachine(_ context.Context, o client.Object) []reconcile.Request {
	m, ok := o.(*v1alpha1.TalosMachine)
	if !ok || m.ClusterName() == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: m.GetNamespace(), Name: m.ClusterName()}}}
}

// clusterOfLabel maps a Secret or a Lease to the TalosCluster that its label names.
func clusterOfLabel(_ context.Context, o client.Object) []reconcile.Request {
	cluster := o.GetLabels()[v1alpha1.LabelCluster]
	if cluster == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: cluster}}}
}

// holderChanged lets a Lease through when it got another holder or none, and not whenever it is renewed.
func holderChanged() predicate.Predicate {
	holder := func(o client.Object) string {
		l, ok := o.(*coordinationv1.Lease)
		if !ok || l.Spec.HolderIdentity == nil {
			return ""
		}
		return *l.Spec.HolderIdentity
	}
	return predicate.Funcs{
		UpdateFunc: func(e ctrlevent.UpdateEvent) bool { return holder(e.ObjectOld) != holder(e.ObjectNew) },
	}
}
