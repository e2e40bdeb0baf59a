package faulttest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	xpcontroller "github.com/crossplane/crossplane-runtime/v2/pkg/controller"
	"github.com/crossplane/crossplane-runtime/v2/pkg/feature"
	"github.com/crossplane/crossplane-runtime/v2/pkg/gate"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/ratelimiter"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/controller"
	"github.com/maesh/provider-ichor/internal/lab/controlplane"
	"github.com/maesh/provider-ichor/internal/simulator"
	"github.com/maesh/provider-ichor/internal/talos"
)

const (
	namespace   = "metal"
	clusterName = "prod"
	connection  = "prod-connection"

	// declared is how many control planes the cluster has, but for those that come and go.
	declared = 3

	// scale makes a minute of Talos one second. Etcd and Kubernetes keep their own pace.
	scale = 60
	// wait is how often the provider looks again at what it waits for.
	wait = 500 * time.Millisecond
	// requestTimeout is how long the provider waits for a machine that does not answer.
	requestTimeout = 3 * time.Second
	// patience bounds the wait for anything at all.
	patience = 90 * time.Second
)

// A world is a management cluster with the provider on it, and machines that can be told to fail.
type world struct {
	t *testing.T
	client.Client
	fleet    *simulator.Fleet
	endpoint string
	nobody   string // an address at which there never is a machine
	told     *record
	etcdSeen *monitor
}

// newWorld starts all of it. The provider runs in this process.
func newWorld(t *testing.T) *world {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	binaries, err := controlplane.EnsureBinaries(ctx, os.Stderr)
	must(t, err)
	w := &world{t: t, told: newRecord(t)}
	subnet := freeSubnet(t)
	w.endpoint = fmt.Sprintf("https://%s", net.JoinHostPort(subnet.Masked().Addr().Next().Next().String(), "6443"))
	w.nobody = netip.AddrFrom4([4]byte{subnet.Addr().As4()[0], subnet.Addr().As4()[1], subnet.Addr().As4()[2], 250}).String()
	options := simulator.Options{Dir: t.TempDir(), Subnet: subnet, Scale: scale, Kubernetes: true, Binaries: binaries}
	if os.Getenv("TALOSSIM_LOG") != "" {
		options.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	w.fleet, err = simulator.NewFleet(options)
	must(t, err)
	t.Cleanup(func() {
		if err := w.fleet.Close(); err != nil {
			t.Error(err)
		}
	})
	api, err := controlplane.Start(ctx, controlplane.Options{Binaries: binaries, Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(func() {
		if err := api.Stop(); err != nil {
			t.Error(err)
		}
	})
	must(t, controlplane.InstallCRDs(ctx, api.RESTConfig(), filepath.Join("..", "..", "package", "crds")))
	scheme, err := controller.NewScheme()
	must(t, err)
	unlimited := api.RESTConfig()
	unlimited.QPS = -1
	w.Client, err = client.New(unlimited, client.Options{Scheme: scheme})
	must(t, err)
	caches, err := controller.CacheOptions(nil)
	must(t, err)
	mgr, err := ctrl.NewManager(api.RESTConfig(), ctrl.Options{
		Scheme: scheme, Cache: caches, Client: controller.ClientOptions(), Metrics: metricsserver.Options{BindAddress: "0"},
	})
	must(t, err)
	startProvider(ctx, t, mgr)
	return w
}

func startProvider(ctx context.Context, t *testing.T, mgr ctrl.Manager) {
	t.Helper()
	features := &feature.Flags{}
	features.Enable(feature.EnableBetaManagementPolicies)
	pool := talos.NewPool(talos.Options{})
	must(t, controller.SetupGated(mgr, controller.Options{
		Options: xpcontroller.Options{
			Logger: logging.NewNopLogger(), GlobalRateLimiter: ratelimiter.NewGlobal(100), PollInterval: time.Second,
			MaxConcurrentReconciles: 8, Features: features, Gate: new(gate.Gate[schema.GroupVersionKind]),
		},
		Clock: clock.RealClock{}, Wait: wait, Pool: pool,
	}, func(err error) { t.Errorf("the controllers could not be added: %v", err) }))
	ctx, cancel := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("the provider failed: %v", err)
		}
		pool.Close()
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// freeSubnet finds a /24 of loopback addresses on which nobody serves a Talos API.
func freeSubnet(t *testing.T) netip.Prefix {
	t.Helper()
	for range 100 {
		a := netip.AddrFrom4([4]byte{127, byte(20 + rand.IntN(200)), byte(rand.IntN(250)), 0})
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(a.Next().String(), talos.Port))
		if err == nil {
			_ = l.Close()
			return netip.PrefixFrom(a, 24)
		}
	}
	t.Fatal("no free subnet")
	return netip.Prefix{}
}

// eventually asks until there is no problem any more.
func (w *world) eventually(what string, problem func(context.Context) error) {
	w.t.Helper()
	if err := ask(problem); err != nil {
		w.t.Fatalf("waited in vain until %s: %v", what, err)
	}
}

// ask until there is no problem any more, or return the last one.
func ask(problem func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	last := errors.New("no answer came in time")
	for {
		err := problem(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err // an answer that did not come in time any more would say nothing
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return last
		}
	}
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	must(w.t, w.Create(context.Background(), o))
}

// declareCluster declares a cluster of so many control planes, with the site's decisions.
func (w *world) declareCluster(controlPlanes int) {
	w.t.Helper()
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	w.create(&v1alpha1.ClusterProviderConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
		Spec: v1alpha1.ProviderConfigSpec{
			Credentials: v1alpha1.ProviderCredentials{Source: xpv2.CredentialsSourceNone},
			Timeouts:    v1alpha1.Timeouts{Request: &metav1.Duration{Duration: requestTimeout}},
		},
	})
	w.create(&v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: clusterName},
		Spec: v1alpha1.TalosClusterSpec{
			ManagedResourceSpec: xpv2.ManagedResourceSpec{WriteConnectionSecretToReference: &xpv2.LocalSecretReference{Name: connection}},
			ForProvider: v1alpha1.TalosClusterParameters{
				Endpoint: w.endpoint, ControlPlane: v1alpha1.ControlPlaneParameters{Count: controlPlanes},
				Versions: v1alpha1.ClusterVersions{Talos: "v1.13.9", Kubernetes: "v1.35.4"},
			},
		},
	})
}

// box is the machine that a TalosMachine of that name is about.
func (w *world) box(name string) *simulator.Machine {
	w.t.Helper()
	if m := w.fleet.Machine(name); m != nil {
		return m
	}
	m, err := w.fleet.AddMachine(simulator.MachineSpec{Name: name})
	must(w.t, err)
	return m
}

// declare an approved machine. The box gets its hostname from its configuration, which is not the name of the object: no
// text may mix the two up.
func (w *world) declare(name string, role v1alpha1.MachineRole, change ...func(*v1alpha1.TalosMachine)) {
	w.t.Helper()
	m := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.TalosMachineSpec{ForProvider: v1alpha1.TalosMachineParameters{
			ClusterRef: &v1alpha1.ClusterReference{Name: clusterName}, Role: role, Approved: true,
			Address: w.box(name).Address().String(), Hostname: hostname(name), Install: v1alpha1.MachineInstall{Disk: "/dev/sda"},
		}},
	}
	for _, c := range change {
		c(m)
	}
	w.create(m)
}

func hostname(name string) string { return "host-of-" + name }

// machine returns an object, or nil once it is gone.
func (w *world) machine(ctx context.Context, name string) (*v1alpha1.TalosMachine, error) {
	m := &v1alpha1.TalosMachine{}
	err := w.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, m)
	if kerrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // gone is an answer
	}
	return m, err
}

func (w *world) cluster(ctx context.Context) (*v1alpha1.TalosCluster, error) {
	c := &v1alpha1.TalosCluster{}
	return c, w.Get(ctx, types.NamespacedName{Namespace: namespace, Name: clusterName}, c)
}

// change an object, again if somebody else did so meanwhile.
func (w *world) change(name string, f func(*v1alpha1.TalosMachine)) {
	w.t.Helper()
	w.eventually("changing "+name, func(ctx context.Context) error {
		m, err := w.machine(ctx, name)
		if err != nil {
			return err
		}
		if m == nil {
			return fmt.Errorf("%s is gone", name)
		}
		f(m)
		return w.Update(ctx, m)
	})
}

// ready waits until machines are what is declared.
func (w *world) ready(names ...string) {
	w.t.Helper()
	for _, name := range names {
		w.eventually(name+" is Ready", func(ctx context.Context) error {
			m, err := w.machine(ctx, name)
			if err != nil {
				return err
			}
			if c := m.GetCondition(xpv2.TypeReady); c.Status != corev1.ConditionTrue {
				return fmt.Errorf("ready is %s: %s (%s; %s)", c.Reason, c.Message, m.GetCondition(xpv2.TypeSynced).Message, m.GetCondition(v1alpha1.TypeReachable).Message)
			}
			return nil
		})
	}
}

// remove a machine as a person does: allow it, then delete it.
func (w *world) remove(name string) {
	w.t.Helper()
	w.change(name, func(m *v1alpha1.TalosMachine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationAllowDelete, "true")
	})
	must(w.t, w.Delete(context.Background(), &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}))
}

// removed waits until a machine is gone, and looks whether it is what it has to be then.
func (w *world) removed(name string) {
	w.t.Helper()
	w.eventually(name+" is gone", func(ctx context.Context) error {
		m, err := w.machine(ctx, name)
		if err != nil {
			return err
		}
		if m != nil {
			c := m.GetCondition(v1alpha1.TypeRemoval)
			return fmt.Errorf("its removal is %s %s: %s", c.Status, c.Reason, c.Message)
		}
		return nil
	})
	if b := w.box(name); b.Stage() != "maintenance" || b.HasPartition("STATE") || b.HasPartition("EPHEMERAL") {
		w.t.Errorf("I4: %s is gone, and its machine is in stage %q, STATE %t, EPHEMERAL %t", name, b.Stage(), b.HasPartition("STATE"), b.HasPartition("EPHEMERAL"))
	}
}

// fault switches faults of a machine on, or off.
func (w *world) fault(name string, on bool, faults ...string) {
	w.t.Helper()
	for _, f := range faults {
		must(w.t, w.box(name).SetFault(f, on))
	}
}

// powerCycle is what a person does at the machine.
func (w *world) powerCycle(name string) {
	b := w.box(name)
	b.PowerOff()
	b.PowerOn()
}

// kubernetes is the cluster's own API, as the connection Secret leads to it.
func (w *world) kubernetes() kubernetes.Interface {
	w.t.Helper()
	var k kubernetes.Interface
	w.eventually("there is a kubeconfig", func(ctx context.Context) error {
		s := &corev1.Secret{}
		if err := w.Get(ctx, types.NamespacedName{Namespace: namespace, Name: connection}, s); err != nil {
			return err
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(s.Data["kubeconfig"])
		if err != nil {
			return err
		}
		k, err = kubernetes.NewForConfig(config)
		return err
	})
	return k
}
