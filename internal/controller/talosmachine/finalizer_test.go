package talosmachine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/clusterlock"
	"github.com/maesh/provider-ichor/internal/disruption"
)

// letGo has the finalizer of a machine removed, as Crossplane does once the machine is gone or given up.
func (b *bench) letGo(name string) error {
	return b.final.RemoveFinalizer(context.Background(), b.get(name))
}

// wantKept checks that the finalizer of cp-4 was refused to go, for a removal that cannot be called off any more, and that
// nothing of the removal was undone.
func (b *bench) wantKept(err error) {
	b.t.Helper()
	if err == nil || !strings.Contains(err.Error(), "point of no return") {
		b.t.Errorf("RemoveFinalizer: %v", err)
	}
	if len(b.get("cp-4").GetFinalizers()) == 0 || !slices.Contains(b.cordoned(), "cp-4") {
		b.t.Errorf("finalizers %q, cordoned %q", b.get("cp-4").GetFinalizers(), b.cordoned())
	}
}

// TestFinalizerStays: the object of a machine is not let go before its removal was completed, or it was given up in time, or a
// person accepted its disk in writing (I4).
func TestFinalizerStays(t *testing.T) {
	record := func(text string) func(b *bench) {
		return func(b *bench) { b.annotate("cp-4", v1alpha1.AnnotationRemovalRecord, text) }
	}
	accept := func(uuid string) func(b *bench) {
		return func(b *bench) {
			record(`{"uuid":"u","reset":true}`)(b)
			b.callOff("cp-4")
			b.annotate("cp-4", v1alpha1.AnnotationAcceptUnwipedDisk, uuid)
		}
	}
	const own = "00000000-0000-4000-8000-000000000004"
	cases := map[string]struct {
		change func(b *bench)
		gone   bool
	}{
		"NothingDone":        {func(*bench) {}, false},
		"Begun":              {record(`{"uuid":"u"}`), false},
		"Unreadable":         {record("{"), false},
		"Completed":          {record(`{"uuid":"u","completed":true}`), true},
		"GivenUpTooLate":     {func(b *bench) { record(`{"uuid":"u","reset":true}`)(b); b.callOff("cp-4") }, false},
		"Accepted":           {accept(own), true},
		"AcceptedForAnother": {accept("00000000-0000-4000-8000-000000000001"), false},
		"AcceptedForNone":    {accept(""), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 3, four, nil)
			tc.change(b)
			err := b.final.RemoveFinalizer(context.Background(), b.get("cp-4"))
			if gone := len(b.get("cp-4").GetFinalizers()) == 0; gone != tc.gone || (err == nil) != tc.gone {
				t.Errorf("gone: %t (%v), want %t", gone, err, tc.gone)
			}
		})
	}
}

// TestFinalizerGivesTheLockBack: what holds the lock must not outlive its object.
func TestFinalizerGivesTheLockBack(t *testing.T) {
	for name, change := range map[string]func(b *bench){
		"Completed": func(b *bench) { b.annotate("cp-4", v1alpha1.AnnotationRemovalRecord, `{"uuid":"u","completed":true}`) },
		"Unapproved": func(b *bench) {
			b.change("cp-4", func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.Approved = false })
		},
		"ClusterGone": func(b *bench) {
			b.callOff("cp-4")
			c := b.cluster()
			c.SetFinalizers(nil)
			b.must(b.mgmt.Update(context.Background(), c))
			b.must(b.mgmt.Delete(context.Background(), c))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 3, four, nil)
			locks := clusterlock.New(b.mgmt, b.mgmt, b.clock)
			_, err := locks.Acquire(context.Background(), leaseKey(), holderOf(b.get("cp-4"), purposeRemoval))
			b.must(err)
			change(b)
			b.must(b.letGo("cp-4"))
			if info := b.lockHolder(); info != nil {
				t.Errorf("the lock is held by %+v, whose object is gone", info)
			}
		})
	}
}

// deafLocks cannot be read.
type deafLocks struct{ disruption.Locks }

var errDeaf = errors.New("the API server is down")

func (deafLocks) Peek(context.Context, types.NamespacedName) (*clusterlock.Info, error) {
	return nil, errDeaf
}

// TestFinalizerNeedsToKnowTheLock: a lock that cannot be read may be held, and its cordon may stand.
func TestFinalizerNeedsToKnowTheLock(t *testing.T) {
	b := newBench(t, 3, four, nil)
	b.callOff("cp-4")
	b.final.gate = disruption.NewGate(deafLocks{}, b.mgmt)
	if err := b.letGo("cp-4"); !errors.Is(err, errDeaf) || len(b.get("cp-4").GetFinalizers()) == 0 {
		t.Errorf("RemoveFinalizer: %v; finalizers %q", err, b.get("cp-4").GetFinalizers())
	}
}

// TestUntouchedMachineIsLetGo: a machine that nothing was begun with may be given up, whatever became of it.
func TestUntouchedMachineIsLetGo(t *testing.T) {
	b := newBench(t, 3, four, nil)
	x := b.box("cp-4") // A person took it out of etcd and wiped it.
	b.removeMember(x.member)
	x.stage, x.active, x.persistent = "maintenance", nil, nil
	b.callOff("cp-4")
	b.must(b.letGo("cp-4"))
	if sent := b.sent(); len(sent) > 0 {
		t.Errorf("it was sent: %q", sent)
	}
}

// TestUntouchedMachineNeedsNoCluster: with nothing to undo, a cluster that cannot be opened, or surveyed, keeps nobody.
func TestUntouchedMachineNeedsNoCluster(t *testing.T) {
	b := newBench(t, 3, four, nil)
	b.conn.knock = func(context.Context, *v1alpha1.TalosCluster, bool) (Doors, error) {
		return nil, errors.New("the credentials are denied")
	}
	b.callOff("cp-4")
	b.must(b.letGo("cp-4"))
	if f := b.get("cp-4").GetFinalizers(); len(f) > 0 {
		t.Errorf("finalizers %q", f)
	}
}

// leavingBench is a bench in which cp-4 leaves etcd, and the lock is lost meanwhile: nothing but the leave itself says that
// there is no way back.
func leavingBench(t *testing.T) *bench {
	b := newBench(t, 3, four, nil)
	b.box("cp-4").leaving = make(chan struct{})
	b.remove("cp-4")
	b.passUntil("cp-4", func() bool { return b.leaves("cp-4") > 0 })
	return b
}

// TestNothingIsCalledOffWhileItLeaves: the leave may take effect at any time.
func TestNothingIsCalledOffWhileItLeaves(t *testing.T) {
	b := leavingBench(t)
	b.loseLock()
	b.callOff("cp-4")
	b.wantKept(b.letGo("cp-4"))
	close(b.box("cp-4").leaving)
	b.quiet("cp-4", b.background)
}

// TestCallOffLooksAfresh has a leave take effect after the last look of anybody.
func TestCallOffLooksAfresh(t *testing.T) {
	b := leavingBench(t)
	_, err := b.survey.Snapshot(context.Background(), types.NamespacedName{Namespace: namespace, Name: clusterName}, "uid-cp-4")
	b.must(err)
	close(b.box("cp-4").leaving)
	b.quiet("cp-4", b.background)
	b.loseLock()
	b.callOff("cp-4")
	b.wantKept(b.letGo("cp-4"))
}

// TestCallOffMeetsThePointOfNoReturn has another process go past it while a removal is being called off.
func TestCallOffMeetsThePointOfNoReturn(t *testing.T) {
	b := newBench(t, 3, four, nil)
	b.remove("cp-4")
	b.cordonBy("cp-4")
	b.callOff("cp-4")
	passed := false
	b.kube.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		if passed {
			return false, nil, nil
		}
		passed = true
		locks := clusterlock.New(b.mgmt, b.mgmt, b.clock)
		lock, err := locks.Acquire(context.Background(), leaseKey(), holderOf(b.get("cp-4"), purposeRemoval))
		b.must(err)
		b.must(lock.MarkIrreversible(context.Background()))
		return false, nil, nil
	})
	b.wantKept(b.letGo("cp-4"))
}
