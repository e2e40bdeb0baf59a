package gitops

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/lab/controlplane"
	"github.com/maesh/provider-ichor/internal/lab/flux"
	"github.com/maesh/provider-ichor/internal/webhook"
)

const (
	pollInterval = 50 * time.Millisecond

	// patience is longer than any busy machine should need.
	patience = 3 * time.Minute
)

// startManagement starts a Kubernetes API with our kinds and our webhooks, and Flux on it. The provider itself is not there:
// what Flux does to objects is decided before it sees them.
func startManagement(t *testing.T) client.Client {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	ctx, cancel := contextWithin(t, patience)
	defer cancel()
	binaries, err := controlplane.EnsureBinaries(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	cp, err := controlplane.Start(ctx, controlplane.Options{Binaries: binaries})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopped(t, cp.Stop()) })
	if err := controlplane.InstallCRDs(ctx, cp.RESTConfig(), "../../package/crds"); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	api, err := client.New(cp.RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	serveWebhooks(ctx, t, cp, scheme)
	startFlux(t, cp)
	return api
}

// serveWebhooks serves those of the provider, and tells the API server where.
func serveWebhooks(ctx context.Context, t *testing.T, cp *controlplane.ControlPlane, scheme *runtime.Scheme) {
	t.Helper()
	port, err := controlplane.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	at := port.Loopback()
	ca, err := controlplane.NewCA("webhook")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(controlplane.Leaf{CommonName: "webhook", IPs: []net.IP{at.Addr().AsSlice()}})
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	server := ctrlwebhook.NewServer(ctrlwebhook.Options{
		Host: at.Addr().String(), Port: int(at.Port()),
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil }
		}},
	})
	mgr, err := ctrl.NewManager(cp.RESTConfig(), ctrl.Options{
		Scheme: scheme, WebhookServer: server, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := webhook.Setup(mgr, mgr.GetAPIReader()); err != nil {
		t.Fatal(err)
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(run) }()
	t.Cleanup(func() { cancel(); stopped(t, <-done) })
	ready := server.StartedChecker()
	eventually(t, "the webhook server listens", func(context.Context) (bool, error) { return ready(nil) == nil, nil })
	err = controlplane.InstallValidatingWebhooks(ctx, cp.RESTConfig(), "https://"+at.String(), ca.Cert, "../../package/webhooks.yaml")
	if err != nil {
		t.Fatal(err)
	}
}

// startFlux starts Flux's kustomize-controller.
func startFlux(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	dir := t.TempDir()
	p, err := flux.Start(t.Context(), flux.Options{Config: cp.RESTConfig(), Dir: dir, Out: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Err(); err != nil {
			t.Error(err)
		}
		stopped(t, p.Stop())
		if log, err := os.ReadFile(filepath.Join(dir, "flux.log")); err == nil && t.Failed() {
			t.Logf("the log of kustomize-controller:\n%s", log)
		}
	})
}

func stopped(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("cannot stop what the test started: %v", err)
	}
}

// eventually waits until something is true; what says it as the end of a sentence.
func eventually(t *testing.T, what string, is func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), pollInterval, patience, true, is); err != nil {
		t.Fatalf("cannot wait until %s: %v", what, err)
	}
}
