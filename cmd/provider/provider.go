package main

import (
	"context"
	"net/http"
	"time"

	xpcontroller "github.com/crossplane/crossplane-runtime/v2/pkg/controller"
	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"github.com/crossplane/crossplane-runtime/v2/pkg/feature"
	"github.com/crossplane/crossplane-runtime/v2/pkg/gate"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/ratelimiter"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/statemetrics"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/maesh/provider-ichor/internal/controller"
	"github.com/maesh/provider-ichor/internal/metrics"
	"github.com/maesh/provider-ichor/internal/talos"
	"github.com/maesh/provider-ichor/internal/webhook"
)

const (
	leaseDuration = 60 * time.Second
	// renewDeadline is long: a leader that is lost only because the API server is slow starts everything anew.
	renewDeadline = 50 * time.Second

	// syncTimeout bounds a readiness check.
	syncTimeout = 2 * time.Second
)

// A provider is everything that runs.
type provider struct {
	mgr  ctrl.Manager
	pool *talos.Pool
}

// newProvider puts everything together. Nothing runs yet. What fails later is told to failed.
func newProvider(ctx context.Context, f *flags, log logging.Logger, failed context.CancelCauseFunc) (*provider, error) {
	cfg, err := restConfig(f)
	if err != nil {
		return nil, errors.Wrap(err, "cannot find the management cluster")
	}
	mgr, err := newManager(cfg, f)
	if err != nil {
		return nil, err
	}
	options, err := controllerOptions(f, log)
	if err != nil {
		return nil, err
	}
	if err := setupControllers(ctx, mgr, options, failed); err != nil {
		options.Pool.Close()
		return nil, err
	}
	if err := setupEndpoints(mgr, f); err != nil {
		options.Pool.Close()
		return nil, err
	}
	return &provider{mgr: mgr, pool: options.Pool}, nil
}

func restConfig(f *flags) (*rest.Config, error) {
	cfg, err := ctrl.GetConfig()
	if f.kubeconfig != "" {
		cfg, err = clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	}
	if err != nil {
		return nil, err
	}
	return ratelimiter.LimitRESTConfig(cfg, f.maxReconcileRate), nil
}

func newManager(cfg *rest.Config, f *flags) (ctrl.Manager, error) {
	scheme, err := controller.NewScheme()
	if err != nil {
		return nil, err
	}
	caches, err := controller.CacheOptions(&f.sync)
	if err != nil {
		return nil, err
	}
	lease, renew := leaseDuration, renewDeadline
	o := ctrl.Options{
		Scheme: scheme,
		Cache:  caches,
		Client: controller.ClientOptions(),

		LeaderElection:             f.leaderElection,
		LeaderElectionID:           "crossplane-leader-election-provider-ichor",
		LeaderElectionNamespace:    f.namespace,
		LeaderElectionResourceLock: "leases",
		LeaseDuration:              &lease,
		RenewDeadline:              &renew,
		// The process ends right after the manager has stopped, so that the next one need not wait for the Lease to expire.
		LeaderElectionReleaseOnCancel: true,

		Metrics:                metricsserver.Options{BindAddress: f.metricsAddress},
		HealthProbeBindAddress: f.healthAddress,
	}
	if f.webhookCertDir != "" {
		o.WebhookServer = ctrlwebhook.NewServer(ctrlwebhook.Options{Host: f.webhookHost, Port: f.webhookPort, CertDir: f.webhookCertDir})
	}
	mgr, err := ctrl.NewManager(cfg, o)
	return mgr, errors.Wrap(err, "cannot create the manager")
}

func controllerOptions(f *flags, log logging.Logger) (controller.Options, error) {
	mrMetrics, states := managed.NewMRMetricRecorder(), statemetrics.NewMRStateMetrics()
	if err := errors.Join(ctrlmetrics.Registry.Register(mrMetrics), ctrlmetrics.Registry.Register(states), metrics.Register(ctrlmetrics.Registry)); err != nil {
		return controller.Options{}, errors.Wrap(err, "cannot register metrics")
	}
	features := &feature.Flags{}
	features.Enable(feature.EnableBetaManagementPolicies)
	return controller.Options{
		Options: xpcontroller.Options{
			Logger:                  log,
			GlobalRateLimiter:       ratelimiter.NewGlobal(f.maxReconcileRate),
			PollInterval:            f.poll,
			MaxConcurrentReconciles: f.maxReconcileRate,
			Features:                features,
			Gate:                    new(gate.Gate[schema.GroupVersionKind]),
			MetricOptions: &xpcontroller.MetricOptions{
				PollStateMetricInterval: f.pollStateMetric,
				MRMetrics:               mrMetrics,
				MRStateMetrics:          states,
			},
		},
		Clock: clock.RealClock{},
		Wait:  f.wait,
		Pool:  talos.NewPool(talos.Options{}),
	}, nil
}

// setupControllers adds the controllers, as soon as their kinds exist if the provider may watch for that.
func setupControllers(ctx context.Context, mgr ctrl.Manager, o controller.Options, failed context.CancelCauseFunc) error {
	gated, err := mayWatchKinds(ctx, mgr.GetClient(), reviewTimeout)
	if err != nil {
		return err
	}
	if !gated {
		o.Logger.Info("Not allowed to watch CustomResourceDefinitions: starting every controller at once")
		return controller.Setup(mgr, o)
	}
	return controller.SetupGated(mgr, o, func(err error) { failed(err) })
}

// setupEndpoints adds the webhooks and the checks of health and readiness.
func setupEndpoints(mgr ctrl.Manager, f *flags) error {
	err := errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("caches", func(r *http.Request) error {
			ctx, cancel := context.WithTimeout(r.Context(), syncTimeout)
			defer cancel()
			if !mgr.GetCache().WaitForCacheSync(ctx) {
				return errors.New("caches are not filled yet")
			}
			return nil
		}),
	)
	if err != nil {
		return errors.Wrap(err, "cannot add health checks")
	}
	if f.webhookCertDir == "" {
		return nil
	}
	if err := webhook.Setup(mgr, mgr.GetAPIReader()); err != nil {
		return errors.Wrap(err, "cannot set up the webhooks")
	}
	return errors.Wrap(mgr.AddReadyzCheck("webhook", mgr.GetWebhookServer().StartedChecker()), "cannot add the check of the webhooks")
}
