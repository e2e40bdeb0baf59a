package taloscluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/clusterlock"
	"github.com/maesh/provider-ichor/internal/connect"
	"github.com/maesh/provider-ichor/internal/controller/waiting"
	"github.com/maesh/provider-ichor/internal/decide/facts"
)

// freeLocks are locks that nobody holds.
type freeLocks struct{ released []clusterlock.Holder }

func (l *freeLocks) Acquire(context.Context, types.NamespacedName, clusterlock.Holder) (Lock, error) {
	return nil, errors.New("a teardown takes no lock")
}

func (l *freeLocks) Peek(context.Context, types.NamespacedName) (*clusterlock.Info, error) {
	return nil, nil
}

func (l *freeLocks) Release(_ context.Context, _ types.NamespacedName, h clusterlock.Holder) error {
	l.released = append(l.released, h)
	return nil
}

func machineFacts(name string, role facts.Role, approved, removed bool) facts.Machine {
	return facts.Machine{ID: facts.MachineID(name), Name: name, Role: role, Approved: approved, Removed: removed}
}

// halfRemoved is a machine that was sent its reset, and is not known to be blank yet.
func halfRemoved(m facts.Machine) facts.Machine {
	m.Deleting, m.Record = true, &facts.Record{Reset: true}
	return m
}

// TestTeardown holds that the PKI outlives every machine that needs it, and that nothing goes without permission.
func TestTeardown(t *testing.T) {
	ours, id := bundle(t, 0)
	allowed := annotated(v1alpha1.AnnotationAllowDelete, "true")
	named := annotated(meta.AnnotationKeyExternalName, id)

	type want struct {
		Exists  bool
		PKI     bool // is still there, with its finalizer
		Writes  int
		Status  corev1.ConditionStatus
		Reason  xpv2.ConditionReason
		Step    string
		Message string // part of it
		Err     bool
	}
	cases := map[string]struct {
		reason   string
		cluster  *v1alpha1.TalosCluster
		pki      bool
		machines []facts.Machine
		want     want
	}{
		"NotAllowed": {
			reason:  "Without permission nothing is taken down, even if no machine is left.",
			cluster: newCluster(named, deleted),
			pki:     true,
			want:    want{Exists: true, PKI: true, Status: corev1.ConditionFalse, Reason: "NotAllowed", Message: "allow-delete", Err: true},
		},
		"SaidFalse": {
			reason:  "Permission is one word, and any other is none.",
			cluster: newCluster(named, annotated(v1alpha1.AnnotationAllowDelete, "false"), deleted),
			pki:     true,
			want:    want{Exists: true, PKI: true, Status: corev1.ConditionFalse, Reason: "NotAllowed", Message: "allow-delete", Err: true},
		},
		"AwaitingMachines": {
			reason:  "While machines are left, the PKI stays and they are named in the order in which they go.",
			cluster: newCluster(named, allowed, deleted),
			pki:     true,
			machines: []facts.Machine{
				machineFacts("cp-1", facts.ControlPlane, true, false), machineFacts("cp-2", facts.ControlPlane, true, true),
				machineFacts("w-1", facts.Worker, true, false), machineFacts("w-2", facts.Worker, false, false),
			},
			want: want{
				Exists: true, PKI: true, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonAwaitingMachines, Step: stepMachines,
				Message: "workers w-1 (first); control planes cp-1 (one by one)",
			},
		},
		"LastMachine": {
			reason:   "The PKI stays to the last machine.",
			cluster:  newCluster(named, allowed, deleted),
			pki:      true,
			machines: []facts.Machine{machineFacts("cp-1", facts.ControlPlane, true, false)},
			want: want{
				Exists: true, PKI: true, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonAwaitingMachines, Step: stepMachines,
				Message: "control planes cp-1 (one by one)",
			},
		},
		"HalfRemoved": {
			reason:   "A machine whose removal has begun still needs the PKI, until that is completed.",
			cluster:  newCluster(named, allowed, deleted),
			pki:      true,
			machines: []facts.Machine{halfRemoved(machineFacts("cp-1", facts.ControlPlane, true, false))},
			want: want{
				Exists: true, PKI: true, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonAwaitingMachines, Step: stepMachines,
				Message: "control planes cp-1 (one by one)",
			},
		},
		"AllTakenDown": {
			reason:   "Once every machine is taken down, the PKI goes, although objects of machines are left.",
			cluster:  newCluster(named, allowed, deleted),
			pki:      true,
			machines: []facts.Machine{machineFacts("cp-1", facts.ControlPlane, true, true), machineFacts("w-1", facts.Worker, false, false)},
			want:     want{Exists: true, Writes: 2, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonTeardown, Step: stepPKI, Message: "deleting the PKI"},
		},
		"Gone": {
			reason:  "Without machines and PKI nothing is left.",
			cluster: newCluster(named, allowed, deleted),
			want:    want{},
		},
		"PKIMissing": {
			reason:   "Without its PKI a cluster with machines cannot be taken down, and does not go.",
			cluster:  newCluster(named, allowed, deleted),
			machines: []facts.Machine{machineFacts("cp-1", facts.ControlPlane, true, false)},
			want: want{
				Exists: true, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonPKIMissing, Step: stepMachines,
				Message: "Restore the PKI Secret from a backup",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := newAPI(t)
			if tc.pki {
				api = newAPI(t, pkiSecret(ours))
			}
			l := &freeLocks{}
			surveyed := &surveys{objects: facts.Cluster{Machines: tc.machines}}
			e := &external{
				kube: api, uncached: api, keeper: &keeper{kube: api, uncached: api}, survey: surveyed, locks: l,
				clock: newClock(), record: &events{}, hints: waiting.NewHints(0),
			}
			o, err := e.Observe(context.Background(), tc.cluster)
			if err != nil {
				t.Fatalf("\n%s\nObserve(...): %v", tc.reason, err)
			}
			if o.ResourceExists {
				_, err = e.Delete(context.Background(), tc.cluster)
			}
			cond := tc.cluster.GetCondition(v1alpha1.TypeRemoval)
			got := want{
				Exists: o.ResourceExists, PKI: keptPKI(t, api), Writes: len(api.log), Err: err != nil,
				Status: cond.Status, Reason: cond.Reason, Message: tc.want.Message,
			}
			if r := tc.cluster.Status.AtProvider.Removal; r != nil {
				got.Step = r.Step
			}
			if !o.ResourceExists {
				got.Status = ""
			}
			if !strings.Contains(cond.Message, tc.want.Message) {
				got.Message = cond.Message
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\nteardown: -want, +got:\n%s", tc.reason, diff)
			}
			if slices.Contains(surveyed.asked, "snapshot") || slices.Contains(surveyed.asked, "fresh") {
				t.Errorf("\n%s\na teardown asked machines: %v", tc.reason, surveyed.asked)
			}
		})
	}
}

// lockedWorld is a world whose cluster is being deleted, and a pass over it that has the lock of a bootstrap that never ended.
func lockedWorld(t *testing.T) (*world, *external, *v1alpha1.TalosCluster) {
	t.Helper()
	w := startedWorld(t, annotated(v1alpha1.AnnotationAllowDelete, "true"), deleted)
	e, c := w.external(w), w.cluster(context.Background())
	if _, err := e.locks.Acquire(context.Background(), name(c), holderOf(c)); err != nil {
		t.Fatalf("cannot take the lock: %v", err)
	}
	if _, err := e.Observe(context.Background(), c); err != nil {
		t.Fatalf("Observe(...): %v", err)
	}
	return w, e, c
}

// TestTeardownGivesBackTheLock: machines that are to be taken down would wait for it until it expires.
func TestTeardownGivesBackTheLock(t *testing.T) {
	w, e, c := lockedWorld(t)
	if _, err := e.Delete(context.Background(), c); err != nil {
		t.Fatalf("Delete(...): %v", err)
	}
	if l := lease(t, w); l != nil {
		t.Errorf("the lock is still held: %+v", l.Spec)
	}
}

// TestTeardownTellsOfALockThatStays: nothing goes on behind a lock that could not be given back.
func TestTeardownTellsOfALockThatStays(t *testing.T) {
	w, e, c := lockedWorld(t)
	denied := errors.New("deletes are denied")
	w.api.before = func(int) error { return denied }
	if _, err := e.Delete(context.Background(), c); !errors.Is(err, denied) {
		t.Errorf("Delete(...): %v, want what failed", err)
	}
	if lease(t, w) == nil {
		t.Error("the lock was given back all the same")
	}
}

// TestTeardownSince holds that a teardown that waits writes nothing new: its status says since when it waits.
func TestTeardownSince(t *testing.T) {
	ours, id := bundle(t, 0)
	api := newAPI(t, pkiSecret(ours))
	clk := newClock()
	e := &external{
		keeper: &keeper{kube: api, uncached: api}, locks: &freeLocks{}, clock: clk, record: &events{}, hints: waiting.NewHints(0),
		survey: &surveys{objects: facts.Cluster{Machines: []facts.Machine{machineFacts("cp-1", facts.ControlPlane, true, false)}}},
	}
	c := newCluster(annotated(meta.AnnotationKeyExternalName, id), annotated(v1alpha1.AnnotationAllowDelete, "true"), deleted)
	var before v1alpha1.TalosClusterStatus
	for pass := range 2 {
		if _, err := e.Observe(context.Background(), c); err != nil {
			t.Fatalf("Observe(...): %v", err)
		}
		if _, err := e.Delete(context.Background(), c); err != nil {
			t.Fatalf("Delete(...): %v", err)
		}
		if diff := cmp.Diff(before, c.Status); pass > 0 && diff != "" {
			t.Errorf("status of a teardown that waits: -before, +after:\n%s", diff)
		}
		before = *c.Status.DeepCopy()
		clk.SetTime(clk.Now().Add(15 * time.Second))
	}
}

// keptPKI tells whether the PKI Secret is there, not being deleted, owned by nobody, and has its finalizer.
func keptPKI(t *testing.T, c client.Reader) bool {
	t.Helper()
	s := &corev1.Secret{}
	err := c.Get(context.Background(), types.NamespacedName{Namespace: testNamespace, Name: connect.PKISecretName(testCluster)}, s)
	if kerrors.IsNotFound(err) {
		return false
	}
	if err != nil {
		t.Fatalf("cannot read the PKI Secret: %v", err)
	}
	return s.GetDeletionTimestamp() == nil && len(s.GetOwnerReferences()) == 0 && slices.Contains(s.GetFinalizers(), v1alpha1.FinalizerPKI)
}

// TestTeardownFailsClosed holds that a survey that fails is no reason to take machines for gone.
func TestTeardownFailsClosed(t *testing.T) {
	ours, id := bundle(t, 0)
	api := newAPI(t, pkiSecret(ours))
	e := &external{keeper: &keeper{kube: api, uncached: api}, survey: &surveys{err: errors.New("the API server is down")}}
	c := newCluster(annotated(meta.AnnotationKeyExternalName, id), annotated(v1alpha1.AnnotationAllowDelete, "true"), deleted)
	if o, err := e.Observe(context.Background(), c); err == nil {
		t.Errorf("Observe(...): %+v without an error, although the machines could not be listed", o)
	}
}

// TestRemovePKIResumes kills the process between the two writes that end a PKI: the next pass ends it.
func TestRemovePKIResumes(t *testing.T) {
	ours, id := bundle(t, 0)
	for _, n := range []int{0, 1} {
		api := newAPI(t, pkiSecret(ours))
		api.before = func(k int) error {
			if k == n {
				return errCrash
			}
			return nil
		}
		k := &keeper{kube: api, uncached: api}
		c := newCluster(annotated(meta.AnnotationKeyExternalName, id))
		for pass := range 2 {
			p, err := k.get(context.Background(), c)
			if err != nil || p == nil {
				t.Fatalf("crash at write %d, pass %d: the PKI cannot be read: %v", n, pass, err)
			}
			err = k.remove(context.Background(), p)
			if crashed := pass == 0; crashed != errors.Is(err, errCrash) {
				t.Fatalf("crash at write %d, pass %d: remove(...): %v", n, pass, err)
			}
			api.before = nil
		}
		if data := secretData(t, api, connect.PKISecretName(testCluster)); data != nil {
			t.Errorf("crash at write %d: the PKI Secret is still there", n)
		}
	}
}

// TestRemovePKIReplaced holds that only the Secret that was looked at is ever deleted.
func TestRemovePKIReplaced(t *testing.T) {
	ours, id := bundle(t, 0)
	other, _ := bundle(t, 1)
	looked := newAPI(t, pkiSecret(ours, func(s *corev1.Secret) { s.UID = "looked-at" }))
	c := newCluster(annotated(meta.AnnotationKeyExternalName, id))
	p, err := (&keeper{uncached: looked}).get(context.Background(), c)
	if err != nil {
		t.Fatalf("get(...): %v", err)
	}
	now := newAPI(t, pkiSecret(other, func(s *corev1.Secret) { s.UID = "restored since" }))
	if err := (&keeper{kube: now, uncached: now}).remove(context.Background(), p); err == nil {
		t.Errorf("remove(...): another Secret than the one that was looked at was removed")
	}
	if !keptPKI(t, now) {
		t.Errorf("the Secret that was restored since lost its finalizer or was deleted")
	}

	// Somebody takes the finalizer off and restores the Secret between the delete and the end.
	looked.after = func(int) error {
		looked.after = nil
		gone := p.secret.DeepCopy()
		if err := looked.Get(context.Background(), client.ObjectKeyFromObject(gone), gone); err != nil {
			return err
		}
		gone.SetFinalizers(nil)
		return errors.Join(looked.Update(context.Background(), gone),
			looked.Create(context.Background(), pkiSecret(other, func(s *corev1.Secret) { s.UID = "restored since" })))
	}
	if err := (&keeper{kube: looked, uncached: looked}).remove(context.Background(), p); err == nil || !strings.Contains(err.Error(), "was replaced") {
		t.Errorf("remove(...): %v, want an error that says that the Secret was replaced", err)
	}
	if !keptPKI(t, looked) {
		t.Errorf("the Secret that was restored meanwhile lost its finalizer or was deleted")
	}
}
