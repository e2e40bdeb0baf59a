package act

import (
	"context"
	"errors"
	"testing"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/facts"
)

func stored(t *testing.T, c client.Client) *v1alpha1.TalosMachine {
	t.Helper()
	m := &v1alpha1.TalosMachine{}
	if err := c.Get(context.Background(), types.NamespacedName{Namespace: "metal", Name: "cp-1"}, m); err != nil {
		t.Fatal(err)
	}
	return m
}

func newRecorded(t *testing.T) (*Actor, client.Client) {
	t.Helper()
	s := runtime.NewScheme()
	if err := v1alpha1.SchemeBuilder.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(s).WithStatusSubresource(&v1alpha1.TalosMachine{}).WithObjects(&v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "cp-1", UID: "uid-1", Annotations: map[string]string{"kept": "yes"}},
	}).Build()
	return New(c, testclock.NewFakePassiveClock(now), NewBackground()), c
}

func TestRecord(t *testing.T) {
	a, c := newRecorded(t)
	lock := &fakeLock{ledger: &ledger{}}
	mg := stored(t, c)
	mg.SetConditions(xpv2.Available()) // set in this pass and not persisted yet

	if err := a.Record(context.Background(), lock, mg, facts.Record{UUID: uuid, BootID: "boot", Member: 0xa1, Reset: true}); err != nil {
		t.Fatal(err)
	}
	want := &v1alpha1.RemovalRecord{UUID: uuid, BootID: "boot", MemberID: "a1", Reset: true}
	got, err := stored(t, c).RemovalRecord()
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("record: %v, -want, +got:\n%s", err, diff)
	}
	if mg.GetCondition(xpv2.TypeReady).Status != "True" {
		t.Error("the status of this pass was lost")
	}
	if mg.GetAnnotations()["kept"] != "yes" || mg.GetResourceVersion() != stored(t, c).GetResourceVersion() {
		t.Error("the object in memory is not the one that was written, so that its status could not be")
	}

	if err := a.Complete(context.Background(), lock, mg); err != nil {
		t.Fatal(err)
	}
	want.Completed = true
	got, err = stored(t, c).RemovalRecord()
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("completed record: %v, -want, +got:\n%s", err, diff)
	}
}

func TestRecordIsNotWrittenOverAnother(t *testing.T) {
	a, c := newRecorded(t)
	stale := stored(t, c)
	other := stored(t, c)
	other.Annotations["changed"] = "meanwhile"
	if err := c.Update(context.Background(), other); err != nil {
		t.Fatal(err)
	}
	err := a.Record(context.Background(), &fakeLock{ledger: &ledger{}}, stale, facts.Record{UUID: uuid})
	if !kerrors.IsConflict(err) {
		t.Errorf("a record was written over a version that was not read: %v", err)
	}
}

// TestUnreadableRecordIsNotWrittenOver: what it said is all that is known of the machine's member.
func TestUnreadableRecordIsNotWrittenOver(t *testing.T) {
	a, c := newRecorded(t)
	mg := stored(t, c)
	mg.Annotations[v1alpha1.AnnotationRemovalRecord] = "{"
	if err := c.Update(context.Background(), mg); err != nil {
		t.Fatal(err)
	}
	err := a.Complete(context.Background(), &fakeLock{ledger: &ledger{}}, mg)
	if got := stored(t, c).Annotations[v1alpha1.AnnotationRemovalRecord]; err == nil || got != "{" {
		t.Errorf("a record that cannot be read was completed as %q: %v", got, err)
	}
}

func TestRecordNeedsTheLock(t *testing.T) {
	a, c := newRecorded(t)
	lost := &fakeLock{ledger: &ledger{}, lost: errBoom}
	mg := stored(t, c)
	if err := a.Record(context.Background(), lost, mg, facts.Record{UUID: uuid}); !errors.Is(err, errBoom) {
		t.Errorf("Record without the lock: %v", err)
	}
	if err := a.Complete(context.Background(), lost, mg); !errors.Is(err, errBoom) {
		t.Errorf("Complete without the lock: %v", err)
	}
	if r, _ := stored(t, c).RemovalRecord(); r != nil {
		t.Errorf("a record was written without the lock: %v", r)
	}
}

// TestRecordOfAResetIsMarked: once a reset is written down nobody else may take the lock, expired or not.
func TestRecordOfAResetIsMarked(t *testing.T) {
	for name, tc := range map[string]struct {
		reset bool
		want  []string
	}{
		"Reset":  {reset: true, want: []string{"mark irreversible", "check lock"}},
		"Before": {want: []string{"check lock"}},
	} {
		t.Run(name, func(t *testing.T) {
			a, c := newRecorded(t)
			lock := &fakeLock{ledger: &ledger{}}
			if err := a.Record(context.Background(), lock, stored(t, c), facts.Record{UUID: uuid, Reset: tc.reset}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, lock.calls); diff != "" {
				t.Errorf("what is done to the lock: -want, +got:\n%s", diff)
			}
			lock.cannotMark = errBoom
			err := a.Record(context.Background(), lock, stored(t, c), facts.Record{UUID: "other", Reset: true})
			if r, _ := stored(t, c).RemovalRecord(); !errors.Is(err, errBoom) || r.UUID != uuid {
				t.Errorf("a reset was written down without its mark: %v, %v", r, err)
			}
		})
	}
}
