package taloscluster

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/act"
	"github.com/maesh/provider-ichor/internal/clusterlock"
	"github.com/maesh/provider-ichor/internal/controller/waiting"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/disruption"
	"github.com/maesh/provider-ichor/internal/talos"
)

// chosen is the machine that a world's first bootstrap goes to.
const chosen = "00000000-0000-4000-8000-000000000001"

// survey asks every machine of a world.
func (w *world) survey() facts.Cluster {
	w.t.Helper()
	f, err := w.Cluster(context.Background(), types.NamespacedName{}, "")
	if err != nil {
		w.t.Fatalf("cannot survey the world: %v", err)
	}
	return f
}

// external is one pass over a world's cluster, by an external that surveys as it is told.
func (w *world) external(s Surveyor) *external {
	return &external{
		kube: w.api, uncached: w.api, keeper: &keeper{kube: w.api, uncached: w.api}, survey: s,
		locks: locks{disruption.NewGate(clusterlock.New(w.api, w.api, w.clock), w.api)}, actor: act.New(w.api, w.clock, nil),
		clock: w.clock, record: &events{}, hints: waiting.NewHints(0), access: w,
	}
}

// observed observes the cluster of a world, and fails unless there is something to do.
func (w *world) observed(e *external) *v1alpha1.TalosCluster {
	w.t.Helper()
	c := w.cluster(context.Background())
	o, err := e.Observe(context.Background(), c)
	if err != nil {
		w.t.Fatalf("Observe(...): %v", err)
	}
	if o.ResourceUpToDate {
		w.t.Fatalf("Observe(...): there is nothing to do")
	}
	return c
}

// TestBootstrapLooksUnderTheLock has a control plane begin an etcd after the survey that said that Bootstrap is due, and before
// the pass has the lock: nothing is written down then, and nothing is sent. A second etcd would split the cluster for good.
func TestBootstrapLooksUnderTheLock(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.TalosCluster){
		"NotWrittenDown": func(*v1alpha1.TalosCluster) {},
		"WrittenDown":    annotated(v1alpha1.AnnotationBootstrapped, chosen),
	} {
		t.Run(name, func(t *testing.T) {
			w := startedWorld(t, change)
			s := &surveys{snapshot: w.survey()}
			w.machines[2].etcd = 0xbe
			s.fresh = w.survey()
			e := w.external(s)
			c := w.observed(e)
			was := c.GetAnnotations()[v1alpha1.AnnotationBootstrapped]
			if _, err := e.Update(context.Background(), c); err != nil {
				t.Fatalf("Update(...): %v", err)
			}
			if n := w.allSends(); n != 0 {
				t.Errorf("Bootstrap was sent (%v) although cp-3 has an etcd", w.sends)
			}
			if got := w.cluster(context.Background()).GetAnnotations()[v1alpha1.AnnotationBootstrapped]; got != was {
				t.Errorf("%q was written down although cp-3 has an etcd", got)
			}
		})
	}
}

// TestBootstrapIsWrittenDownOrFails: a record that was not written must not show as one, or as a pass that did its work.
func TestBootstrapIsWrittenDownOrFails(t *testing.T) {
	w := startedWorld(t)
	conflict := kerrors.NewConflict(schema.GroupResource{}, testCluster, errors.New("it was changed"))
	inner := w.api.before
	w.api.before = func(n int) error {
		if lease(t, w) != nil { // The lock is had: the next write is the record.
			w.api.before = inner
			return conflict
		}
		return inner(n)
	}
	e := w.external(w)
	c := w.observed(e)
	if _, err := e.Update(context.Background(), c); !kerrors.IsConflict(err) {
		t.Errorf("Update(...): %v, want the conflict", err)
	}
	if ready := c.GetCondition(xpv2.TypeReady); strings.Contains(ready.Message, "is about to be sent") {
		t.Errorf("Ready: %q, and nothing was written down", ready.Message)
	}
	if lease(t, w) != nil {
		t.Error("the lock was not given back")
	}
}

// TestBootstrapAnswers: what a machine that has an etcd answers is no failure, since the next survey tells the same; any other
// refusal is. Without access to the machines nothing can be sent.
func TestBootstrapAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(w *world, e *external)
		want   string // part of the error; none if empty
	}{
		"AlreadyBegun": {change: func(w *world, _ *external) { w.machines[0].etcd = 0xbe }},
		"Denied":       {change: func(w *world, e *external) { e.access = denying{w} }, want: "not authorized"},
		"NoAccess":     {change: func(_ *world, e *external) { e.access = nil }, want: "it could not be opened"},
		"LockFails":    {change: func(_ *world, e *external) { e.locks = &freeLocks{} }, want: "cannot take the lock of the cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			w := startedWorld(t, annotated(v1alpha1.AnnotationBootstrapped, chosen))
			due := w.survey()
			e := w.external(&surveys{snapshot: due, fresh: due})
			c := w.observed(e)
			tc.change(w, e)
			_, err := e.Update(context.Background(), c)
			checkError(t, name, err, tc.want)
		})
	}
}

// denying is an access whose machines do not let themselves be bootstrapped.
type denying struct{ *world }

func (d denying) Machine(address string) act.Bootstrapper { return denied{d.world.Machine(address)} }

type denied struct{ act.Bootstrapper }

func (denied) Bootstrap(context.Context) error {
	return &talos.Error{Op: "bootstrap etcd", Address: "cp-1", Class: talos.Denied, Err: errors.New("not authorized")}
}

// TestApprovedAreCountedAfresh: a cache that has not seen the fourth control plane must not show a cluster that is stable.
func TestApprovedAreCountedAfresh(t *testing.T) {
	w := startedWorld(t)
	e := w.external(w)
	e.kube = newWorld(t, newCluster()).api // the cache
	fourth := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: "cp-4", UID: "uid-cp-4"}}
	fourth.Spec.ForProvider = v1alpha1.TalosMachineParameters{
		ClusterRef: &v1alpha1.ClusterReference{Name: testCluster}, Role: v1alpha1.RoleControlPlane, Approved: true, Address: "192.0.2.4",
	}
	if err := w.api.Create(context.Background(), fourth); err != nil {
		t.Fatalf("cannot create a fourth control plane: %v", err)
	}
	c := w.observed(e)
	if got := c.GetCondition(v1alpha1.TypeTransitioning); got.Status != corev1.ConditionTrue {
		t.Errorf("four control planes are approved, and Transitioning is %s (%s)", got.Status, got.Message)
	}
}

// TestPKIIsAboutToGo: a PKI Secret that only its finalizer keeps is told in Ready and in Synced, and changes nothing else.
func TestPKIIsAboutToGo(t *testing.T) {
	ours, id := bundle(t, 0)
	api := newAPI(t, newCluster(annotated(meta.AnnotationKeyExternalName, id)), pkiSecret(ours), connectionSecret(t))
	if err := api.Delete(context.Background(), pkiSecret(ours)); err != nil {
		t.Fatalf("cannot delete the PKI Secret: %v", err)
	}
	api.log = nil
	c := &v1alpha1.TalosCluster{}
	if err := api.Get(context.Background(), types.NamespacedName{Namespace: testNamespace, Name: testCluster}, c); err != nil {
		t.Fatalf("cannot read the TalosCluster: %v", err)
	}
	e := &external{
		kube: api, uncached: api, keeper: &keeper{kube: api, uncached: api}, survey: &surveys{snapshot: controlPlanes(3)}, locks: &freeLocks{},
		clock: newClock(), record: &events{}, hints: waiting.NewHints(0),
	}
	if _, err := e.Observe(context.Background(), c); err != nil {
		t.Fatalf("Observe(...): %v", err)
	}
	const told = "save its contents now"
	if ready := c.GetCondition(xpv2.TypeReady); ready.Status != corev1.ConditionTrue || !strings.Contains(ready.Message, told) {
		t.Errorf("Ready: %s %q, want it to be true and to say %q", ready.Status, ready.Message, told)
	}
	_, err := e.Update(context.Background(), c)
	checkError(t, "Update", err, told)
	if len(api.log) != 0 {
		t.Errorf("writes: %v", api.log)
	}
}

// TestTeardownNeedsToKnowItsPKI: a PKI that cannot be read is not one that is gone. Whoever took it for gone would let the
// cluster go and leave its keys behind.
func TestTeardownNeedsToKnowItsPKI(t *testing.T) {
	_, id := bundle(t, 0)
	allowed := annotated(v1alpha1.AnnotationAllowDelete, "true")
	for name, tc := range map[string]struct {
		objs []client.Object
		fail error
	}{
		"Garbage": {objs: []client.Object{pkiSecret([]byte("garbage"))}},
		"Down":    {fail: errors.New("the API server is down")},
	} {
		t.Run(name, func(t *testing.T) {
			api := newAPI(t, tc.objs...)
			e := &external{keeper: &keeper{kube: api, uncached: unreadable{api, tc.fail}}, survey: &surveys{}, locks: &freeLocks{}}
			o, err := e.Observe(context.Background(), newCluster(annotated(meta.AnnotationKeyExternalName, id), allowed, deleted))
			if err == nil {
				t.Errorf("Observe(...): exists %t, without an error", o.ResourceExists)
			}
		})
	}
}

// TestImportIsNoted: only by what was noted when a bundle was imported can anybody tell later that it has changed.
func TestImportIsNoted(t *testing.T) {
	ours, _ := bundle(t, 0)
	other, _ := bundle(t, 1)
	api := newAPI(t, secret("import", "secrets.yaml", ours))
	k, c := &keeper{kube: api, uncached: api}, newCluster(importing("import"))
	p, err := k.create(context.Background(), c)
	if err != nil {
		t.Fatalf("create(...): %v", err)
	}
	checkError(t, "What was just imported is as it was.", k.checkSource(context.Background(), c, p), "")
	if err := api.Update(context.Background(), secret("import", "secrets.yaml", other)); err != nil {
		t.Fatalf("cannot change the bundle: %v", err)
	}
	checkError(t, "The bundle has changed.", k.checkSource(context.Background(), c, p), "has changed since it was imported")
}

// TestUndeletedPKIKeepsItsFinalizer: a Secret that could not be deleted is still the only copy of the keys.
func TestUndeletedPKIKeepsItsFinalizer(t *testing.T) {
	ours, id := bundle(t, 0)
	api := newAPI(t, pkiSecret(ours))
	k := &keeper{kube: api, uncached: api}
	p, err := k.get(context.Background(), newCluster(annotated(meta.AnnotationKeyExternalName, id)))
	if err != nil {
		t.Fatalf("get(...): %v", err)
	}
	denied := errors.New("deletes are denied")
	api.before = func(int) error {
		api.before = nil // The first write only.
		return denied
	}
	if err := k.remove(context.Background(), p); !errors.Is(err, denied) {
		t.Errorf("remove(...): %v, want what failed", err)
	}
	if !keptPKI(t, api) {
		t.Error("the Secret was not deleted, and lost its finalizer")
	}
}

// TestProtectOverwritesNobody: what somebody else put on the Secret since it was read, such as a finalizer of a backup, stays.
func TestProtectOverwritesNobody(t *testing.T) {
	ours, id := bundle(t, 0)
	api := newAPI(t, pkiSecret(ours, func(s *corev1.Secret) { s.Finalizers = nil }))
	k := &keeper{kube: api, uncached: api}
	p, err := k.get(context.Background(), newCluster(annotated(meta.AnnotationKeyExternalName, id)))
	if err != nil {
		t.Fatalf("get(...): %v", err)
	}
	theirs := p.secret.DeepCopy()
	theirs.SetFinalizers([]string{"backup.example.org/saved"})
	if err := api.Update(context.Background(), theirs); err != nil {
		t.Fatalf("cannot change the Secret: %v", err)
	}
	if err := k.protect(context.Background(), p); !kerrors.IsConflict(err) {
		t.Errorf("protect(...) of an older version: %v, want a conflict", err)
	}
}

// unreadable answers every read with an error, if it has one.
type unreadable struct {
	client.Reader
	err error
}

func (u unreadable) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if u.err != nil {
		return u.err
	}
	return u.Reader.Get(ctx, k, o, opts...)
}
