package talosmachine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/clusterlock"
)

// needReboot declares what Talos cannot change while it runs.
func (b *bench) needReboot(name string) {
	b.t.Helper()
	b.change(name, func(m *v1alpha1.TalosMachine) {
		m.Spec.ForProvider.ConfigPatches = []v1alpha1.ConfigPatch{{Inline: "machine:\n  udev:\n    rules: [SUBSYSTEM==\"block\"]"}}
	})
}

// inSync passes over a machine until it runs what is declared and nothing of the reboot is left.
func (b *bench) inSync(name string) {
	b.t.Helper()
	for range maxPasses {
		b.pass(name)
		if b.dead {
			b.start()
		}
		if c := b.cordoned(); len(c) > 1 {
			b.violatedf("I3: more than one control plane is cordoned: %q", c)
		}
		at := b.get(name).Status.AtProvider
		if at.Config.State == v1alpha1.ConfigInSync && b.lockHolder() == nil && !b.node(name).Spec.Unschedulable && string(b.box(name).active) == string(b.rendered(name)) {
			return
		}
	}
	b.t.Fatalf("%s is not done after %d passes: %+v; sent: %q", name, maxPasses, b.get(name).Status, b.sent())
}

func TestRebootForConfig(t *testing.T) {
	b := newConfigured(t, four[:3], nil)
	b.needReboot("cp-2")
	b.inSync("cp-2")
	want := []string{
		"cp-2: ApplyConfig(3)",    // stage
		"kubernetes: patch nodes", // cordon
		"cp-2: Reboot",
		"kubernetes: patch nodes", // uncordon
	}
	if diff := cmp.Diff(want, b.sent()); diff != "" {
		t.Errorf("the steps of a reboot: -want, +got:\n%s", diff)
	}
	b.wantReason("cp-2", v1alpha1.TypeConfigApplied, corev1.ConditionTrue, v1alpha1.ReasonInSync)
}

// TestRebootSurvivesCrashes ends the process after each write of a reboot.
func TestRebootSurvivesCrashes(t *testing.T) {
	b := newConfigured(t, four[:3], nil)
	b.needReboot("cp-2")
	b.inSync("cp-2")
	for k := 1; k <= len(b.written()); k++ {
		for how, damage := range damages {
			t.Run(fmt.Sprintf("%sAfterWrite%d", how, k), func(t *testing.T) {
				c := newConfigured(t, four[:3], nil)
				c.needReboot("cp-2")
				c.dieAt, c.onDeath = k, func() { damage(c, "cp-2") }
				c.inSync("cp-2")
				if n := count(c.sent(), "Reboot"); n != 1 {
					t.Errorf("the machine was rebooted %d times: %q", n, c.sent())
				}
			})
		}
	}
}

// TestRebootedMeanwhile has the machine reboot by itself, once its new configuration is on its disk, between any two questions
// of the pass that would reboot it: then it needs no reboot any more.
func TestRebootedMeanwhile(t *testing.T) {
	about := func() *bench {
		b := newConfigured(t, four[:3], nil)
		b.needReboot("cp-2")
		b.passUntil("cp-2", func() bool { return b.node("cp-2").Spec.Unschedulable })
		return b
	}
	b := about()
	before := b.box("cp-2").questions
	b.pass("cp-2")
	if count(b.sent(), "Reboot") != 1 {
		t.Fatalf("it is not the pass that reboots it: %q", b.sent())
	}
	for n := 1; n < b.box("cp-2").questions-before; n++ {
		t.Run(fmt.Sprintf("AfterQuestion%d", n), func(t *testing.T) {
			b := about()
			b.box("cp-2").rebootsAfter = b.box("cp-2").questions + n
			b.inSync("cp-2")
			if sent := b.sent(); count(sent, "Reboot") > 0 || b.box("cp-2").boots != 1 {
				t.Errorf("in boot %d; sent: %q", b.box("cp-2").boots, sent)
			}
		})
	}
}

func TestRebootsGoOneAfterTheOther(t *testing.T) {
	b := newConfigured(t, four[:3], nil)
	for _, name := range four[:3] {
		b.needReboot(name)
	}
	waited := false
	for range maxPasses {
		for _, name := range four[:3] {
			b.pass(name)
			waited = waited || b.condition(name, v1alpha1.TypeConfigApplied).Reason == v1alpha1.ReasonWaitingForLock
			if c := b.cordoned(); len(c) > 1 {
				b.violatedf("I3: more than one control plane is cordoned: %q", c)
			}
		}
	}
	for _, name := range four[:3] {
		b.inSync(name)
	}
	if n := count(b.sent(), "Reboot"); n != 3 || !waited {
		t.Errorf("%d reboots, waited for the lock: %t", n, waited)
	}
}

func TestRebootParksWhileEven(t *testing.T) {
	b := newConfigured(t, four, []string{"w-1"})
	for _, name := range []string{"cp-2", "w-1"} {
		b.needReboot(name)
		for range 3 {
			b.pass(name)
		}
		if sent := b.sent(); len(sent) > 0 || b.lockHolder() != nil {
			t.Errorf("%s: a reboot while the number of control planes is even: sent %q, lock %v", name, sent, b.lockHolder())
		}
		if c := b.condition(name, v1alpha1.TypeConfigApplied); !strings.Contains(c.Message, "even") {
			t.Errorf("%s: the condition does not say why: %+v", name, c)
		}
	}
}

// TestRefusedRebootHoldsNothing: the only control plane is rebooted by nobody but a person. Its configuration is staged.
func TestRefusedRebootHoldsNothing(t *testing.T) {
	b := newConfigured(t, four[:1], nil)
	b.needReboot("cp-1")
	b.passUntil("cp-1", func() bool { return b.get("cp-1").Status.AtProvider.Config.State == v1alpha1.ConfigStaged })
	b.forget()
	for range 3 {
		b.pass("cp-1")
	}
	for _, w := range b.written() {
		if strings.Contains(w, "Lease") || !strings.HasPrefix(w, "management:") {
			t.Errorf("a refused reboot took the lock or touched something: %q", b.written())
			break
		}
	}
	c := b.condition("cp-1", v1alpha1.TypeConfigApplied)
	if c.Reason != v1alpha1.ReasonNeedsReboot || !strings.Contains(c.Message, "control plane") {
		t.Errorf("the condition does not say why: %+v", c)
	}
}

// TestRebootStepsAsideForTheCure has the number become even between the cordon and the reboot.
func TestRebootStepsAsideForTheCure(t *testing.T) {
	b := newConfigured(t, four[:3], nil)
	b.needReboot("cp-2")
	b.passUntil("cp-2", func() bool { return slices.Contains(b.cordoned(), "cp-2") })
	x := b.join("cp-4", true)
	b.declare(x, v1alpha1.RoleControlPlane)
	x.active = b.rendered("cp-4")
	b.forget()
	b.pass("cp-2")
	if c := b.cordoned(); len(c) > 0 || b.lockHolder() != nil || count(b.sent(), "Reboot") > 0 {
		t.Errorf("a parked reboot holds something: cordoned %q, lock %v, sent %q", c, b.lockHolder(), b.sent())
	}
}

func TestCallOffOfAReboot(t *testing.T) {
	b := newConfigured(t, four[:3], nil)
	b.needReboot("cp-2")
	b.passUntil("cp-2", func() bool { return slices.Contains(b.cordoned(), "cp-2") })
	// The reboot of cp-2 is given up: its object is deleted without Delete in its policies.
	b.callOff("cp-2")
	b.must(b.mgmt.Delete(context.Background(), b.get("cp-2")))
	b.pass("cp-2")
	if c := b.cordoned(); b.get("cp-2") != nil || len(c) > 0 || b.lockHolder() != nil {
		t.Errorf("what the reboot did was not undone: cordoned %q, lock %v", c, b.lockHolder())
	}
}

// TestNoCallAfterTheLockIsLost has another disruption take the lock in the middle of a pass, between the survey under
// the lock and the step that was decided from it: I7.
func TestNoCallAfterTheLockIsLost(t *testing.T) {
	cordoned := func(b *bench) bool { return slices.Contains(b.sent(), "kubernetes: patch nodes") }
	aboutToReset := func(b *bench) bool {
		r, err := b.get("cp-4").RemovalRecord()
		b.must(err)
		return r != nil && r.Reset
	}
	cases := map[string]struct {
		begin func(b *bench)
		name  string
		until func(b *bench) bool // the step in question comes next
		op    string
	}{
		"Leave":  {begin: func(b *bench) { b.remove("cp-4") }, name: "cp-4", until: cordoned, op: "LeaveEtcd"},
		"Reset":  {begin: func(b *bench) { b.remove("cp-4") }, name: "cp-4", until: aboutToReset, op: "Reset"},
		"Reboot": {begin: func(b *bench) { b.needReboot("w-1") }, name: "w-1", until: cordoned, op: "Reboot"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			controlPlanes := four
			if tc.name == "w-1" {
				controlPlanes = four[:3]
			}
			b := newConfigured(t, controlPlanes, []string{"w-1"})
			if tc.name != "w-1" {
				b.declareFewer()
			}
			tc.begin(b)
			b.passUntil(tc.name, func() bool { return tc.until(b) })
			b.stealDuringSurvey()
			for range 6 {
				b.pass(tc.name)
			}
			if n := count(b.sent(), tc.op); n > 0 {
				t.Errorf("%s was sent although the lock was lost: %q", tc.op, b.sent())
			}
		})
	}
}

// declareFewer declares one control plane less than there are, so that one may go.
func (b *bench) declareFewer() {
	b.t.Helper()
	c := &v1alpha1.TalosCluster{}
	b.must(b.mgmt.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: clusterName}, c))
	c.Spec.ForProvider.ControlPlane.Count--
	b.must(b.mgmt.Update(context.Background(), c))
	b.forget()
}

// stealDuringSurvey has another disruption take the lock, by force, whenever the Nodes are read: a survey does that after
// the lock was taken.
func (b *bench) stealDuringSurvey() {
	b.kube.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		ctx := context.Background()
		key := types.NamespacedName{Namespace: namespace, Name: clusterlock.LeaseName(clusterName)}
		l := &coordinationv1.Lease{}
		b.must(b.mgmt.Get(ctx, key, l))
		l.Spec.HolderIdentity = ptr.To("TalosMachine/somebody-else")
		b.must(b.mgmt.Update(ctx, l))
		return false, nil, nil
	})
}
