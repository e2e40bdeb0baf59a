package talosmachine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/act"
	"github.com/maesh/provider-ichor/internal/connect"
	"github.com/maesh/provider-ichor/internal/talos"
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
// of a disruption. What was seen before that moment must not let through what would cost etcd its quorum.
func TestTheLookComesAfterTheLock(t *testing.T) {
	cases := map[string]struct {
		begin        func(t *testing.T) *bench
		name, op, at string // at is the control plane that dies
	}{
		"Leave": {
			begin: func(t *testing.T) *bench {
				b := newBench(t, 3, four, nil)
				b.remove("cp-4")
				return b
			},
			name: "cp-4", op: "LeaveEtcd", at: "cp-2",
		},
		"Reboot": {
			begin: func(t *testing.T) *bench {
				b := newConfigured(t, four[:3], nil)
				b.needReboot("cp-2")
				return b
			},
			name: "cp-2", op: "Reboot", at: "cp-3",
		},
	}
	for name, tc := range cases {
		for n, done := 0, false; !done && !t.Failed(); n++ {
			t.Run(fmt.Sprintf("%sPass%d", name, n), func(t *testing.T) {
				b := tc.begin(t)
				for range n {
					b.pass(tc.name)
				}
				if done = count(b.sent(), tc.op) > 0; done {
					return
				}
				if n > maxPasses {
					t.Fatalf("it never came to the %s", tc.op)
				}
				b.onWrite = func(what string) {
					if strings.HasSuffix(what, "*v1.Lease") {
						b.onWrite, b.box(tc.at).unreachable = nil, true
					}
				}
				for range 3 {
					b.pass(tc.name)
				}
				if b.onWrite != nil {
					t.Fatal("no pass took the lock")
				}
				if count(b.sent(), tc.op) > 0 {
					t.Errorf("%s was sent %s although %s was dead: %q", tc.name, tc.op, tc.at, b.sent())
				}
			})
		}
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

// TestUnknownOutcomeIsNoFailure: an answer that was lost is a wait that says so, at its own pace, and not a failure.
func TestUnknownOutcomeIsNoFailure(t *testing.T) {
	b := newBench(t, 3, four[:3], []string{"w-1"})
	b.box("w-1").fault = func(op string) (bool, error) {
		return false, &talos.Error{Op: op, Address: "w-1", Class: talos.Ambiguous, Err: errors.New("no answer")}
	}
	b.remove("w-1")
	b.passUntil("w-1", func() bool { return count(b.sent(), "Reset") > 0 })
	if c := b.condition("w-1", v1alpha1.TypeRemoval); c.Reason != v1alpha1.ReasonOutcomeUnknown {
		t.Errorf("Removal is %s: %q", c.Reason, c.Message)
	}
	if c := b.condition("w-1", xpv2.TypeSynced); c.Reason != xpv2.ReasonReconcileSuccess {
		t.Errorf("Synced is %s: %q", c.Reason, c.Message)
	}
}

// TestTeardownWithoutKubernetesHoldsNothing: in a teardown nothing is cordoned, so that a machine that waits lets others go
// first, also when nobody can tell of its Node any more.
func TestTeardownWithoutKubernetesHoldsNothing(t *testing.T) {
	b := newBench(t, 3, four[:3], nil)
	b.tearDown()
	b.passUntil("cp-3", func() bool { return hasRecord(b.get("cp-3")) })
	b.kubeErr = errors.New("connection refused")
	b.box("cp-3").unreachable = true
	for range 3 {
		b.pass("cp-3")
	}
	if info := b.lockHolder(); info != nil {
		t.Errorf("the lock is held by %+v, which only waits (%s)", info, b.removalReason("cp-3"))
	}
}
