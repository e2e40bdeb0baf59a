package accidents

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"time"

	xpcontroller "github.com/crossplane/crossplane-runtime/v2/pkg/controller"
	"github.com/crossplane/crossplane-runtime/v2/pkg/feature"
	"github.com/crossplane/crossplane-runtime/v2/pkg/gate"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/ratelimiter"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/maesh/provider-ichor/internal/controller"
	"github.com/maesh/provider-ichor/internal/lab/controlplane"
	"github.com/maesh/provider-ichor/internal/talos"
	"github.com/maesh/provider-ichor/internal/webhook"
)

const (
	// poll is how often the provider looks again at what does not change.
	poll = 3 * time.Second
	// pause between two passes that wait. Machines whose waits are scaled need not be waited for as long as real ones.
	pause = time.Second
)

// A hook is where the provider serves its webhooks.
type hook struct {
	at   netip.AddrPort
	ca   []byte
	pair tls.Certificate
}

// prepareProvider makes what the provider needs before it starts: its role and a certificate of its webhooks.
func (w *world) prepareProvider() {
	w.t.Helper()
	w.grant()
	ca, err := controlplane.NewCA("webhook")
	w.must(err)
	port, err := controlplane.ReservePort()
	w.must(err)
	w.t.Cleanup(port.Release)
	w.hook = hook{at: port.Loopback(), ca: ca.Cert}
	leaf, err := ca.Issue(controlplane.Leaf{CommonName: "webhook", IPs: []net.IP{w.hook.at.Addr().AsSlice()}})
	w.must(err)
	w.hook.pair, err = tls.X509KeyPair(leaf.Cert, leaf.Key)
	w.must(err)
	w.installWebhooks()
}

func (w *world) installWebhooks() {
	w.t.Helper()
	w.must(controlplane.InstallValidatingWebhooks(w.ctx, w.api.RESTConfig(), "https://"+w.hook.at.String(), w.hook.ca, root("package", "webhooks.yaml")))
}

// startProvider starts the provider as cmd/provider does, under its own role, unless it runs.
func (w *world) startProvider() {
	w.t.Helper()
	if w.running {
		return
	}
	w.running = true
	scheme, err := controller.NewScheme()
	w.must(err)
	caches, err := controller.CacheOptions(ptr.To(time.Hour))
	w.must(err)
	server := ctrlwebhook.NewServer(ctrlwebhook.Options{
		Host: w.hook.at.Addr().String(), Port: int(w.hook.at.Port()),
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &w.hook.pair, nil }
		}},
	})
	mgr, err := ctrl.NewManager(w.as(user), ctrl.Options{
		Scheme: scheme, Cache: caches, Client: controller.ClientOptions(), WebhookServer: server,
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller:     config.Controller{SkipNameValidation: ptr.To(true)}, // One process plays several.
		LeaderElection: true, LeaderElectionID: "provider-ichor", LeaderElectionNamespace: "default", LeaderElectionReleaseOnCancel: true,
	})
	w.must(err)
	w.must(webhook.Setup(mgr, mgr.GetAPIReader()))
	features := &feature.Flags{}
	features.Enable(feature.EnableBetaManagementPolicies)
	pool := talos.NewPool(talos.Options{})
	w.must(controller.SetupGated(mgr, controller.Options{
		Options: xpcontroller.Options{
			Logger: logging.NewLogrLogger(w.log.logger()), GlobalRateLimiter: ratelimiter.NewGlobal(100), PollInterval: poll,
			MaxConcurrentReconciles: 4, Features: features, Gate: new(gate.Gate[schema.GroupVersionKind]),
		},
		Clock: w.clock, Wait: pause, Pool: pool,
	}, func(err error) { w.t.Errorf("the controllers could not be added: %v", err) }))

	ctx, cancel := context.WithCancel(w.ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(ctx) }()
	w.stop = func() {
		w.running, w.stop = false, func() {}
		cancel()
		if err := <-stopped; err != nil {
			w.t.Errorf("the provider failed: %v", err)
		}
		pool.Close()
	}
	ready := server.StartedChecker()
	w.await("the webhooks are served", func() error { return ready(nil) })
}
