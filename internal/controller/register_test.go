package controller

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	xpcontroller "github.com/crossplane/crossplane-runtime/v2/pkg/controller"
	"github.com/crossplane/crossplane-runtime/v2/pkg/feature"
	"github.com/crossplane/crossplane-runtime/v2/pkg/gate"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/clusterlock"
	"github.com/maesh/provider-ichor/internal/connect"
	"github.com/maesh/provider-ichor/internal/lab/controlplane"
	"github.com/maesh/provider-ichor/internal/talos"
)

const (
	ns      = "metal"
	cluster = "prod"
)

// never is how often passes repeat by themselves in these tests: whatever happens was woken up by an event.
const never = time.Hour

// A bench is a real API server and the controllers on it.
type bench struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // It is the life of one test.
	client.Client
	api *controlplane.ControlPlane
	// cached is how the controllers read, and diary what they noted down.
	cached client.Reader
	diary  *diary
}

// startBench starts an API server and, before it knows any kind of the provider, the controllers.
func startBench(t *testing.T) *bench {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	t.Cleanup(cancel)
	binaries, err := controlplane.EnsureBinaries(ctx, os.Stderr)
	if err != nil {
		t.Fatalf("cannot build the API server: %v", err)
	}
	api, err := controlplane.Start(ctx, controlplane.Options{Binaries: binaries})
	if err != nil {
		t.Fatalf("cannot start the API server: %v", err)
	}
	t.Cleanup(func() {
		if err := api.Stop(); err != nil {
			t.Errorf("cannot stop the API server: %v", err)
		}
	})
	scheme, err := NewScheme()
	if err != nil {
		t.Fatalf("NewScheme(): %v", err)
	}
	c, err := client.New(api.RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatalf("cannot make a client: %v", err)
	}
	caches, err := CacheOptions(ptr.To(never))
	if err != nil {
		t.Fatalf("CacheOptions(...): %v", err)
	}
	mgr, err := ctrl.NewManager(api.RESTConfig(), ctrl.Options{
		Scheme: scheme, Cache: caches, Client: ClientOptions(), Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		t.Fatalf("cannot create the manager: %v", err)
	}
	d := newDiary()
	startControllers(ctx, t, mgr, d)
	if err := controlplane.InstallCRDs(ctx, api.RESTConfig(), filepath.Join("..", "..", "package", "crds")); err != nil {
		t.Fatalf("cannot install the kinds: %v", err)
	}
	return &bench{t: t, ctx: ctx, Client: c, api: api, cached: mgr.GetClient(), diary: d}
}

func startControllers(ctx context.Context, t *testing.T, mgr ctrl.Manager, d *diary) {
	t.Helper()
	features := &feature.Flags{}
	features.Enable(feature.EnableBetaManagementPolicies)
	pool := talos.NewPool(talos.Options{})
	err := SetupGated(mgr, Options{
		Options: xpcontroller.Options{
			Logger: d, GlobalRateLimiter: d.limiter(), PollInterval: never,
			MaxConcurrentReconciles: 2, Features: features, Gate: new(gate.Gate[schema.GroupVersionKind]),
		},
		Clock: clock.RealClock{}, Wait: never, Pool: pool,
	}, func(err error) { t.Errorf("the controllers could not be added: %v", err) })
	if err != nil {
		t.Fatalf("SetupGated(...): %v", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("the manager failed: %v", err)
		}
		pool.Close()
	})
}

// eventually polls until problem returns nothing.
func (b *bench) eventually(what string, problem func() string) {
	b.t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.NewTimer(45 * time.Second)
	defer deadline.Stop()
	for {
		p := problem()
		if p == "" {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline.C:
			b.t.Fatalf("%s: %s", what, p)
		}
	}
}

func (b *bench) create(o client.Object) {
	b.t.Helper()
	if err := b.Create(b.ctx, o); err != nil {
		b.t.Fatalf("cannot create %T %q: %v", o, o.GetName(), err)
	}
}

// find reads an object; false if it does not exist.
func (b *bench) find(o client.Object, namespace, name string) bool {
	b.t.Helper()
	err := b.Get(b.ctx, types.NamespacedName{Namespace: namespace, Name: name}, o)
	if client.IgnoreNotFound(err) != nil {
		b.t.Fatalf("cannot read %T %q: %v", o, name, err)
	}
	return !kerrors.IsNotFound(err)
}

func (b *bench) cluster() *v1alpha1.TalosCluster {
	b.t.Helper()
	c := &v1alpha1.TalosCluster{}
	if !b.find(c, ns, cluster) {
		b.t.Fatalf("the TalosCluster is gone")
	}
	return c
}

// change an object until nobody else changed it meanwhile.
func (b *bench) change(o client.Object, change func()) {
	b.t.Helper()
	b.eventually("changing "+o.GetName(), func() string {
		b.find(o, o.GetNamespace(), o.GetName())
		change()
		err := b.Update(b.ctx, o)
		if err != nil && !kerrors.IsConflict(err) {
			b.t.Fatalf("cannot update %T %q: %v", o, o.GetName(), err)
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
}

// TestControllersOnARealAPIServer brings a cluster from its PKI to its end. Nothing in it polls: every step is woken up by
// what happened before it.
func TestControllersOnARealAPIServer(t *testing.T) {
	b := startBench(t)
	b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	b.create(&v1alpha1.ClusterProviderConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
		Spec:       v1alpha1.ProviderConfigSpec{Credentials: v1alpha1.ProviderCredentials{Source: xpv2.CredentialsSourceNone}},
	})
	b.create(&v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: cluster},
		Spec: v1alpha1.TalosClusterSpec{
			ManagedResourceSpec: xpv2.ManagedResourceSpec{WriteConnectionSecretToReference: &xpv2.LocalSecretReference{Name: "prod-connection"}},
			ForProvider: v1alpha1.TalosClusterParameters{
				Endpoint: b.api.RESTConfig().Host, ControlPlane: v1alpha1.ControlPlaneParameters{Count: 1},
				Versions:   v1alpha1.ClusterVersions{Talos: "v1.13.9", Kubernetes: "v1.35.4"},
				SecretsRef: &v1alpha1.SecretsBundleReference{Name: b.bundle()},
			},
		},
	})

	b.publishes()
	b.wakesCluster()
	b.wakesUp()
	b.wakesMachines()
	b.remembersLittle()
	b.tearsDown()
}

// publishes: the PKI is made, credentials are published, and the ProviderConfig knows that it is used.
func (b *bench) publishes() {
	b.t.Helper()
	pki := &corev1.Secret{}
	b.eventually("the PKI is made", func() string {
		if !b.find(pki, ns, connect.PKISecretName(cluster)) {
			return "there is no PKI Secret"
		}
		if !slices.Contains(pki.Finalizers, v1alpha1.FinalizerPKI) || len(pki.OwnerReferences) != 0 {
			return fmt.Sprintf("finalizers %v, owners %v", pki.Finalizers, pki.OwnerReferences)
		}
		return ""
	})
	b.eventually("credentials are published", func() string {
		s := &corev1.Secret{}
		b.find(s, ns, "prod-connection")
		for _, k := range []string{"kubeconfig", "talosconfig", "endpoint", "clusterCA"} {
			if len(s.Data[k]) == 0 {
				return "there is no " + k
			}
		}
		return ""
	})
	b.eventually("the ProviderConfig is in use", func() string {
		pc := &v1alpha1.ClusterProviderConfig{}
		if b.find(pc, "", "default"); pc.Status.Users != 1 {
			return fmt.Sprintf("%d users", pc.Status.Users)
		}
		return ""
	})
	b.eventually("the cluster says what it waits for", func() string {
		c := b.cluster()
		if c.Status.AtProvider.ClusterID == "" || c.Status.AtProvider.ClusterID != meta.GetExternalName(c) {
			return fmt.Sprintf("cluster ID %q, external name %q", c.Status.AtProvider.ClusterID, meta.GetExternalName(c))
		}
		if r := c.GetCondition(xpv2.TypeReady); r.Reason != v1alpha1.ReasonAwaitingControlPlanes {
			return fmt.Sprintf("Ready is %s: %s", r.Reason, r.Message)
		}
		return ""
	})
}

// wakesCluster: what happens to the lock of a cluster, or to its PKI, is seen at once. There is no machine yet that could wake
// the cluster instead.
func (b *bench) wakesCluster() {
	b.t.Helper()
	b.comesToRest(v1alpha1.TalosClusterKind, cluster)
	pki := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: connect.PKISecretName(cluster)}}
	b.change(pki, func() { pki.Finalizers = nil })
	b.eventually("the finalizer that keeps the PKI is put back", func() string {
		if b.find(pki, ns, pki.Name); !slices.Contains(pki.Finalizers, v1alpha1.FinalizerPKI) {
			return fmt.Sprintf("finalizers %v", pki.Finalizers)
		}
		return ""
	})
	b.comesToRest(v1alpha1.TalosClusterKind, cluster)
	lease := heldLock("one")
	b.create(lease)
	b.showsHolder("one")
	lease.Spec.HolderIdentity = ptr.To("TalosMachine/two")
	if err := b.Update(b.ctx, lease); err != nil {
		b.t.Fatalf("cannot hand the lock over: %v", err)
	}
	b.showsHolder("two")
	if err := b.Delete(b.ctx, lease); err != nil {
		b.t.Fatalf("cannot delete the Lease: %v", err)
	}
	b.eventually("the lock is shown to be free", func() string {
		if d := b.cluster().Status.AtProvider.Disruption; d != nil {
			return fmt.Sprintf("the disruption is %+v", d)
		}
		return ""
	})
}

// heldLock is the lock of the cluster, held for somebody.
func heldLock(by string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: clusterlock.LeaseName(cluster), Labels: map[string]string{v1alpha1.LabelCluster: cluster}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("TalosMachine/" + by)},
	}
}

func (b *bench) showsHolder(name string) {
	b.t.Helper()
	b.eventually("who holds the lock is shown", func() string {
		if d := b.cluster().Status.AtProvider.Disruption; d == nil || !strings.HasSuffix(d.Holder, "/"+name) {
			return fmt.Sprintf("the disruption is %+v, not %s", d, name)
		}
		return ""
	})
}

// wakesUp: what happens to a machine is seen at once.
func (b *bench) wakesUp() {
	b.t.Helper()
	b.create(&v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cp-1"},
		Spec: v1alpha1.TalosMachineSpec{ForProvider: v1alpha1.TalosMachineParameters{
			ClusterRef: &v1alpha1.ClusterReference{Name: cluster}, Role: v1alpha1.RoleControlPlane, Approved: true,
			Address: "127.0.0.1:1", Install: v1alpha1.MachineInstall{Disk: "/dev/sda"},
		}},
	})
	b.eventually("a machine is counted", func() string {
		if n := b.cluster().Status.AtProvider.ControlPlanes.Approved; n != 1 {
			return fmt.Sprintf("%d control planes are approved", n)
		}
		return ""
	})
	b.eventually("the garbage collector takes the machine after its cluster, and does not hold the cluster up for it", func() string {
		m := &v1alpha1.TalosMachine{}
		b.find(m, ns, "cp-1")
		owners := m.GetOwnerReferences()
		if len(owners) != 1 || owners[0].UID != b.cluster().GetUID() || ptr.Deref(owners[0].BlockOwnerDeletion, false) {
			return fmt.Sprintf("its owners are %+v", owners)
		}
		return ""
	})
}

// tearsDown: the PKI stays while a machine is there, and nothing is left in the end.
func (b *bench) tearsDown() {
	b.t.Helper()
	c := b.cluster()
	if err := b.Delete(b.ctx, c); err != nil {
		b.t.Fatalf("cannot delete the TalosCluster: %v", err)
	}
	removal := func(want xpv2.ConditionReason) func() string {
		return func() string {
			if r := b.cluster().GetCondition(v1alpha1.TypeRemoval); r.Reason != want {
				return fmt.Sprintf("Removal is %s: %s", r.Reason, r.Message)
			}
			return ""
		}
	}
	b.eventually("a delete that nobody allowed is refused", removal("NotAllowed"))
	b.change(c, func() { meta.AddAnnotations(c, map[string]string{v1alpha1.AnnotationAllowDelete: "true"}) })
	b.eventually("the machine is awaited", removal(v1alpha1.ReasonAwaitingMachines))
	pki := &corev1.Secret{}
	if !b.find(pki, ns, connect.PKISecretName(cluster)) || pki.DeletionTimestamp != nil {
		b.t.Fatalf("the PKI did not outlive the machine")
	}

	m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cp-1"}}
	b.change(m, func() {
		m.SetManagementPolicies(xpv2.ManagementPolicies{xpv2.ManagementActionObserve, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate})
	})
	if err := b.Delete(b.ctx, m); err != nil {
		b.t.Fatalf("cannot delete the TalosMachine: %v", err)
	}
	b.eventually("nothing is left", func() string {
		var left []string
		for what, o := range map[string]client.Object{"machine cp-1": m, "PKI " + connect.PKISecretName(cluster): pki, "cluster " + cluster: c} {
			if _, name, _ := strings.Cut(what, " "); b.find(o, ns, name) {
				left = append(left, what)
			}
		}
		slices.Sort(left)
		return strings.Join(left, ", ")
	})
}
