package talosmachine

import (
	"context"
	"slices"
	"strings"
	"testing"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// TestLastKnownIsNotShownAsNow has a machine die and come back. Nobody may read of it meanwhile that it runs, or runs what is
// declared: that is what it did before.
func TestLastKnownIsNotShownAsNow(t *testing.T) {
	b := newConfigured(t, four[:3], nil)
	b.pass("cp-3")
	b.showsNow("cp-3", "running", v1alpha1.ConfigInSync)
	b.box("cp-3").unreachable = true
	b.pass("cp-3")
	b.showsLastKnown("cp-3", v1alpha1.ReasonLastKnown, "InSync: The machine runs the declared configuration")
	b.pass("cp-3") // What was last known is not what was last told.
	b.showsLastKnown("cp-3", v1alpha1.ReasonLastKnown, "InSync: The machine runs the declared configuration")
	if at := b.get("cp-3").Status.AtProvider; at.NodeName != "cp-3" || at.UUID == "" {
		t.Errorf("it is forgotten which machine it is: %+v", at)
	}
	b.box("cp-3").unreachable = false
	b.pass("cp-3")
	b.showsNow("cp-3", "running", v1alpha1.ConfigInSync)
	b.wantReason("cp-3", v1alpha1.TypeConfigApplied, corev1.ConditionTrue, v1alpha1.ReasonInSync)
}

// TestAnotherMachineTellsNothingOfThisOne has another machine answer at the address.
func TestAnotherMachineTellsNothingOfThisOne(t *testing.T) {
	b := newConfigured(t, four[:3], []string{"w-1"})
	b.pass("w-1")
	b.box("w-1").uuid = "00000000-0000-4000-8000-00000000ffff"
	b.pass("w-1")
	b.wantReason("w-1", v1alpha1.TypeReachable, corev1.ConditionFalse, v1alpha1.ReasonIdentityMismatch)
	b.showsLastKnown("w-1", v1alpha1.ReasonLastKnown, "InSync: ")
}

// TestCallOffOfARebootOfADeadMachine has a machine die once it was cordoned for a reboot: what is last known of it then must
// not make the finalizer forget the cordon.
func TestCallOffOfARebootOfADeadMachine(t *testing.T) {
	b := newConfigured(t, four[:3], []string{"w-1"})
	b.needReboot("w-1")
	b.passUntil("w-1", func() bool { return b.node("w-1").Spec.Unschedulable })
	b.box("w-1").unreachable = true
	for range 2 {
		b.pass("w-1")
		b.showsLastKnown("w-1", v1alpha1.ReasonRebooting, "Rebooting: ")
	}
	b.loseLock()
	b.callOff("w-1")
	b.must(b.mgmt.Delete(context.Background(), b.get("w-1")))
	b.pass("w-1")
	if b.get("w-1") != nil || b.node("w-1").Spec.Unschedulable {
		t.Error("what the reboot did was not undone")
	}
}

// TestRemovalShowsWhetherTheMachineAnswers has a machine die, come back and be reset in the middle of its removal, when
// nobody but the removal looks at it.
func TestRemovalShowsWhetherTheMachineAnswers(t *testing.T) {
	b := newConfigured(t, four[:3], []string{"w-1"})
	b.annotate("w-1", v1alpha1.AnnotationHoldPrefix+"storage", "replicas move")
	b.pass("w-1")
	b.remove("w-1")
	b.passUntil("w-1", func() bool { return b.removalReason("w-1") == v1alpha1.ReasonHeld })
	b.wantReason("w-1", v1alpha1.TypeReachable, corev1.ConditionTrue, v1alpha1.ReasonAnswering)

	b.box("w-1").unreachable = true
	b.passUntil("w-1", func() bool { return b.removalReason("w-1") == v1alpha1.ReasonMachineUnreachable })
	b.wantReason("w-1", v1alpha1.TypeReachable, corev1.ConditionFalse, v1alpha1.ReasonUnreachable)
	b.showsLastKnown("w-1", v1alpha1.ReasonLastKnown, "InSync: ")

	b.box("w-1").unreachable = false
	b.passUntil("w-1", func() bool { return b.removalReason("w-1") == v1alpha1.ReasonHeld })
	b.wantReason("w-1", v1alpha1.TypeReachable, corev1.ConditionTrue, v1alpha1.ReasonAnswering)

	b.change("w-1", func(m *v1alpha1.TalosMachine) { delete(m.Annotations, v1alpha1.AnnotationHoldPrefix+"storage") })
	b.passUntil("w-1", func() bool { return slices.Contains([]string{"DeleteNode", "Release"}, string(b.removalReason("w-1"))) })
	b.wantReason("w-1", v1alpha1.TypeReachable, corev1.ConditionTrue, v1alpha1.ReasonMaintenance)
	b.wantReason("w-1", v1alpha1.TypeConfigApplied, corev1.ConditionFalse, v1alpha1.ReasonNotApplied)
}

func (b *bench) showsNow(name, stage string, config v1alpha1.ConfigState) {
	b.t.Helper()
	if at := b.get(name).Status.AtProvider; at.Stage != stage || at.Config.State != config {
		b.t.Errorf("%s is shown in stage %q and with a configuration that is %s, want %q and %s", name, at.Stage, at.Config.State, stage, config)
	}
}

// showsLastKnown wants nothing to be shown as if it were so now, and the condition to end with what was so before.
func (b *bench) showsLastKnown(name string, reason xpv2.ConditionReason, before string) {
	b.t.Helper()
	b.showsNow(name, "unknown", v1alpha1.ConfigUnknown)
	b.wantReason(name, v1alpha1.TypeConfigApplied, corev1.ConditionUnknown, reason)
	if said := b.condition(name, v1alpha1.TypeConfigApplied).Message; strings.Count(said, "Last known: ") != 1 || !strings.Contains(said, "Last known: "+before) {
		b.t.Errorf("%s does not say that it was %q: %s", name, before, said)
	}
}
