package talosmachine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/act"
	"github.com/maesh/provider-ichor/internal/connect"
)

// cordonBy passes over a machine until its Node is cordoned.
func (b *bench) cordonBy(name string) {
	b.t.Helper()
	b.passUntil(name, func() bool { return b.node(name).Spec.Unschedulable })
}

// declareCount changes how many control planes are declared, as a person does.
func (b *bench) declareCount(n int) {
	b.t.Helper()
	c := b.cluster()
	c.Spec.ForProvider.ControlPlane.Count = n
	b.must(b.mgmt.Update(context.Background(), c))
}

// TestTheLookComesAfterTheLock has another control plane die at the moment in which a pass gets the lock, once for each pass
// of a removal. What was seen before that moment must not let the leave through.
func TestTheLookComesAfterTheLock(t *testing.T) {
	for n, done := 0, false; !done && !t.Failed(); n++ {
		t.Run(fmt.Sprintf("Pass%d", n), func(t *testing.T) {
			b := newBench(t, 3, four, nil)
			b.remove("cp-4")
			for range n {
				b.pass("cp-4")
			}
			if done = count(b.sent(), "LeaveEtcd") > 0; done {
				return
			}
			if n > maxPasses {
				t.Fatal("the removal never came to the leave")
			}
			b.onWrite = func(what string) {
				if strings.HasSuffix(what, "*v1.Lease") {
					b.onWrite, b.box("cp-2").unreachable = nil, true
				}
			}
			for range 3 {
				b.pass("cp-4")
			}
			if b.onWrite != nil {
				t.Fatal("no pass took the lock")
			}
			if count(b.sent(), "LeaveEtcd") > 0 {
				t.Errorf("cp-4 left although cp-2 was dead: %q", b.sent())
			}
		})
	}
}

// TestTeardownOfAnEvenCluster: nothing parks a teardown, or its workers, which go first, would wait for control planes that
// wait for them.
func TestTeardownOfAnEvenCluster(t *testing.T) {
	b := newBench(t, 3, four, []string{"w-1"})
	b.tearDown()
	b.passUntil("w-1", func() bool { return b.box("w-1").stage == "maintenance" })
}

// TestRefusedRemovalThatLostItsLock undoes its cordon all the same: nobody else may be disturbed while a machine is cordoned
// that nobody removes.
func TestRefusedRemovalThatLostItsLock(t *testing.T) {
	b := newBench(t, 3, four, nil)
	b.remove("cp-4")
	b.cordonBy("cp-4")
	b.loseLock()
	b.declareCount(5)
	for range 3 {
		b.pass("cp-4")
	}
	if b.node("cp-4").Spec.Unschedulable || b.removalReason("cp-4") != v1alpha1.ReasonBelowDeclaredCount {
		t.Errorf("it is refused (%s) and cordoned: %t", b.removalReason("cp-4"), b.node("cp-4").Spec.Unschedulable)
	}
}

// TestUnknownCordonKeepsTheLock: while nobody can tell whether a removal has cordoned its machine, no other may begin.
func TestUnknownCordonKeepsTheLock(t *testing.T) {
	for name, change := range map[string]func(b *bench){
		"Waits":   func(*bench) {},
		"Refused": func(b *bench) { b.declareCount(5) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 3, four, nil)
			b.remove("cp-4")
			b.cordonBy("cp-4")
			b.kubeErr = errors.New("connection refused")
			change(b)
			for range 3 {
				b.pass("cp-4")
			}
			if info := b.lockHolder(); info == nil || info.Holder.Name != "cp-4" {
				t.Errorf("cp-4 is cordoned, and the lock is held by %+v", info)
			}
		})
	}
}

// TestStepAsideNeedsItsUncordon: a lock that is given back before the cordon is undone lets a second machine go out of service.
func TestStepAsideNeedsItsUncordon(t *testing.T) {
	for name, fail := range map[string]func(b *bench, err error){
		"Closed": func(b *bench, err error) { b.closed = err },
		"Down":   func(b *bench, err error) { b.kubeErr = err },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 3, four, nil)
			b.remove("cp-4")
			b.cordonBy("cp-4")
			m := b.get("cp-4")
			e, err := b.conn.open(context.Background(), m)
			b.must(err)
			broken := errors.New("broken")
			fail(b, broken)
			if err := e.stepAside(context.Background(), m, holderOf(m, purposeRemoval), true); !errors.Is(err, broken) {
				t.Errorf("stepAside: %v", err)
			}
			if b.lockHolder() == nil {
				t.Error("the lock was given back")
			}
		})
	}
}

// TestNothingIsUndoneWithoutItsMark has a person delete the Lease after the leave, and with it the mark that there is no way
// back. A refusal undoes nothing all the same: pods that came back would go down with the machine.
func TestNothingIsUndoneWithoutItsMark(t *testing.T) {
	b := newBench(t, 3, four, nil)
	b.remove("cp-4")
	b.passUntil("cp-4", func() bool { return count(b.sent(), "LeaveEtcd") > 0 })
	b.loseLock()
	twin := b.get("cp-4").DeepCopy()
	twin.ObjectMeta = metav1.ObjectMeta{Namespace: "other", Name: "twin", UID: "twin"}
	b.must(b.mgmt.Create(context.Background(), twin))
	for range 3 {
		b.pass("cp-4")
	}
	if !b.node("cp-4").Spec.Unschedulable || b.removalReason("cp-4") != v1alpha1.ReasonDuplicateMachine {
		t.Errorf("it is refused (%s) and cordoned: %t", b.removalReason("cp-4"), b.node("cp-4").Spec.Unschedulable)
	}
}

// TestRemovalOfAClosedCluster says what is missing, and sends nothing.
func TestRemovalOfAClosedCluster(t *testing.T) {
	b := newBench(t, 3, four, nil)
	b.remove("cp-4")
	b.conn.knock = func(context.Context, *v1alpha1.TalosCluster, bool) (Doors, error) {
		return nil, &connect.NotReadyError{Cluster: clusterName, Message: "its PKI does not exist"}
	}
	m := b.get("cp-4")
	e, err := b.conn.open(context.Background(), m)
	b.must(err)
	if _, err := e.Delete(context.Background(), m); err == nil || !strings.Contains(err.Error(), "its PKI does not exist") {
		t.Errorf("Delete: %v", err)
	}
	if sent := b.sent(); len(sent) > 0 {
		t.Errorf("it was sent: %q", sent)
	}
}

// TestDrainOptions: each loss is chosen by itself, by the machine or by its site.
func TestDrainOptions(t *testing.T) {
	type drain = v1alpha1.MachineDrain
	force, data := drain{Force: true}, drain{DeleteEmptyDirData: true}
	for name, tc := range map[string]struct {
		own, site drain
		want      act.DrainOptions
	}{
		"Nobody":    {want: act.DrainOptions{}},
		"OwnForce":  {own: force, want: act.DrainOptions{Force: true}},
		"SiteForce": {site: force, want: act.DrainOptions{Force: true}},
		"OwnData":   {own: data, want: act.DrainOptions{DeleteEmptyDirData: true}},
		"SiteData":  {site: data, want: act.DrainOptions{DeleteEmptyDirData: true}},
		"Both":      {own: force, site: data, want: act.DrainOptions{Force: true, DeleteEmptyDirData: true}},
	} {
		m := &v1alpha1.TalosMachine{}
		m.Spec.ForProvider.Drain = tc.own
		e := &external{doors: worldDoors{w: &world{site: tc.site}}}
		if diff := cmp.Diff(tc.want, e.drainOptions(m)); diff != "" {
			t.Errorf("%s: -want, +got:\n%s", name, diff)
		}
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
