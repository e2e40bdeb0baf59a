package gitops

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	"github.com/maesh/provider-ichor/internal/lab/tools"
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
	programs, err := tools.Ensure(t.Context(), os.Stderr, tools.KustomizeController)
	if err != nil {
		t.Fatal(err)
	}
	cp, err := controlplane.Start(ctx, controlplane.Options{Binaries: binaries})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopped(t, cp.Stop()) })
	err = controlplane.InstallCRDs(ctx, cp.RESTConfig(), "../../package/crds", "testdata", filepath.Join(sourceOf(t, tools.KustomizeController), "config", "crd"))
	if err != nil {
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
	startFlux(t, cp, programs[tools.KustomizeController.Name])
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

// startFlux starts Flux's kustomize-controller. It listens nowhere.
func startFlux(t *testing.T, cp *controlplane.ControlPlane, binary string) {
	t.Helper()
	dir := t.TempDir()
	kubeconfig, err := cp.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := controlplane.StartProcess(controlplane.Command{
		Name: "kustomize-controller", Path: binary, Log: filepath.Join(dir, "log"),
		Args: []string{"--metrics-addr=0", "--health-addr=0", "--requeue-dependency=1s", "--min-retry-delay=100ms", "--max-retry-delay=1s"},
		Env:  []string{"KUBECONFIG=" + path, "TMPDIR=" + dir},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Err(); err != nil {
			t.Error(err)
		}
		stopped(t, p.Stop())
		if log, err := os.ReadFile(filepath.Join(dir, "log")); err == nil && t.Failed() {
			t.Logf("the log of kustomize-controller:\n%s", log)
		}
	})
}

// sourceOf is the directory of the module that a tool is built from.
func sourceOf(t *testing.T, tool tools.Tool) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", tool.Module)
	cmd.Dir = filepath.Join("..", "..", tool.Dir)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("cannot find the source of %s: %v", tool.Name, err)
	}
	return strings.TrimSpace(string(out))
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
