package talosmachine

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/controller"
	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/feature"
	"github.com/crossplane/crossplane-runtime/v2/pkg/ratelimiter"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/crossplane-runtime/v2/pkg/statemetrics"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/act"
	"github.com/maesh/provider-ichor/internal/connect"
	"github.com/maesh/provider-ichor/internal/controller/waiting"
	"github.com/maesh/provider-ichor/internal/disruption"
	"github.com/maesh/provider-ichor/internal/survey"
)

const (
	// unreadyPoll is how often a machine that is not ready is looked at: installing and joining take minutes, and a
	// person watches.
	unreadyPoll = 15 * time.Second

	// pollJitter keeps the machines of a large fleet from being asked all at once. A part of the poll interval.
	pollJitter = 0.1
)

// Options of the controller.
type Options struct {
	controller.Options

	// Clock of everything that takes the time.
	Clock clock.PassiveClock
	// Wait is how long a pass that waits is put off; waiting.Interval if it is not positive.
	Wait time.Duration
	// Survey reads what is decided on, and single machines.
	Survey *survey.Surveyor
	// Gate to the locks of clusters.
	Gate *disruption.Gate
	// Connect opens clusters.
	Connect *connect.Connector
}

// Setup adds a controller that reconciles TalosMachines.
func Setup(mgr ctrl.Manager, o Options) error {
	name := managed.ControllerName(v1alpha1.TalosMachineGroupKind.String())
	background := act.NewBackground()
	nodes := newNodeWatches(mgr.GetClient())
	for _, r := range []interface {
		Start(ctx context.Context) error
	}{background, nodes} {
		if err := mgr.Add(r); err != nil {
			return errors.Wrap(err, "cannot add a runnable of the TalosMachine controller")
		}
	}

	// The provider's role grants events of the core API only.
	record := waiting.NewRecorder(event.NewAPIRecorder(mgr.GetEventRecorderFor(name)), o.Clock) //nolint:staticcheck // See above.
	hints := waiting.NewHints(o.Wait)
	noticing := hints.Manager(mgr)
	c := &connector{
		parts: parts{
			kube:   noticing.GetClient(),
			reader: mgr.GetAPIReader(),
			survey: o.Survey,
			gate:   o.Gate,
			actor:  act.New(noticing.GetClient(), o.Clock, background),
			hints:  hints,
			marker: &marker{record: record, clock: o.Clock},
			rest:   o.PollInterval + o.PollInterval/4,
		},
		usage: resource.NewProviderConfigUsageTracker(mgr.GetClient(), &v1alpha1.ProviderConfigUsage{}),
		knock: knock(o.Connect, o.Survey),
		nodes: nodes,
	}
	r := managed.NewReconciler(noticing, resource.ManagedKind(v1alpha1.TalosMachineGroupVersionKind), reconcilerOptions(noticing, o, name, c, record)...)
	if err := addStateMetrics(mgr, o); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(name).
		WithOptions(o.ForControllerRuntime()).
		For(&v1alpha1.TalosMachine{}, builder.WithPredicates(resource.DesiredStateChanged())).
		Watches(&v1alpha1.TalosCluster{}, ofCluster(mgr.GetClient()), builder.WithPredicates(resource.DesiredStateChanged())).
		Watches(&coordinationv1.Lease{}, waitingForLock(mgr.GetClient()), builder.WithPredicates(released())).
		WatchesRawSource(source.Channel(nodes.events, &handler.EnqueueRequestForObject{})).
		Complete(ratelimiter.NewReconciler(name, waiting.Wrap(r, hints), o.GlobalRateLimiter))
}

func reconcilerOptions(mgr ctrl.Manager, o Options, name string, c *connector, record event.Recorder) []managed.ReconcilerOption {
	f := &finalizer{
		parts:     c.parts,
		api:       resource.NewAPIFinalizer(mgr.GetClient(), v1alpha1.FinalizerMachine),
		connector: c,
	}
	opts := []managed.ReconcilerOption{
		managed.WithTypedExternalConnector[*v1alpha1.TalosMachine](c),
		managed.WithFinalizer(f),
		managed.WithInitializers(&initializer{kube: mgr.GetClient()}),
		// A machine is known by its UUID and adopted by its configuration, so a pass that ended in the middle of Create
		// leaves nothing behind that the next one would not find.
		managed.WithDeterministicExternalName(true),
		managed.WithLogger(o.Logger.WithValues("controller", name)),
		managed.WithRecorder(record),
		managed.WithPollInterval(o.PollInterval),
		managed.WithPollIntervalHook(pollInterval),
	}
	if o.Features.Enabled(feature.EnableBetaManagementPolicies) {
		opts = append(opts, managed.WithManagementPolicies())
	}
	if o.MetricOptions != nil && o.MetricOptions.MRMetrics != nil {
		opts = append(opts, managed.WithMetricRecorder(o.MetricOptions.MRMetrics))
	}
	return opts
}

func addStateMetrics(mgr ctrl.Manager, o Options) error {
	if o.MetricOptions == nil || o.MetricOptions.MRStateMetrics == nil {
		return nil
	}
	r := statemetrics.NewMRStateRecorder(mgr.GetClient(), o.Logger, o.MetricOptions.MRStateMetrics, &v1alpha1.TalosMachineList{}, o.MetricOptions.PollStateMetricInterval)
	return errors.Wrap(mgr.Add(r), "cannot register the state metrics of TalosMachines")
}

// pollInterval is how long after this pass a machine is looked at again.
func pollInterval(mg resource.Managed, poll time.Duration) time.Duration {
	if mg.GetCondition(xpv2.TypeReady).Status != "True" {
		return min(poll, unreadyPoll)
	}
	return poll + time.Duration((rand.Float64()*2-1)*pollJitter*float64(poll))
}
