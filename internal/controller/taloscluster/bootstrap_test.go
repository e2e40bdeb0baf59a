package taloscluster

import (
	"context"
	"strings"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/clusterlock"
)

// startedWorld is a world with a PKI whose cluster is due for bootstrap.
func startedWorld(t *testing.T, changes ...func(*v1alpha1.TalosCluster)) *world {
	t.Helper()
	ours, id := bundle(t, 0)
	c := newCluster(append(changes, annotated(meta.AnnotationKeyExternalName, id))...)
	// The write that adds the finalizer would undo the status of the first pass.
	c.SetFinalizers([]string{v1alpha1.FinalizerCluster})
	w := newWorld(t, c)
	for _, o := range []client.Object{pkiSecret(ours), connectionSecret(t)} {
		if err := w.api.Create(context.Background(), o); err != nil {
			t.Fatalf("cannot create %T: %v", o, err)
		}
	}
	return w
}

func lease(t *testing.T, w *world) *coordinationv1.Lease {
	t.Helper()
	l := &coordinationv1.Lease{}
	err := w.api.Get(context.Background(), types.NamespacedName{Namespace: testNamespace, Name: clusterlock.LeaseName(testCluster)}, l)
	if kerrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatalf("cannot read the Lease: %v", err)
	}
	return l
}

// TestBootstrapNotSent lists what keeps Bootstrap from being sent although the last survey said that it is due.
func TestBootstrapNotSent(t *testing.T) {
	recorded := func(uuid string) func(*v1alpha1.TalosCluster) {
		return annotated(v1alpha1.AnnotationBootstrapped, uuid)
	}
	const first = "00000000-0000-4000-8000-000000000001"
	cases := map[string]struct {
		reason   string
		clusters []func(*v1alpha1.TalosCluster)
		change   func(t *testing.T, w *world)
		ready    xpv2.ConditionReason
		message  string // part of it
		leased   bool   // somebody holds the lock afterwards
		synced   bool
	}{
		"NotWrittenDown": {
			reason: "The first pass only writes down which machine it will be.",
			ready:  v1alpha1.ReasonBootstrapping, message: "Bootstrap is about to be sent to cp-1", synced: true,
		},
		"LockHeld": {
			reason:   "While another disruption holds the lock, nothing is sent.",
			clusters: []func(*v1alpha1.TalosCluster){recorded(first)},
			change: func(t *testing.T, w *world) {
				locks := clusterlock.New(w.api, w.api, w.clock)
				_, err := locks.Acquire(context.Background(), types.NamespacedName{Namespace: testNamespace, Name: clusterlock.LeaseName(testCluster)},
					clusterlock.Holder{Kind: "TalosMachine", Name: "cp-2", UID: "uid-cp-2", Purpose: "removal"})
				if err != nil {
					t.Fatalf("Acquire(...): %v", err)
				}
			},
			ready: v1alpha1.ReasonAwaitingControlPlanes, message: "cp-2", leased: true, synced: true,
		},
		"EvenCount": {
			reason:   "While the number of control planes is even, no lock is taken.",
			clusters: []func(*v1alpha1.TalosCluster){recorded(first)},
			change: func(t *testing.T, w *world) {
				fourth := &v1alpha1.TalosMachine{
					ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: "cp-4", UID: "uid-cp-4"},
					Spec: v1alpha1.TalosMachineSpec{ForProvider: v1alpha1.TalosMachineParameters{
						ClusterRef: &v1alpha1.ClusterReference{Name: testCluster}, Role: v1alpha1.RoleControlPlane, Approved: true, Address: "192.0.2.4",
					}},
				}
				if err := w.api.Create(context.Background(), fourth); err != nil {
					t.Fatalf("cannot create a fourth control plane: %v", err)
				}
			},
			ready: v1alpha1.ReasonEvenControlPlaneCount, message: "even number", synced: true,
		},
		"AnotherMachineAnswers": {
			reason:   "A machine that is not the one that was chosen is sent nothing.",
			clusters: []func(*v1alpha1.TalosCluster){recorded(first)},
			change:   func(_ *testing.T, w *world) { w.imposter = "11111111-0000-4000-8000-000000000001" },
			ready:    v1alpha1.ReasonBootstrapping, message: "Bootstrap is due: Beginning etcd on cp-1",
		},
		"WrittenDownForAnother": {
			reason:   "If it is written down for a machine that is not there, it is sent to nobody.",
			clusters: []func(*v1alpha1.TalosCluster){recorded("99999999-0000-4000-8000-000000000009")},
			ready:    "UnknownIdentity", message: "no approved control plane is that machine", synced: true,
		},
		"OneSilent": {
			reason:   "If one control plane does not answer, it may have an etcd, and nobody is sent anything.",
			clusters: nil,
			change:   func(_ *testing.T, w *world) { w.machines[2].known = false },
			ready:    v1alpha1.ReasonAwaitingControlPlanes, message: "cp-3 does not answer", synced: true,
		},
		"OneSilentMeanwhile": {
			reason:   "What counts is what is seen under the lock, and that is what is told.",
			clusters: []func(*v1alpha1.TalosCluster){recorded(first)},
			change:   func(_ *testing.T, w *world) { w.meanwhile = func() { w.machines[2].known = false } },
			ready:    v1alpha1.ReasonBootstrapping, message: "cp-3 does not answer", synced: true,
		},
		"OneBegun": {
			reason: "If one control plane has an etcd already, no other one is begun.",
			change: func(_ *testing.T, w *world) { w.machines[2].etcd = 0xbe },
			ready:  v1alpha1.ReasonAwaitingMembers, synced: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := startedWorld(t, tc.clusters...)
			if tc.change != nil {
				tc.change(t, w)
			}
			r := w.reconciler()
			if _, err := w.pass(r); err != nil {
				t.Fatalf("\n%s\nReconcile(...): %v", tc.reason, err)
			}
			c := w.cluster(context.Background())
			if n := w.allSends(); n != 0 {
				t.Errorf("\n%s\nBootstrap was sent: %v", tc.reason, w.sends)
			}
			ready := c.GetCondition(xpv2.TypeReady)
			if ready.Reason != tc.ready || !strings.Contains(ready.Message, tc.message) {
				t.Errorf("\n%s\nReady: %s %q, want %s with %q", tc.reason, ready.Reason, ready.Message, tc.ready, tc.message)
			}
			if synced := c.GetCondition(xpv2.TypeSynced); (synced.Reason == xpv2.ReasonReconcileSuccess) != tc.synced {
				t.Errorf("\n%s\nSynced: %s %q", tc.reason, synced.Reason, synced.Message)
			}
			if got := lease(t, w) != nil; got != tc.leased {
				t.Errorf("\n%s\nthe lock is held afterwards: %t, want %t", tc.reason, got, tc.leased)
			}
		})
	}
}

// TestBootstrapOneWriter holds that of two processes that choose a machine only one can write its choice down.
func TestBootstrapOneWriter(t *testing.T) {
	w := startedWorld(t)
	one, two := w.cluster(context.Background()), w.cluster(context.Background())
	e := &external{kube: w.api, clock: w.clock, record: &events{}, hints: nil}
	write := func(c *v1alpha1.TalosCluster, uuid string) error {
		return e.annotate(context.Background(), c, func(c *v1alpha1.TalosCluster) {
			meta.AddAnnotations(c, map[string]string{v1alpha1.AnnotationBootstrapped: uuid})
		})
	}
	if err := write(one, "first"); err != nil {
		t.Fatalf("annotate(...): %v", err)
	}
	if err := write(two, "second"); !kerrors.IsConflict(err) {
		t.Errorf("annotate(...) of an older version: %v, want a conflict", err)
	}
	if got := w.cluster(context.Background()).GetAnnotations()[v1alpha1.AnnotationBootstrapped]; got != "first" {
		t.Errorf("the machine that is written down is %q, want the first", got)
	}
}

// TestBootstrapOnceInABoot: a machine that has answered Bootstrap prepares for as long as its etcd takes to begin. One more call
// would end that, and at the wrong moment leave a machine with data whose etcd does not run. The boot ends what the call began.
func TestBootstrapOnceInABoot(t *testing.T) {
	w := startedWorld(t)
	w.slow = true
	passes := func(boot, want int) {
		t.Helper()
		for range 4 {
			if _, err := w.pass(w.reconciler()); err != nil { // Each pass is that of a new process.
				t.Fatalf("Reconcile(...): %v", err)
			}
		}
		if w.allSends() != want || w.sends["cp-1"] != want {
			t.Errorf("boot %d: Bootstrap was sent to %v, want %d times to cp-1", boot, w.sends, want)
		}
	}
	for _, want := range []string{
		"Bootstrap is about to be sent to cp-1; waiting until its etcd is up",
		"Bootstrap was sent to cp-1; waiting until its etcd is up",
	} {
		if _, err := w.pass(w.reconciler()); err != nil {
			t.Fatalf("Reconcile(...): %v", err)
		}
		if ready := w.cluster(context.Background()).GetCondition(xpv2.TypeReady); ready.Message != want {
			t.Errorf("Ready: %s %q, want %q", ready.Reason, ready.Message, want)
		}
	}
	passes(0, 1)
	ready := w.cluster(context.Background()).GetCondition(xpv2.TypeReady)
	if ready.Reason != v1alpha1.ReasonBootstrapping || !strings.Contains(ready.Message, "cp-1 has answered Bootstrap") {
		t.Errorf("Ready: %s %q", ready.Reason, ready.Message)
	}
	w.machines[0].boots++
	passes(1, 2)
}

// TestBootstrapForgetsTheBootBefore: a person has taken the record of the machine before off, and not that of its boot.
func TestBootstrapForgetsTheBootBefore(t *testing.T) {
	w := startedWorld(t, annotated(v1alpha1.AnnotationBootstrapBoot, "boot-of-cp-9"))
	if _, err := w.pass(w.reconciler()); err != nil {
		t.Fatalf("Reconcile(...): %v", err)
	}
	a := w.cluster(context.Background()).GetAnnotations()
	if boot, there := a[v1alpha1.AnnotationBootstrapBoot]; there || a[v1alpha1.AnnotationBootstrapped] == "" {
		t.Errorf("%q is written down, with boot %q", a[v1alpha1.AnnotationBootstrapped], boot)
	}
}

// TestBootstrapRepeated holds that a Bootstrap whose answer was lost is only ever repeated to the same machine, and that an
// etcd that is there already is told by its members and not by the answer.
func TestBootstrapRepeated(t *testing.T) {
	w := startedWorld(t, annotated(v1alpha1.AnnotationBootstrapped, "00000000-0000-4000-8000-000000000002"))
	r := w.reconciler()
	w.answerless = true // The call is lost on its way.
	for range 3 {
		if _, err := w.pass(r); err != nil {
			t.Fatalf("Reconcile(...): %v", err)
		}
		if synced := w.cluster(context.Background()).GetCondition(xpv2.TypeSynced); synced.Reason != xpv2.ReasonReconcileSuccess {
			t.Errorf("an answer that was lost was taken for a failure: %s", synced.Message)
		}
	}
	w.answerless = false
	for range 3 {
		if _, err := w.pass(r); err != nil {
			t.Fatalf("Reconcile(...): %v", err)
		}
	}
	if w.sends["cp-2"] == 0 || len(w.sends) != 1 {
		t.Errorf("Bootstrap was sent to %v, want cp-2 only", w.sends)
	}
	if got := lease(t, w); got != nil {
		t.Errorf("the lock was left behind: %v", got.Annotations)
	}
}
