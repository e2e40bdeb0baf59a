package talosmachine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/clusterlock"
)

// loseLock is a lock that expired, was taken by another disruption and was given back by that.
func (b *bench) loseLock() {
	b.t.Helper()
	b.must(b.mgmt.DeleteAllOf(context.Background(), &coordinationv1.Lease{}, client.InNamespace(namespace)))
}

// cordonForReboot gets the reboot of cp-2 to its cordon.
func cordonForReboot(t *testing.T) *bench {
	b := newConfigured(t, four[:3], nil)
	b.needReboot("cp-2")
	b.passUntil("cp-2", func() bool { return slices.Contains(b.cordoned(), "cp-2") })
	return b
}

func (b *bench) wantNothingHeld() {
	b.t.Helper()
	if c := b.cordoned(); len(c) > 0 || b.lockHolder() != nil {
		b.t.Errorf("something is held: cordoned %q, lock %v", c, b.lockHolder())
	}
}

// TestRefusedDeletionUndoesACordonOfAReboot has a machine pruned, by nobody's leave, in the middle of a reboot. The removal
// that is refused has written nothing down, and the cordon is there all the same.
func TestRefusedDeletionUndoesACordonOfAReboot(t *testing.T) {
	b := cordonForReboot(t)
	b.must(b.mgmt.Delete(context.Background(), b.get("cp-2")))
	b.pass("cp-2")
	b.wantNothingHeld()
}

// TestParkedRebootUndoesItsCordon has the number of control planes become even after the lock was lost: nobody else may
// cordon while cp-2 is, and cp-2 may not go on, so the cure would never come.
func TestParkedRebootUndoesItsCordon(t *testing.T) {
	b := cordonForReboot(t)
	b.loseLock()
	x := b.join("cp-4", true)
	b.declare(x, v1alpha1.RoleControlPlane)
	x.active = b.rendered("cp-4")
	b.pass("cp-2")
	b.wantNothingHeld()
}

// TestGivenUpRebootUndoesItsCordon has a reboot lose its lock while it waits for a pod, and its machine given up then.
func TestGivenUpRebootUndoesItsCordon(t *testing.T) {
	b := cordonForReboot(t)
	x := b.box("cp-1")
	x.unreachable = true // Refused under the lock of another one, without a chance to undo anything.
	b.loseLock()
	other := clusterlock.New(b.mgmt, b.mgmt, b.clock)
	lock, err := other.Acquire(context.Background(), leaseKey(), holderOf(b.get("cp-3"), purposeReboot))
	b.must(err)
	b.pass("cp-2")
	b.must(lock.Release(context.Background()))
	b.callOff("cp-2")
	b.must(b.mgmt.Delete(context.Background(), b.get("cp-2")))
	b.pass("cp-2")
	if b.get("cp-2") != nil {
		t.Fatalf("the machine was not given up: %+v", b.get("cp-2").Status.Conditions)
	}
	b.wantNothingHeld()
}

// TestNothingIsUndonePastThePointOfNoReturn has another voter fail right after the leave was sent. Whether it took effect
// nobody knows: pods that came back to the machine would go down with it.
func TestNothingIsUndonePastThePointOfNoReturn(t *testing.T) {
	b := newBench(t, 3, four, nil)
	b.box("cp-4").fault = func(op string) (bool, error) { return op != "LeaveEtcd", nil }
	b.remove("cp-4")
	b.passUntil("cp-4", func() bool { return count(b.sent(), "LeaveEtcd") > 0 })
	b.quiet("cp-4", b.background)
	b.box("cp-1").unreachable = true
	for range 3 {
		b.pass("cp-4")
	}
	if c := b.cordoned(); !slices.Contains(c, "cp-4") || b.lockHolder() == nil {
		t.Errorf("a removal past the point of no return was undone: cordoned %q, lock %v", c, b.lockHolder())
	}
	if r := b.removalReason("cp-4"); r != "OtherMemberUnhealthy" {
		t.Errorf("the refusal is not shown: %q", r)
	}
}

// TestCallOffWithoutACordonNeedsNoKubernetes ends the process right after it took the lock, and then the Kubernetes API of
// the cluster is gone for good.
func TestCallOffWithoutACordonNeedsNoKubernetes(t *testing.T) {
	b := newBench(t, 3, four, nil)
	b.remove("cp-4")
	for n := len(b.written()) + 1; b.lockHolder() == nil; n++ {
		b.dieAt = n
		b.pass("cp-4")
		b.start()
	}
	if hasRecord(b.get("cp-4")) {
		t.Fatal("the removal went on after it took the lock")
	}
	b.dieAt, b.kubeErr = 0, errors.New("connection refused")
	b.callOff("cp-4")
	b.pass("cp-4")
	if b.get("cp-4") != nil || b.lockHolder() != nil {
		t.Errorf("a removal that had only taken the lock was not called off: lock %v", b.lockHolder())
	}
}

// TestCallOffTakesTheLockOver has a second process in the middle of a pass of the removal that is called off. It must not
// cordon after the cordon was undone.
func TestCallOffTakesTheLockOver(t *testing.T) {
	b := newBench(t, 3, four, nil)
	b.annotate("cp-4", v1alpha1.AnnotationHoldPrefix+"me", "thinking")
	b.remove("cp-4")
	b.passUntil("cp-4", func() bool { return slices.Contains(b.cordoned(), "cp-4") })
	second := clusterlock.New(b.mgmt, b.mgmt, b.clock)
	lock, err := second.Acquire(context.Background(), leaseKey(), holderOf(b.get("cp-4"), purposeRemoval))
	b.must(err)
	b.kubeErr = errors.New("connection refused") // The call-off gets as far as it can without ending.
	b.callOff("cp-4")
	b.pass("cp-4")
	if lost := (*clusterlock.LostError)(nil); !errors.As(lock.Check(context.Background()), &lost) {
		t.Error("another process may still act for a removal that is being called off")
	}
	synced := b.get("cp-4").GetCondition(xpv2.TypeSynced)
	if !strings.Contains(synced.Message, v1alpha1.AnnotationAcceptUnwipedDisk) {
		t.Errorf("the way out is not named: %q", synced.Message)
	}
	b.kubeErr = nil
	b.pass("cp-4")
	b.wantNothingHeld()
}

func leaseKey() types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: clusterlock.LeaseName(clusterName)}
}
