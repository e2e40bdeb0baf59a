package talosmachine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/talos"
)

// becomeEven has a person declare and approve a fourth control plane, which runs what is declared.
func (b *bench) becomeEven() {
	b.t.Helper()
	x := b.join("cp-4", true)
	b.declare(x, v1alpha1.RoleControlPlane)
	x.active = b.rendered("cp-4")
	b.forget()
}

// onLock has something happen at the moment in which a pass gets the lock, and no more after that.
func (b *bench) onLock(happens func()) {
	b.onWrite = func(what string) {
		if strings.HasSuffix(what, "*v1.Lease") {
			b.onWrite = nil
			happens()
		}
	}
}

// wantLock checks that the lock is held for a machine.
func (b *bench) wantLock(name string) {
	b.t.Helper()
	if info := b.lockHolder(); info == nil || info.Holder.Name != name {
		b.t.Errorf("the lock is held by %+v, want %s", info, name)
	}
}

// stagedForReboot gets cp-2 to where it holds the lock and its configuration is on its disk, and nothing is cordoned.
func stagedForReboot(t *testing.T) *bench {
	b := newConfigured(t, four[:3], nil)
	b.needReboot("cp-2")
	b.passUntil("cp-2", func() bool { return count(b.sent(), "ApplyConfig(3)") > 0 })
	b.wantLock("cp-2")
	if c := b.cordoned(); len(c) > 0 {
		t.Fatalf("%q are cordoned already", c)
	}
	return b
}

// TestParkedRebootGivesItsLockBack has the number of control planes become even after a reboot took the lock, and before it
// cordoned anything: it would block its own cure.
func TestParkedRebootGivesItsLockBack(t *testing.T) {
	b := stagedForReboot(t)
	b.becomeEven()
	b.pass("cp-2")
	b.wantNothingHeld()
}

// TestRefusedRebootUndoesItsCordon has a voter die between the cordon and the reboot: no second machine may be out of service
// for a reboot that does not come.
func TestRefusedRebootUndoesItsCordon(t *testing.T) {
	b := cordonForReboot(t)
	b.box("cp-3").unreachable = true
	b.pass("cp-2")
	b.wantNothingHeld()
	if n := count(b.sent(), "Reboot"); n > 0 {
		t.Errorf("it was rebooted although cp-3 is dead: %q", b.sent())
	}
}

// TestRebootThatOnlyWaitsHoldsNothing has something go away at the moment in which a reboot gets the lock, before anything was
// cordoned: others, perhaps those that are waited for, go first.
func TestRebootThatOnlyWaitsHoldsNothing(t *testing.T) {
	for name, goes := range map[string]func(b *bench){
		"Machine": func(b *bench) { b.box("cp-2").unreachable = true },
		"Config":  func(b *bench) { b.box("cp-2").boots++ },
		"Nodes":   func(b *bench) { b.kubeErr = errors.New("connection refused") },
	} {
		t.Run(name, func(t *testing.T) {
			b := stagedForReboot(t)
			b.loseLock()
			b.onLock(func() { goes(b) })
			b.pass("cp-2")
			if b.onWrite != nil {
				t.Fatal("the pass took no lock")
			}
			if info := b.lockHolder(); info != nil {
				t.Errorf("the lock is held by %+v for a reboot that only waits", info)
			}
		})
	}
}

// TestUnknownCordonOfARebootKeepsTheLock: while nobody can tell whether a reboot has cordoned its machine, or it has and cannot
// go on, no other disruption may begin.
func TestUnknownCordonOfARebootKeepsTheLock(t *testing.T) {
	noKube := func(b *bench) { b.kubeErr = errors.New("connection refused") }
	for name, change := range map[string]func(b *bench){
		"Waits":         noKube,
		"Refused":       func(b *bench) { noKube(b); b.box("cp-3").unreachable = true },
		"ConfigUnknown": func(b *bench) { b.box("cp-2").secretive = true },
	} {
		t.Run(name, func(t *testing.T) {
			b := cordonForReboot(t)
			change(b)
			for range 3 {
				b.pass("cp-2")
			}
			b.wantLock("cp-2")
			if n := count(b.sent(), "Reboot"); n > 0 {
				t.Errorf("it was rebooted: %q", b.sent())
			}
		})
	}
}

// TestUnreadableIsNamed: a reboot that waits for something that cannot be read says what that is, and why it cannot be.
func TestUnreadableIsNamed(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(x *box)
		want   string
	}{
		"BootID": {change: func(x *box) { x.bootless = true }, want: "The boot ID of cp-2 cannot be read (cannot BootID at \"192.0.2.2\": not authorized)"},
		"Config": {change: func(x *box) { x.secretive = true }, want: "compares to the declared one (cannot Config at \"192.0.2.2\": not authorized)"},
	} {
		t.Run(name, func(t *testing.T) {
			b := cordonForReboot(t)
			tc.change(b.box("cp-2"))
			b.pass("cp-2")
			b.wantLock("cp-2")
			if c := b.condition("cp-2", v1alpha1.TypeConfigApplied); !strings.Contains(c.Message, tc.want) {
				t.Errorf("it says %s: %q, want %q", c.Reason, c.Message, tc.want)
			}
			x := b.box("cp-2")
			x.bootless, x.secretive = false, false
			b.inSync("cp-2")
		})
	}
}

// TestAbandonedRebootUndoesItsCordon has a reboot lose its lock, and a person take back what it was for: nobody else would ever
// undo the cordon.
func TestAbandonedRebootUndoesItsCordon(t *testing.T) {
	b := cordonForReboot(t)
	b.loseLock()
	b.change("cp-2", func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.ConfigPatches = nil })
	x := b.box("cp-2")
	x.persistent = x.active
	for range 6 {
		b.pass("cp-2")
	}
	b.wantNothingHeld()
}

// TestBlockedDrainOfARebootWaits: a pod that may not be evicted now is a wait at its own pace that names the pod and its budget,
// and neither a failure nor silence. Nothing is rebooted under the pod.
func TestBlockedDrainOfARebootWaits(t *testing.T) {
	b := newConfigured(t, four[:3], nil)
	relax := b.tightenBudget("cp-2")
	b.needReboot("cp-2")
	b.cordonBy("cp-2")
	for range 3 {
		if res := b.pass("cp-2"); res.RequeueAfter != pass {
			t.Errorf("a blocked drain is asked for again after %+v, want %s", res, pass)
		}
		c := b.condition("cp-2", v1alpha1.TypeConfigApplied)
		if c.Reason != v1alpha1.ReasonRebooting || !strings.Contains(c.Message, `"tight"`) || !strings.Contains(c.Message, "apps/db-0") {
			t.Errorf("the condition does not name pod and budget: %+v", c)
		}
		if synced := b.condition("cp-2", xpv2.TypeSynced); synced.Status != corev1.ConditionTrue {
			t.Errorf("Synced is %s: %q", synced.Status, synced.Message)
		}
		b.wantLock("cp-2")
	}
	if n := count(b.sent(), "Reboot"); n > 0 {
		t.Errorf("it was rebooted with its Node not drained: %q", b.sent())
	}
	relax()
	b.inSync("cp-2")
}

// TestFailedRebootIsTold: a step that a machine did not take is no success.
func TestFailedRebootIsTold(t *testing.T) {
	b := cordonForReboot(t)
	b.box("cp-2").fault = func(op string) (bool, error) {
		return false, &talos.Error{Op: op, Address: "cp-2", Class: talos.NotReady, Err: errors.New("it is busy")}
	}
	b.pass("cp-2")
	if synced := b.condition("cp-2", xpv2.TypeSynced); synced.Status != corev1.ConditionFalse || !strings.Contains(synced.Message, "it is busy") {
		t.Errorf("Synced is %s: %q", synced.Status, synced.Message)
	}
	b.wantLock("cp-2")
	b.box("cp-2").fault = nil
	b.inSync("cp-2")
}

// TestBlankMachineNeedsNoReboot: with policies that leave Create out, a blank machine is left as it is, and is not said to wait
// for a reboot.
func TestBlankMachineNeedsNoReboot(t *testing.T) {
	b, _ := newBlank(t)
	b.change("w-1", func(m *v1alpha1.TalosMachine) {
		m.SetManagementPolicies(xpv2.ManagementPolicies{xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate})
	})
	for range 2 {
		b.pass("w-1")
	}
	b.wantReason("w-1", v1alpha1.TypeConfigApplied, corev1.ConditionFalse, v1alpha1.ReasonNotApplied)
	if sent := b.sent(); len(sent) > 0 || slices.ContainsFunc(b.written(), func(w string) bool { return strings.HasSuffix(w, "*v1.Lease") }) {
		t.Errorf("it was sent %q, with writes %q", sent, b.written())
	}
}

// declareNamesake declares and approves a machine that is not there yet, under the hostname of another.
func (b *bench) declareNamesake(of string) {
	b.t.Helper()
	x := &box{w: b.world, name: "twin", address: "192.0.2.99", uuid: "00000000-0000-4000-8000-000000000099"}
	b.declare(x, v1alpha1.RoleWorker)
	b.change("twin", func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.Hostname = of })
}

// TestBegunRebootIsFinished although another machine was declared under its hostname meanwhile: left half done, its machine
// would stay cordoned, and the lock held, until somebody corrects that.
func TestBegunRebootIsFinished(t *testing.T) {
	b := cordonForReboot(t)
	b.declareNamesake("cp-2")
	for range 8 {
		b.pass("cp-2")
	}
	b.wantNothingHeld()
}

// TestHostnameIsCheckedAfresh has another machine be declared under a hostname between the look at a machine that is to get it
// and the change.
func TestHostnameIsCheckedAfresh(t *testing.T) {
	b := newConfigured(t, four[:3], []string{"w-1"})
	b.change("w-1", func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.Hostname = "w-9" })
	m := b.get("w-1")
	e, err := b.conn.open(context.Background(), m)
	b.must(err)
	if o, err := e.Observe(context.Background(), m); err != nil || o.ResourceUpToDate {
		t.Fatalf("Observe: up to date %t, %v", o.ResourceUpToDate, err)
	}
	b.declareNamesake("w-9")
	if _, err := e.Update(context.Background(), m); err == nil || !strings.Contains(err.Error(), "w-9") {
		t.Errorf("Update: %v", err)
	}
	if sent := b.sent(); len(sent) > 0 {
		t.Errorf("it was sent: %q", sent)
	}
}
