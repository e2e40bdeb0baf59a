package talosmachine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/controller"
	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/feature"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/fake"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/act"
	"github.com/maesh/provider-ichor/internal/clusterlock"
	"github.com/maesh/provider-ichor/internal/controller/lagging"
	"github.com/maesh/provider-ichor/internal/controller/waiting"
	"github.com/maesh/provider-ichor/internal/disruption"
	"github.com/maesh/provider-ichor/internal/survey"
)

const (
	namespace   = "metal"
	clusterName = "prod"

	// poll is how often what rests is looked at: as nothing else is.
	poll = 7 * time.Minute
)

// A bench is a world with a management cluster and one process that works on it. The process can be restarted.
type bench struct {
	*world
	mgmt  client.Client
	clock *testclock.FakeClock
	// mgmtErr is what the API server of the management cluster answers to everything, if set.
	mgmtErr error

	// onDeath is what happens besides when the process ends for the first time.
	onDeath func()
	// history knows what was written, and before how much of it before the last pass; behind is true if processes that begin have
	// a cache that is one write behind: what was written in the last pass shows as it was before.
	history *lagging.History
	before  int
	behind  bool

	process
	// twin, if there is one, is a second process that passes over a machine after each pass of the first.
	twin *process
}

// A process is all that is in the memory of one provider.
type process struct {
	reconciler reconcile.Reconciler
	background *act.Background
	survey     *survey.Surveyor
	conn       *connector
	final      *finalizer
	cache      *lagging.Cache // nil if the process reads everything as it is
}

// newBench returns a world with the given control planes and workers, declared and approved.
func newBench(t *testing.T, declared int, controlPlanes, workers []string) *bench {
	t.Helper()
	// After any time that the fake API server takes from the real clock, such as that of a deletion.
	b := &bench{world: newWorld(t), history: lagging.NewHistory(), clock: testclock.NewFakeClock(time.Date(2126, 1, 2, 3, 4, 5, 0, time.UTC))}
	// No more than is needed: the fake client goes through all kinds of the scheme at each write.
	s := runtime.NewScheme()
	s.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Secret{}, &corev1.SecretList{})
	s.AddKnownTypes(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{}, &coordinationv1.LeaseList{})
	b.must(v1alpha1.SchemeBuilder.AddToScheme(s))
	b.mgmt = clientfake.NewClientBuilder().WithScheme(s).
		WithStatusSubresource(&v1alpha1.TalosMachine{}, &v1alpha1.TalosCluster{}).
		WithInterceptorFuncs(b.counting()).Build()

	b.must(b.mgmt.Create(context.Background(), &v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: clusterName, UID: "cluster",
			Finalizers:  []string{v1alpha1.FinalizerCluster},
			Annotations: map[string]string{v1alpha1.AnnotationBootstrapped: "00000000-0000-4000-8000-000000000001"},
		},
		Spec: v1alpha1.TalosClusterSpec{
			ManagedResourceSpec: xpv2.ManagedResourceSpec{ManagementPolicies: xpv2.ManagementPolicies{xpv2.ManagementActionAll}},
			ForProvider: v1alpha1.TalosClusterParameters{
				Endpoint:     "https://192.0.2.100:6443",
				ControlPlane: v1alpha1.ControlPlaneParameters{Count: declared},
				Versions:     v1alpha1.ClusterVersions{Talos: "v1.13.9", Kubernetes: "v1.35.4"},
			},
		},
	}))
	for _, name := range controlPlanes {
		b.declare(b.join(name, true), v1alpha1.RoleControlPlane)
	}
	for _, name := range workers {
		b.declare(b.join(name, false), v1alpha1.RoleWorker)
	}
	b.start()
	t.Cleanup(func() {
		b.background.Stop()
		if b.twin != nil {
			b.twin.background.Stop()
		}
	})
	b.forget()
	return b
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// declare makes the TalosMachine of a box that got its configuration from it.
func (b *bench) declare(x *box, role v1alpha1.MachineRole) {
	b.t.Helper()
	b.must(b.mgmt.Create(context.Background(), &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: x.name, UID: types.UID("uid-" + x.name),
			Finalizers:  []string{v1alpha1.FinalizerMachine},
			Annotations: map[string]string{meta.AnnotationKeyExternalName: x.uuid},
		},
		Spec: v1alpha1.TalosMachineSpec{
			ManagedResourceSpec: xpv2.ManagedResourceSpec{ManagementPolicies: xpv2.ManagementPolicies{xpv2.ManagementActionAll}},
			ForProvider: v1alpha1.TalosMachineParameters{
				ClusterRef: &v1alpha1.ClusterReference{Name: clusterName}, Role: role, Approved: true, Address: x.address,
				Install: v1alpha1.MachineInstall{Disk: "/dev/sda"},
			},
		},
	}))
}

// counting counts writes to the management cluster, and fails everything once the process is dead.
func (b *bench) counting() interceptor.Funcs {
	alive := func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.dead {
			return errKilled
		}
		return b.mgmtErr
	}
	write := func(ctx context.Context, verb string, server client.Reader, o client.Object, do func() error) error {
		if err := alive(); err != nil {
			return err
		}
		err := b.history.Write(ctx, server, o, do)
		if err == nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.wrote(fmt.Sprintf("management: %s %T", verb, o))
		}
		return err
	}
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := alive(); err != nil {
				return err
			}
			return c.Get(ctx, k, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if err := alive(); err != nil {
				return err
			}
			return c.List(ctx, l, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return write(ctx, "create", c, o, func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return write(ctx, "update", c, o, func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return write(ctx, "patch", c, o, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write(ctx, "delete", c, o, func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return write(ctx, "update status", c, o, func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
	}
}

type nopTracker struct{}

func (nopTracker) Track(context.Context, resource.ModernManaged) error { return nil }

// start begins a new process: nothing in memory is left of the one before.
func (b *bench) start() {
	if b.background != nil {
		b.background.Stop()
	}
	b.revive()
	if b.onDeath != nil {
		b.onDeath()
		b.onDeath = nil
	}
	b.process = b.newProcess()
}

// newProcess begins with nothing in memory.
func (b *bench) newProcess() process {
	var p process
	p.background = act.NewBackground()
	cached := b.mgmt
	if b.behind {
		p.cache = lagging.New(b.mgmt, b.history, b.before, &v1alpha1.TalosMachine{}, &v1alpha1.TalosCluster{})
		cached = p.cache
	}
	p.survey = survey.NewWith(b.mgmt, worldAccess{b.world}, b.clock).WithCache(cached)
	hints := waiting.NewHints(0)
	p.conn = &connector{
		parts: parts{
			kube: cached, reader: b.mgmt, survey: p.survey,
			gate:   disruption.NewGate(clusterlock.New(cached, b.mgmt, b.clock), b.mgmt),
			actor:  act.New(cached, b.clock, p.background),
			hints:  hints,
			marker: &marker{record: event.NewNopRecorder(), clock: b.clock},
		},
		usage: nopTracker{},
		knock: func(context.Context, *v1alpha1.TalosCluster, bool) (Doors, error) {
			return worldDoors{b.world, p.survey}, nil
		},
		nodes: newNodeWatches(cached),
	}
	p.final = &finalizer{parts: p.conn.parts, api: resource.NewAPIFinalizer(cached, v1alpha1.FinalizerMachine), connector: p.conn}
	mgr := &fake.Manager{Client: cached, Scheme: b.mgmt.Scheme()}
	o := Options{Options: controller.Options{Logger: logging.NewNopLogger(), Features: &feature.Flags{}, PollInterval: poll}}
	o.Features.Enable(feature.EnableBetaManagementPolicies)
	options := append(reconcilerOptions(mgr, o, "machines", p.conn, event.NewNopRecorder()),
		managed.WithCreationGracePeriod(0)) // It goes by the real clock.
	p.reconciler = waiting.Wrap(managed.NewReconciler(mgr, resource.ManagedKind(v1alpha1.TalosMachineGroupVersionKind), options...), hints)
	return p
}

// pass lets the process look at a machine once, and time pass after that.
func (b *bench) pass(name string) reconcile.Result {
	b.t.Helper()
	b.before = b.history.Writes()
	req := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
	res, _ := b.reconciler.Reconcile(context.Background(), req)
	if b.box(name).leaving == nil {
		b.quiet(name, b.background)
	}
	if b.twin != nil {
		_, _ = b.twin.reconciler.Reconcile(context.Background(), req) // What failed is tried again.
		b.quiet(name, b.twin.background)
	}
	b.settle()
	b.clock.Step(pass)
	if b.cache != nil && !b.dead {
		b.cache.CatchUp(b.before)
	}
	return res
}

// passUntil passes over a machine until something is the case.
func (b *bench) passUntil(name string, is func() bool) {
	b.t.Helper()
	for range maxPasses {
		if is() {
			return
		}
		b.pass(name)
	}
	b.t.Fatalf("it did not come to that in %d passes over %s: %+v; sent: %q", maxPasses, name, b.get(name).Status, b.sent())
}

// quiet waits for the end of what was begun in the background.
func (b *bench) quiet(name string, background *act.Background) {
	b.t.Helper()
	b.soon("what was begun in the background has ended", func() bool { return !background.Running("uid-" + name) })
}

// soon waits for what happens in the background, which takes no time of the clock.
func (b *bench) soon(what string, is func() bool) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-ctx.Done():
			b.t.Fatalf("waited in vain until %s", what)
		case <-tick.C:
		}
	}
}

// leaves is how often a machine was sent a leave.
func (b *bench) leaves(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.box(name).leaves
}

// get returns a machine, or nil if it is gone.
func (b *bench) get(name string) *v1alpha1.TalosMachine {
	b.t.Helper()
	m := &v1alpha1.TalosMachine{}
	err := b.mgmt.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: name}, m)
	if kerrors.IsNotFound(err) {
		return nil
	}
	b.must(err)
	return m
}

// change a machine as a person does.
func (b *bench) change(name string, f func(*v1alpha1.TalosMachine)) {
	b.t.Helper()
	m := b.get(name)
	f(m)
	b.must(b.mgmt.Update(context.Background(), m))
	b.forget()
}

func (b *bench) annotate(name, key, value string) {
	b.t.Helper()
	b.change(name, func(m *v1alpha1.TalosMachine) { meta.AddAnnotations(m, map[string]string{key: value}) })
}

// remove a machine as a person does: allow it, then delete it.
func (b *bench) remove(name string) {
	b.t.Helper()
	b.annotate(name, v1alpha1.AnnotationAllowDelete, "true")
	b.must(b.mgmt.Delete(context.Background(), b.get(name)))
	b.forget()
}

// tearDown deletes the cluster as a person does.
func (b *bench) tearDown() {
	b.t.Helper()
	c := &v1alpha1.TalosCluster{}
	b.must(b.mgmt.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: clusterName}, c))
	meta.AddAnnotations(c, map[string]string{v1alpha1.AnnotationAllowDelete: "true"})
	b.must(b.mgmt.Update(context.Background(), c))
	b.must(b.mgmt.Delete(context.Background(), c))
	b.teardown = true
	b.forget()
}

// sent are the writes to machines and to their Kubernetes cluster, in order.
func (b *bench) sent() []string {
	return slices.DeleteFunc(b.written(), func(s string) bool { return strings.HasPrefix(s, "management:") })
}

// written is what was written since it was last forgotten. A leave in the background renews the lock meanwhile.
func (b *bench) written() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.writes)
}

func (b *bench) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writes = nil
}

func (b *bench) removalReason(name string) xpv2.ConditionReason {
	b.t.Helper()
	return b.get(name).GetCondition(v1alpha1.TypeRemoval).Reason
}

// node returns a Node, or nil if it is gone.
func (b *bench) node(name string) *corev1.Node {
	b.t.Helper()
	n, err := b.kube.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
	if kerrors.IsNotFound(err) {
		return nil
	}
	b.must(err)
	return n
}

// cordoned are the Nodes of control planes that are cordoned.
func (b *bench) cordoned() []string {
	b.t.Helper()
	list, err := b.kube.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	b.must(err)
	var names []string
	for _, n := range list.Items {
		if n.Spec.Unschedulable && b.box(n.Name).controlPlane {
			names = append(names, n.Name)
		}
	}
	return names
}
