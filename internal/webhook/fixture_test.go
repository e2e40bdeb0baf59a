package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/lab/controlplane"
)

const (
	pollInterval = 20 * time.Millisecond

	// patience is longer than any busy machine should need.
	patience = time.Minute
)

// One API server and one webhook server serve every test of this package; each test has its own namespace.
var (
	api  client.Client
	hook *webhookServer
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	code, err := runWithAPI(context.Background(), m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(code)
}

func runWithAPI(ctx context.Context, m *testing.M) (code int, err error) {
	binaries, err := controlplane.EnsureBinaries(ctx, os.Stderr)
	if err != nil {
		return 0, err
	}
	start, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	cp, err := controlplane.Start(start, controlplane.Options{Binaries: binaries})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, cp.Stop()) }()
	if err := controlplane.InstallCRDs(start, cp.RESTConfig(), "../../package/crds"); err != nil {
		return 0, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return 0, err
	}
	if api, err = client.New(cp.RESTConfig(), client.Options{Scheme: scheme}); err != nil {
		return 0, err
	}
	port, err := controlplane.ReservePort()
	if err != nil {
		return 0, err
	}
	defer port.Release()
	ca, err := controlplane.NewCA("webhook")
	if err != nil {
		return 0, err
	}
	hook = &webhookServer{at: port.Loopback(), ca: ca, config: cp.RESTConfig(), scheme: scheme}
	if err := hook.start(start); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, hook.stop()) }()
	err = controlplane.InstallValidatingWebhooks(start, cp.RESTConfig(), "https://"+hook.at.String(), ca.Cert, "../../package/webhooks.yaml")
	if err != nil {
		return 0, err
	}
	if err := awaitWebhooks(start); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// awaitWebhooks waits until the API server asks the webhooks: it learns of them a moment after they are installed.
func awaitWebhooks(ctx context.Context) error {
	machine, cluster := newMachine("default", "canary"), newCluster("default", "canary", 1)
	if err := errors.Join(api.Create(ctx, machine), api.Create(ctx, cluster)); err != nil {
		return err
	}
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		m, c := api.Delete(ctx, machine, client.DryRunAll), api.Delete(ctx, cluster, client.DryRunAll)
		return m != nil && c != nil, nil
	})
	if err != nil {
		return fmt.Errorf("cannot wait until the API server asks the webhooks: %w", err)
	}
	return nil
}

// A webhookServer is a manager with nothing but the webhooks. It can be stopped and started again at the same address.
type webhookServer struct {
	at     netip.AddrPort
	ca     controlplane.KeyPair
	config *rest.Config
	scheme *runtime.Scheme

	cancel context.CancelFunc
	done   chan error
}

func (s *webhookServer) start(ctx context.Context) error {
	pair, err := s.ca.Issue(controlplane.Leaf{CommonName: "webhook", IPs: []net.IP{s.at.Addr().AsSlice()}})
	if err != nil {
		return err
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return err
	}
	server := ctrlwebhook.NewServer(ctrlwebhook.Options{
		Host: s.at.Addr().String(),
		Port: int(s.at.Port()),
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil }
		}},
	})
	mgr, err := ctrl.NewManager(s.config, ctrl.Options{
		Scheme: s.scheme, WebhookServer: server, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	if err != nil {
		return err
	}
	if err := Setup(mgr, mgr.GetAPIReader()); err != nil {
		return err
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel, s.done = cancel, make(chan error, 1)
	go func() { s.done <- mgr.Start(run) }()
	ready := server.StartedChecker()
	err = wait.PollUntilContextTimeout(ctx, pollInterval, patience, true, func(context.Context) (bool, error) { return ready(nil) == nil, nil })
	if err != nil {
		return errors.Join(fmt.Errorf("cannot wait until the webhook server listens: %w", err), s.stop())
	}
	return nil
}

// stop returns when nothing listens any more.
func (s *webhookServer) stop() error {
	s.cancel()
	return <-s.done
}

// newNamespace is a namespace of the test's own.
func newNamespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	create(t, ns)
	return ns.GetName()
}

// newCluster is a TalosCluster that every rule accepts.
func newCluster(namespace, name string, count int, changes ...func(*v1alpha1.TalosCluster)) *v1alpha1.TalosCluster {
	c := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	c.Spec.ForProvider = v1alpha1.TalosClusterParameters{
		Endpoint:     "https://192.0.2.10:6443",
		ControlPlane: v1alpha1.ControlPlaneParameters{Count: count},
		Versions:     v1alpha1.ClusterVersions{Talos: "v1.13.9", Kubernetes: "v1.35.4"},
	}
	for _, change := range changes {
		change(c)
	}
	return c
}

// machines counts those made so far, so that each has an address of its own: an address is taken once in all namespaces.
var machines atomic.Uint32

// newMachine is an approved control plane of the cluster "prod" that every rule accepts.
func newMachine(namespace, name string, changes ...func(*v1alpha1.TalosMachine)) *v1alpha1.TalosMachine {
	n := machines.Add(1)
	m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	m.Spec.ForProvider = v1alpha1.TalosMachineParameters{
		ClusterRef: &v1alpha1.ClusterReference{Name: "prod"},
		Role:       v1alpha1.RoleControlPlane,
		Approved:   true,
		Address:    netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}).String(),
		Install:    v1alpha1.MachineInstall{Disk: "/dev/sda"},
	}
	for _, change := range changes {
		change(m)
	}
	return m
}

func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := api.Create(t.Context(), o); err != nil {
			t.Fatalf("cannot create %q: %v", o.GetName(), err)
		}
	}
}

// expectRefusal checks that something was refused in words that say all that a person needs.
func expectRefusal(t *testing.T, err error, says ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("admitted, want a refusal that says %q", says)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("the refusal does not say %q:\n%v", s, err)
		}
	}
}

func expectAdmitted(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("refused: %v", err)
	}
}
