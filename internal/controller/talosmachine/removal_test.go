package talosmachine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/clusterlock"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/talos"
)

// maxPasses is more than any walk here needs.
const maxPasses = 60

var four = []string{"cp-1", "cp-2", "cp-3", "cp-4"}

// walk passes over a machine until its object is gone, restarting the process whenever it died.
func (b *bench) walk(name string) {
	b.t.Helper()
	for range maxPasses {
		b.pass(name)
		if b.dead {
			b.start()
		}
		if c := b.cordoned(); len(c) > 1 {
			b.violatedf("I3: more than one control plane is cordoned: %q", c)
		}
		if b.get(name) == nil {
			return
		}
	}
	m := b.get(name)
	b.t.Fatalf("%s is still there after %d passes: %+v; sent: %q", name, maxPasses, m.Status, b.sent())
}

// removed checks what must be true once a machine is gone (I4, I6).
func (b *bench) removed(name string) {
	b.t.Helper()
	x := b.box(name)
	if x.stage != "maintenance" || x.active != nil {
		b.violatedf("I4: the object of %s is gone, but the machine is in stage %q", name, x.stage)
	}
	if _, ok := b.members[x.member]; ok && x.controlPlane {
		b.violatedf("I4: the object of %s is gone, but etcd lists its member", name)
	}
	if b.node(name) != nil {
		b.violatedf("the object of %s is gone, but its Node is not", name)
	}
	if info := b.lockHolder(); info != nil {
		b.violatedf("the lock is still held by %s %q", info.Holder.Kind, info.Holder.Name)
	}
}

func (b *bench) lockHolder() *clusterlock.Info {
	b.t.Helper()
	info, err := b.conn.gate.Peek(context.Background(), types.NamespacedName{Namespace: namespace, Name: clusterName})
	b.must(err)
	return info
}

func TestRemoveControlPlane(t *testing.T) {
	b := newBench(t, 3, four, nil)
	b.remove("cp-4")
	b.walk("cp-4")
	b.removed("cp-4")
	want := []string{
		"kubernetes: patch nodes", // cordon
		"cp-4: LeaveEtcd",
		"cp-4: Reset",
		"kubernetes: delete nodes",
	}
	if diff := cmp.Diff(want, b.sent()); diff != "" {
		t.Errorf("the steps of a removal: -want, +got:\n%s", diff)
	}
}

func TestRemoveLeader(t *testing.T) {
	b := newBench(t, 3, four, nil)
	b.remove("cp-1")
	b.walk("cp-1")
	b.removed("cp-1")
	want := []string{
		"kubernetes: patch nodes",
		"cp-1: ForfeitLeadership",
		"cp-1: LeaveEtcd",
		"cp-1: Reset",
		"kubernetes: delete nodes",
	}
	if diff := cmp.Diff(want, b.sent()); diff != "" {
		t.Errorf("the steps of the removal of a leader: -want, +got:\n%s", diff)
	}
}

func TestRemoveWorker(t *testing.T) {
	b := newBench(t, 3, four[:3], []string{"w-1"})
	b.remove("w-1")
	b.walk("w-1")
	b.removed("w-1")
	want := []string{"kubernetes: patch nodes", "w-1: Reset", "kubernetes: delete nodes"}
	if diff := cmp.Diff(want, b.sent()); diff != "" {
		t.Errorf("the steps of the removal of a worker: -want, +got:\n%s", diff)
	}
}

// TestRemovalSurvivesCrashes ends the process after each of its writes, once per write: to the management cluster, to the
// cluster's own Kubernetes and to machines.
func TestRemovalSurvivesCrashes(t *testing.T) {
	for name, victim := range map[string]string{"Leader": "cp-1", "Follower": "cp-4", "Worker": "w-1"} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 3, four, []string{"w-1"})
			if victim == "w-1" {
				b = newBench(t, 3, four[:3], []string{"w-1"})
			}
			b.remove(victim)
			b.walk(victim)
			for k := 1; k <= len(b.written()); k++ {
				for how, damage := range damages {
					t.Run(fmt.Sprintf("%sAfterWrite%d", how, k), func(t *testing.T) {
						c := newBench(t, 3, b.controlPlanes(), []string{"w-1"})
						c.remove(victim)
						c.dieAt, c.onDeath = k, func() { damage(c, victim) }
						c.walk(victim)
						c.removed(victim)
						if n := count(c.sent(), "LeaveEtcd"); n > 1 {
							c.violatedf("the leave was sent %d times", n)
						}
					})
				}
			}
		})
	}
}

// TestTwoRemovalsSurviveCrashes asks for two control planes of four, where three are declared, and ends the process after each
// write: one goes, and the other has to stay, whatever the next process takes for true.
func TestTwoRemovalsSurviveCrashes(t *testing.T) {
	both := []string{"cp-3", "cp-4"}
	ask := func(t *testing.T) *bench {
		b := newBench(t, 3, four, nil)
		for _, name := range both {
			b.remove(name)
		}
		return b
	}
	walk := func(b *bench) {
		for round, more := 0, 8; more > 0 && round < maxPasses; round++ {
			for _, name := range both {
				if b.get(name) == nil {
					more--
					continue
				}
				b.pass(name)
				if b.dead {
					b.start()
				}
			}
		}
	}
	b := ask(t)
	walk(b)
	for k := 1; k <= len(b.written()); k++ {
		for _, how := range []string{"CacheBehind", "SecondReplica"} {
			t.Run(fmt.Sprintf("%sAfterWrite%d", how, k), func(t *testing.T) {
				c := ask(t)
				c.dieAt, c.onDeath = k, func() { damages[how](c, "cp-3") }
				walk(c)
				left := slices.DeleteFunc(slices.Clone(both), func(name string) bool { return c.get(name) == nil })
				if len(left) != 1 || len(c.members) != 3 || count(c.sent(), "LeaveEtcd") != 1 {
					c.violatedf("of %q there are %q left, and %d members", both, left, len(c.members))
				}
			})
		}
	}
}

// damages are what may go wrong besides, when the process ends.
var damages = map[string]func(b *bench, victim string){
	"Nothing": func(*bench, string) {},
	// A management cluster that is restored from a backup has lost the status of everything.
	"StatusLost": func(b *bench, victim string) {
		if m := b.get(victim); m != nil {
			m.Status = v1alpha1.TalosMachineStatus{}
			b.must(b.mgmt.Status().Update(context.Background(), m))
		}
	},
	"LockLost": func(b *bench, _ string) {
		b.must(b.mgmt.DeleteAllOf(context.Background(), &coordinationv1.Lease{}, client.InNamespace(namespace)))
	},
	// Two providers that both think that they lead, as after a lease that expired under one that was paused.
	"SecondReplica": func(b *bench, _ string) {
		twin := b.newProcess()
		b.twin = &twin
	},
	// A cache that is filled from an API server that lags behind shows each object as it was before its last write.
	"CacheBehind": func(b *bench, _ string) { b.behind = true },
}

func (b *bench) controlPlanes() []string {
	var names []string
	for _, x := range b.boxes {
		if x.controlPlane {
			names = append(names, x.name)
		}
	}
	return names
}

func count(calls []string, op string) int {
	n := 0
	for _, c := range calls {
		if strings.HasSuffix(c, ": "+op) {
			n++
		}
	}
	return n
}

// TestRemovalSurvivesAnswers has calls answer what did not happen, or not tell what did.
func TestRemovalSurvivesAnswers(t *testing.T) {
	class := func(c talos.Class) error {
		return &talos.Error{Op: "x", Address: "y", Class: c, Err: errors.New("boom")}
	}
	cases := map[string]struct {
		reason string
		op     string
		takes  bool
		err    error
		times  int // how often the call may be sent
	}{
		"LeftButError":     {reason: "The leave happened and its answer was lost: it is not sent again.", op: "LeaveEtcd", takes: true, err: class(talos.Ambiguous), times: 1},
		"LeftButRefused":   {reason: "A leave that happened is not sent again, whatever its answer was.", op: "LeaveEtcd", takes: true, err: class(talos.Other), times: 1},
		"NotLeft":          {reason: "A leave that did not happen is sent again, after a look.", op: "LeaveEtcd", err: class(talos.EtcdUnhealthy), times: 2},
		"OKButNotLeft":     {reason: "OK proves nothing.", op: "LeaveEtcd", times: 2},
		"OKButNotReset":    {reason: "Talos answers OK to a reset that it refuses.", op: "Reset", times: 2},
		"ResetButError":    {reason: "The reset began and its answer was lost.", op: "Reset", takes: true, err: class(talos.Ambiguous), times: 1},
		"LeadershipFailed": {reason: "Leadership that stays is moved again.", op: "ForfeitLeadership", err: class(talos.Other), times: 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 3, four, nil)
			first := true
			b.box("cp-1").fault = func(op string) (bool, error) {
				if op != tc.op || !first {
					return true, nil
				}
				first = false
				return tc.takes, tc.err
			}
			b.remove("cp-1")
			b.walk("cp-1")
			b.removed("cp-1")
			if n := count(b.sent(), tc.op); n != tc.times {
				t.Errorf("\n%s\n%s was sent %d times, want %d: %q", tc.reason, tc.op, n, tc.times, b.sent())
			}
		})
	}
}

func TestRefusedRemovalSendsNothing(t *testing.T) {
	cases := map[string]struct {
		reason string
		bench  func(t *testing.T) *bench
		victim string
		want   xpv2.ConditionReason
	}{
		"BelowDeclared": {
			reason: "Three declared control planes do not become two.",
			bench:  func(t *testing.T) *bench { return newBench(t, 3, four[:3], nil) },
			victim: "cp-3", want: "BelowDeclaredCount",
		},
		"Quorum": {
			reason: "Two control planes do not become one.",
			bench:  func(t *testing.T) *bench { return newBench(t, 1, four[:2], nil) },
			victim: "cp-2", want: "QuorumWouldBreak",
		},
		"Last": {
			reason: "The last control plane stays.",
			bench:  func(t *testing.T) *bench { return newBench(t, 1, four[:1], nil) },
			victim: "cp-1", want: "LastControlPlane",
		},
		"OtherSick": {
			reason: "A healthy one does not go while another is sick.",
			bench: func(t *testing.T) *bench {
				b := newBench(t, 3, four, nil)
				b.box("cp-1").unreachable = true
				b.leader = b.box("cp-2").member
				return b
			},
			victim: "cp-4", want: "OtherMemberUnhealthy",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := tc.bench(t)
			b.remove(tc.victim)
			for range 3 {
				if res := b.pass(tc.victim); res.RequeueAfter != pass {
					t.Errorf("\n%s\na refusal is looked at again after %+v, want %s", tc.reason, res, pass)
				}
			}
			if got := b.removalReason(tc.victim); got != tc.want {
				t.Errorf("\n%s\nreason %q, want %q: %s", tc.reason, got, tc.want, b.get(tc.victim).GetCondition(v1alpha1.TypeRemoval).Message)
			}
			if synced := b.get(tc.victim).GetCondition(xpv2.TypeSynced); synced.Status != corev1.ConditionFalse {
				t.Errorf("\n%s\nthe refusal does not show in Synced: %+v", tc.reason, synced)
			}
			if sent := b.sent(); len(sent) > 0 {
				t.Errorf("\n%s\nit was sent: %q", tc.reason, sent)
			}
			for _, w := range b.written() {
				if strings.Contains(w, "Lease") {
					t.Errorf("\n%s\nthe lock was taken: %q", tc.reason, b.written())
				}
			}
		})
	}
}

func TestRemovalWithoutPermissionIsRefused(t *testing.T) {
	b := newBench(t, 3, four, nil)
	b.must(b.mgmt.Delete(context.Background(), b.get("cp-4")))
	b.pass("cp-4")
	if got := b.removalReason("cp-4"); got != "NotAllowed" || len(b.sent()) > 0 {
		t.Errorf("a delete that nobody allowed: reason %q, sent %q", got, b.sent())
	}
}

// TestSnapshotFromBeforeThePermissionRefusesNothing has a person allow and delete a machine just after a survey was made
// for the status.
func TestSnapshotFromBeforeThePermissionRefusesNothing(t *testing.T) {
	b := newBench(t, 3, four, nil)
	b.clock.SetTime(metav1.Now().Time)
	_, err := b.survey.Snapshot(context.Background(), types.NamespacedName{Namespace: namespace, Name: clusterName}, facts.MachineID(b.get("cp-4").GetUID()))
	b.must(err)
	b.remove("cp-4")
	b.pass("cp-4")
	if got := b.removalReason("cp-4"); got != v1alpha1.ReasonStepRecord {
		t.Errorf("reason %q, want the first step: %s", got, b.get("cp-4").GetCondition(v1alpha1.TypeRemoval).Message)
	}
}

// TestRemovableEndsWithTheDeletion has a machine look at what a removal would be told, and then be removed: what was told
// before is not true any more.
func TestRemovableEndsWithTheDeletion(t *testing.T) {
	b := newConfigured(t, four, nil)
	b.pass("cp-4")
	if got := b.condition("cp-4", v1alpha1.TypeRemovable).Status; got != corev1.ConditionFalse {
		t.Fatalf("a machine that is declared and not allowed to go is Removable %s", got)
	}
	b.remove("cp-4")
	b.pass("cp-4")
	if c := b.condition("cp-4", v1alpha1.TypeRemovable); c.Message != "" {
		t.Errorf("a removal that goes on is said to be: %s", c.Message)
	}
}

func TestTwoRemovalsGoOneAfterTheOther(t *testing.T) {
	b := newBench(t, 3, []string{"cp-1", "cp-2", "cp-3", "cp-4", "cp-5"}, nil)
	b.remove("cp-4")
	b.remove("cp-5")
	waited := false
	for range maxPasses {
		for _, name := range []string{"cp-5", "cp-4"} {
			if b.get(name) != nil {
				b.pass(name)
			}
			if m := b.get(name); m != nil && m.GetCondition(v1alpha1.TypeRemoval).Reason == v1alpha1.ReasonWaitingForLock {
				waited = true
			}
			if c := b.cordoned(); len(c) > 1 {
				b.violatedf("I3: more than one control plane is cordoned: %q", c)
			}
		}
	}
	if b.get("cp-4") != nil || b.get("cp-5") != nil {
		t.Fatalf("a removal did not end: %q", b.sent())
	}
	b.removed("cp-4")
	b.removed("cp-5")
	if !waited {
		t.Error("no removal said that it waits for the lock")
	}
}

// TestLongLeave has a leave take longer than many passes.
func TestLongLeave(t *testing.T) {
	b := newBench(t, 3, four, nil)
	x := b.box("cp-4")
	x.leaving = make(chan struct{})
	b.remove("cp-4")
	b.passUntil("cp-4", func() bool { return b.background.Running("uid-cp-4") })
	b.forget()
	for range 10 {
		if res := b.pass("cp-4"); res.RequeueAfter != pass {
			t.Errorf("a leave is looked at again after %+v, want %s", res, pass)
		}
	}
	for _, w := range b.written() {
		if w != "management: update status *v1alpha1.TalosMachine" && w != "management: update *v1.Lease" { // renewed by the leave
			t.Errorf("something was done while the machine leaves etcd: %q", b.written())
			break
		}
	}
	if c := b.get("cp-4").GetCondition(v1alpha1.TypeRemoval); c.Reason != v1alpha1.ReasonStepLeaveEtcd {
		t.Errorf("the condition does not say that the machine leaves etcd: %+v", c)
	}
	b.callOff("cp-4")
	b.pass("cp-4")
	if b.get("cp-4") == nil {
		t.Fatal("a machine was given up in the middle of its leave")
	}
	if !slices.Contains(b.cordoned(), "cp-4") {
		t.Error("a machine that leaves etcd was uncordoned")
	}
	b.change("cp-4", func(m *v1alpha1.TalosMachine) {
		m.SetManagementPolicies(xpv2.ManagementPolicies{xpv2.ManagementActionAll})
	})
	close(x.leaving)
	b.quiet("cp-4", b.background)
	x.leaving = nil
	b.walk("cp-4")
	b.removed("cp-4")
	if n := count(b.sent(), "LeaveEtcd"); n != 1 {
		t.Errorf("the leave was sent %d times", n)
	}
}

// TestFailingLeaveIsTold is about a leave that fails each time: a person must see why nothing goes on.
func TestFailingLeaveIsTold(t *testing.T) {
	b := newBench(t, 3, four, nil)
	b.box("cp-4").fault = func(op string) (bool, error) {
		if op != "LeaveEtcd" {
			return true, nil
		}
		return false, errors.New("etcdserver: unhealthy cluster")
	}
	b.remove("cp-4")
	b.passUntil("cp-4", func() bool {
		return strings.Contains(b.get("cp-4").GetCondition(v1alpha1.TypeRemoval).Message, "etcdserver: unhealthy cluster. If that goes on")
	})
	if n := count(b.sent(), "Reset"); n > 0 {
		t.Errorf("a machine that could not leave etcd was reset %d times", n)
	}
	b.box("cp-4").fault = nil
	b.walk("cp-4")
	b.removed("cp-4")
}

// tightenBudget runs a pod on a Node that a budget keeps there, until it is relaxed.
func (b *bench) tightenBudget(node string) (relax func()) {
	b.t.Helper()
	b.must(b.kube.Tracker().Add(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "tight"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
	}))
	b.must(b.kube.Tracker().Add(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "apps", Name: "db-0",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{NodeName: node},
	}))
	tight := true
	b.kube.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		if tight {
			return true, nil, kerrors.NewTooManyRequests("no", 1)
		}
		return true, nil, b.kube.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "apps", "db-0")
	})
	return func() { tight = false }
}

func TestDrainBlockedWaits(t *testing.T) {
	b := newBench(t, 3, four, nil)
	relax := b.tightenBudget("cp-4")
	b.remove("cp-4")
	for range 5 {
		b.pass("cp-4")
	}
	c := b.get("cp-4").GetCondition(v1alpha1.TypeRemoval)
	if c.Reason != v1alpha1.ReasonDrainBlocked || !strings.Contains(c.Message, `"tight"`) || !strings.Contains(c.Message, "apps/db-0") {
		t.Errorf("the condition does not name pod and budget: %+v", c)
	}
	if n := count(b.sent(), "LeaveEtcd"); n > 0 {
		t.Error("a machine left etcd with its Node not drained")
	}
	if res := b.pass("cp-4"); res.RequeueAfter != pass {
		t.Errorf("a blocked drain is asked for again after %+v, want %s", res, pass)
	}
	for range 50 { // more than the default of ten minutes
		b.pass("cp-4")
	}
	if c := b.get("cp-4").GetCondition(v1alpha1.TypeRemoval); !strings.Contains(c.Message, "longer than 10m0s") {
		t.Errorf("the condition does not say that the drain takes too long: %+v", c)
	}
	relax()
	b.walk("cp-4")
	b.removed("cp-4")
}

func TestHoldKeepsARemovalReversible(t *testing.T) {
	b := newBench(t, 3, four, nil)
	b.annotate("cp-4", v1alpha1.AnnotationHoldPrefix+"storage", "moving replicas")
	b.remove("cp-4")
	for range 8 {
		b.pass("cp-4")
	}
	c := b.get("cp-4").GetCondition(v1alpha1.TypeRemoval)
	if !strings.Contains(c.Message, "storage") || !strings.Contains(c.Message, "moving replicas") {
		t.Errorf("the condition does not say who holds and why: %+v", c)
	}
	if count(b.sent(), "LeaveEtcd") > 0 || !slices.Contains(b.cordoned(), "cp-4") {
		t.Errorf("a hold must stop a removal after the drain and before the leave: %q", b.sent())
	}
	b.change("cp-4", func(m *v1alpha1.TalosMachine) {
		meta.RemoveAnnotations(m, v1alpha1.AnnotationHoldPrefix+"storage")
	})
	b.walk("cp-4")
	b.removed("cp-4")
}

// callOff takes Delete out of the management policies, as a person does to call a removal off.
func (b *bench) callOff(name string) {
	b.t.Helper()
	b.change(name, func(m *v1alpha1.TalosMachine) {
		m.SetManagementPolicies(xpv2.ManagementPolicies{xpv2.ManagementActionObserve, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate})
	})
}

func TestCallOff(t *testing.T) {
	b := newBench(t, 3, four, nil)
	b.annotate("cp-4", v1alpha1.AnnotationHoldPrefix+"me", "thinking")
	b.remove("cp-4")
	for range 8 {
		b.pass("cp-4")
	}
	if !slices.Contains(b.cordoned(), "cp-4") || b.lockHolder() == nil {
		t.Fatal("the removal did not get to its cordon")
	}
	b.callOff("cp-4")
	b.pass("cp-4")
	if b.get("cp-4") != nil {
		t.Fatalf("the machine was not given up: %+v", b.get("cp-4").Status.Conditions)
	}
	if c := b.cordoned(); len(c) > 0 || b.lockHolder() != nil {
		t.Errorf("what the removal did was not undone: cordoned %q, lock %v", c, b.lockHolder())
	}
	if diff := cmp.Diff([]string{"kubernetes: patch nodes"}, b.sent()); diff != "" {
		t.Errorf("calling off a removal: -want, +got:\n%s", diff)
	}
}

func TestCallOffIsTooLateAfterTheLeave(t *testing.T) {
	for name, lose := range map[string]func(*bench){
		"Lock": func(*bench) {},
		"NoLock": func(b *bench) {
			b.must(b.mgmt.DeleteAllOf(context.Background(), &coordinationv1.Lease{}, client.InNamespace(namespace)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 3, four, nil)
			b.remove("cp-4")
			b.passUntil("cp-4", func() bool { return count(b.sent(), "LeaveEtcd") > 0 })
			lose(b)
			b.callOff("cp-4")
			b.pass("cp-4")
			if b.get("cp-4") == nil {
				t.Fatal("a machine that has left etcd was given up with its data on disk")
			}
			synced := b.get("cp-4").GetCondition(xpv2.TypeSynced)
			if !strings.Contains(synced.Message, "point of no return") {
				t.Errorf("the refusal does not say why: %+v", synced)
			}
			b.change("cp-4", func(m *v1alpha1.TalosMachine) {
				m.SetManagementPolicies(xpv2.ManagementPolicies{xpv2.ManagementActionAll})
			})
			b.walk("cp-4")
			b.removed("cp-4")
		})
	}
}

func TestUnapprovedMachineGoesAtOnce(t *testing.T) {
	b := newBench(t, 3, four[:3], []string{"w-1"})
	b.change("w-1", func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.Approved = false })
	b.remove("w-1")
	b.pass("w-1")
	if b.get("w-1") != nil || len(b.sent()) > 0 {
		t.Errorf("a machine that was never approved has nothing to undo; sent %q", b.sent())
	}
}

func TestWorkerParksWhileEven(t *testing.T) {
	b := newBench(t, 3, four, []string{"w-1"})
	b.remove("w-1")
	b.pass("w-1")
	c := b.get("w-1").GetCondition(v1alpha1.TypeRemoval)
	if c.Reason != v1alpha1.ReasonClusterTransitioning || len(b.sent()) > 0 || b.lockHolder() != nil {
		t.Errorf("a worker's removal while the number is even: %+v, sent %q, lock %v", c, b.sent(), b.lockHolder())
	}
	b.remove("cp-4")
	b.walk("cp-4")
	b.walk("w-1")
	b.removed("w-1")
}

// TestWorkerStepsAsideForTheCure has the number of control planes become even in the middle of a worker's removal.
func TestWorkerStepsAsideForTheCure(t *testing.T) {
	b := newBench(t, 3, four[:3], []string{"w-1"})
	b.annotate("w-1", v1alpha1.AnnotationHoldPrefix+"me", "thinking")
	b.remove("w-1")
	for range 6 {
		b.pass("w-1")
	}
	if b.lockHolder() == nil || !b.node("w-1").Spec.Unschedulable {
		t.Fatal("the worker's removal did not get to its cordon")
	}
	b.declare(b.join("cp-4", true), v1alpha1.RoleControlPlane)
	b.pass("w-1")
	if b.lockHolder() != nil || b.node("w-1").Spec.Unschedulable {
		t.Errorf("a parked removal holds the lock (%v) or its cordon, which blocks its own cure", b.lockHolder())
	}
}

func TestUnreachableMachineWaits(t *testing.T) {
	b := newBench(t, 3, four, nil)
	b.box("cp-4").unreachable = true
	b.remove("cp-4")
	for range 4 {
		b.pass("cp-4")
	}
	m := b.get("cp-4")
	if m == nil || len(b.sent()) > 0 {
		t.Fatalf("a machine that does not answer was taken for gone; sent %q", b.sent())
	}
	if b.lockHolder() != nil {
		t.Errorf("a removal that only waits holds the lock: %+v", m.GetCondition(v1alpha1.TypeRemoval))
	}
	b.box("cp-4").unreachable = false
	b.walk("cp-4")
	b.removed("cp-4")
}

// TestBegunRemovalThatOnlyWaitsHoldsNothing has a machine go silent after its removal has begun, before it disturbed
// anything.
func TestBegunRemovalThatOnlyWaitsHoldsNothing(t *testing.T) {
	b := newBench(t, 3, four, nil)
	b.remove("cp-4")
	b.passUntil("cp-4", func() bool { return hasRecord(b.get("cp-4")) })
	b.box("cp-4").unreachable = true
	b.pass("cp-4")
	if got := b.removalReason("cp-4"); got != v1alpha1.ReasonMachineUnreachable || b.lockHolder() != nil || len(b.cordoned()) > 0 {
		t.Errorf("reason %q, lock %v, cordoned %q", got, b.lockHolder(), b.cordoned())
	}
}

func TestUnreachableMachineIsRemovedThroughAPeer(t *testing.T) {
	b := newBench(t, 3, four, nil)
	x := b.box("cp-4")
	b.change("cp-4", func(m *v1alpha1.TalosMachine) {
		m.Spec.ForProvider.Unreachable.Policy = v1alpha1.UnreachableRemoveMember
		m.Status.AtProvider.Etcd = &v1alpha1.MachineEtcdObservation{MemberID: v1alpha1.FormatMemberID(x.member), Healthy: "unknown"}
	})
	m := b.get("cp-4")
	m.Status.AtProvider.Etcd = &v1alpha1.MachineEtcdObservation{MemberID: v1alpha1.FormatMemberID(x.member), Healthy: "unknown"}
	b.must(b.mgmt.Status().Update(context.Background(), m))
	x.unreachable = true
	b.remove("cp-4")
	for range 12 {
		b.pass("cp-4")
	}
	if _, ok := b.members[x.member]; ok {
		t.Fatalf("the member was not removed: %+v, sent %q", b.get("cp-4").GetCondition(v1alpha1.TypeRemoval), b.sent())
	}
	if b.get("cp-4") == nil {
		t.Fatal("the object is gone although the disk was not wiped and nobody accepted that")
	}
	b.annotate("cp-4", v1alpha1.AnnotationAcceptUnwipedDisk, x.uuid)
	b.walk("cp-4")
	for _, s := range b.sent() {
		if strings.HasPrefix(s, "cp-4:") {
			t.Errorf("a call was made to the machine that does not answer: %q", b.sent())
		}
	}
}

func TestOtherMachineAtTheAddressIsLeftAlone(t *testing.T) {
	b := newBench(t, 3, four, nil)
	b.pass("cp-4")
	was := b.get("cp-4").Status.AtProvider.Etcd.MemberID
	b.box("cp-4").uuid, b.box("cp-4").member = "00000000-0000-4000-8000-00000000dead", b.box("cp-3").member
	b.remove("cp-4")
	for range 5 {
		b.pass("cp-4")
	}
	if now := b.get("cp-4").Status.AtProvider.Etcd.MemberID; was == "" || now != was {
		t.Errorf("the member of cp-4 was %q, and is said to be %q while another machine answers", was, now)
	}
	if sent := b.sent(); len(sent) > 0 {
		t.Errorf("another machine has the address, and it was sent: %q", sent)
	}
	if got := b.removalReason("cp-4"); got != "IdentityMismatch" {
		t.Errorf("reason %q, want IdentityMismatch", got)
	}
}

// TestUnpinnedMachineNotesNoMember: the address of a machine that never had its configuration is another's, by a second name or
// since DHCP moved it. Noted for it, the member of the other one would go with it, also once the address is corrected.
func TestUnpinnedMachineNotesNoMember(t *testing.T) {
	b := newBench(t, 3, four, nil)
	b.box("cp-4").uuid, b.box("cp-4").member = b.box("cp-3").uuid, b.box("cp-3").member
	b.change("cp-4", func(m *v1alpha1.TalosMachine) { meta.SetExternalName(m, "") })
	for range 3 {
		b.pass("cp-4")
	}
	m := b.get("cp-4")
	if m.Status.AtProvider.Etcd == nil || m.Status.AtProvider.Etcd.MemberID != "" {
		t.Errorf("the member of cp-4 is said to be %+v, and it is that of cp-3", m.Status.AtProvider.Etcd)
	}
	if m.PinnedUUID() != "" || len(b.sent()) > 0 {
		t.Errorf("cp-4 was taken for %q, and sent %q", m.PinnedUUID(), b.sent())
	}
}

func (b *bench) isRemoved(name string) bool {
	b.t.Helper()
	r, err := b.get(name).RemovalRecord()
	b.must(err)
	return r != nil && r.Completed
}
