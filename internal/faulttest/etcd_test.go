package faulttest

import (
	"context"
	"errors"
	"fmt"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/simulator"
)

// joining is what becomes of a machine that cannot be configured.
func joining(w *world) {
	w.box("w-2")
	w.fault("w-2", true, simulator.FaultFingerprintChange)
	before := w.now()
	w.declare("w-2", v1alpha1.RoleWorker, func(m *v1alpha1.TalosMachine) {
		m.Spec.ForProvider.MaintenanceFingerprint = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	})
	w.tells(simulator.FaultFingerprintChange, "w-2", v1alpha1.TypeReachable, "FingerprintMismatch", "pinned")
	w.nothingSent(before)

	w.fault("w-2", false, simulator.FaultFingerprintChange)
	w.fault("w-2", true, simulator.FaultApplyFails)
	w.change("w-2", func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.MaintenanceFingerprint = "" })
	w.tells(simulator.FaultApplyFails, "w-2", xpv2.TypeSynced, xpv2.ReasonReconcileError, "failed to store")

	w.fault("w-2", true, simulator.FaultTimeUnsynced)
	w.fault("w-2", false, simulator.FaultApplyFails)
	w.tells(simulator.FaultTimeUnsynced, "w-2", xpv2.TypeReady, xpv2.ReasonUnavailable, "time is not synced")
	w.fault("w-2", false, simulator.FaultTimeUnsynced)
	w.ready("w-2")

	// A certificate is valid from an hour ago, so a clock that is behind by less is no fault that anybody is told of.
	w.fault("w-2", true, simulator.FaultClockBehind)
	w.powerCycle("w-2")
	w.await("another boot", func() bool { return w.box("w-2").Ready() })
	w.ready("w-2")
	w.fault("w-2", true, simulator.FaultClockFarBehind)
	w.fault("w-2", false, simulator.FaultClockBehind)
	w.powerCycle("w-2")
	w.tells(simulator.FaultClockFarBehind, "w-2", v1alpha1.TypeReachable, v1alpha1.ReasonClockSkew, "clock of the machine")
	w.fault("w-2", false, simulator.FaultClockFarBehind)
	w.powerCycle("w-2")
	w.ready("w-2")
	w.remove("w-2")
	w.removed("w-2")
}

// learner is a fourth control plane whose join does not end, in two ways. Both stop every removal but its own.
func learner(w *world) {
	w.box("cp-4")
	w.fault("cp-4", true, simulator.FaultEtcdNoPromote)
	w.declare("cp-4", v1alpha1.RoleControlPlane)
	w.members(4)
	w.tells(simulator.FaultEtcdNoPromote, "cp-2", v1alpha1.TypeRemovable, "LearnerPresent", "yet: cp-4 is a learner")
	before := w.now()
	w.remove("cp-4")
	w.removed("cp-4")
	w.members(3)
	if n := w.count(before, "cp-4", "EtcdLeaveCluster"); n > 0 {
		w.t.Errorf("a member without a vote cannot leave, and was asked to %d times", n)
	}
	w.fault("cp-4", false, simulator.FaultEtcdNoPromote)

	w.fault("cp-4", true, simulator.FaultEtcdJoinInterrupted)
	w.declare("cp-4", v1alpha1.RoleControlPlane)
	w.members(4)
	w.tells(simulator.FaultEtcdJoinInterrupted, "cp-2", v1alpha1.TypeRemovable, "LearnerPresent", "never started")
	// What it left behind keeps it from trying again, until it is removed. From then on it tries, and dies, faster than it
	// could be reset after each removal.
	w.remove("cp-4")
	w.removed("cp-4")
	w.members(3)
	w.fault("cp-4", false, simulator.FaultEtcdJoinInterrupted)
}

// etcdGate is what a removal of a healthy fourth control plane would be told while others fail.
func etcdGate(w *world) {
	w.fourth()
	before := w.now()
	for _, s := range []stage{
		{
			fault: "etcd-stopped on one of four", reason: "OtherMemberUnhealthy", words: "cp-3",
			begin: on("cp-3", simulator.FaultEtcdStopped), end: off("cp-3", simulator.FaultEtcdStopped),
		},
		{
			fault: "etcd-stopped on two of four", reason: "NoLeader", words: "no leader",
			begin: func(w *world) {
				w.fault("cp-2", true, simulator.FaultEtcdStopped)
				w.fault("cp-3", true, simulator.FaultEtcdStopped)
			},
			end: func(w *world) {
				w.fault("cp-2", false, simulator.FaultEtcdStopped)
				w.fault("cp-3", false, simulator.FaultEtcdStopped)
			},
		},
		{
			fault: simulator.FaultEtcdMembersDiffer, reason: "MembersDisagree", words: "cp-4",
			begin: on("cp-2", simulator.FaultEtcdMembersDiffer), end: off("cp-2", simulator.FaultEtcdMembersDiffer),
		},
		{
			fault: "a control plane is silent", reason: "OtherMemberUnhealthy", words: "cp-3",
			begin: on("cp-3", simulator.FaultAPIBlackhole), end: off("cp-3", simulator.FaultAPIBlackhole),
		},
		{
			fault: "a voter that no machine runs", reason: "OtherMemberUnhealthy", words: "never started",
			begin: func(w *world) { w.addStranger() },
			end:   func(w *world) { w.throwOut("") },
		},
		{
			fault: "etcd has raised an alarm", reason: "EtcdAlarm", words: "NOSPACE",
			begin: func(w *world) { w.alarm(etcdserverpb.AlarmRequest_ACTIVATE) },
			end:   func(w *world) { w.alarm(etcdserverpb.AlarmRequest_DEACTIVATE) },
		},
	} {
		w.members(4)
		s.begin(w)
		w.tells(s.fault, "cp-4", v1alpha1.TypeRemovable, s.reason, s.words)
		s.end(w)
	}
	w.nothingSent(before)
	w.ready("cp-1", "cp-2", "cp-3", "cp-4")
}

// leave is the way out of a control plane whose leave goes wrong in every way.
func leave(w *world) {
	w.fourth()
	before := w.now()
	notReset := func(w *world) {
		if n := w.count(before, "cp-4", "Reset"); n > 0 {
			w.t.Errorf("a machine whose member is in etcd was reset %d times", n)
		}
	}
	w.endure("cp-4", []stage{
		{
			fault: simulator.FaultEtcdLeaveFails, reason: v1alpha1.ReasonStepLeaveEtcd, words: "The attempt before this one failed: cannot leave etcd", then: notReset,
			begin: func(w *world) {
				w.fault("cp-4", true, simulator.FaultEtcdLeaveFails)
				w.remove("cp-4")
			},
			end: off("cp-4", simulator.FaultEtcdLeaveFails),
		},
		{
			fault: simulator.FaultEtcdLeaveHangs, reason: v1alpha1.ReasonStepLeaveEtcd, words: "is leaving", then: notReset,
			begin: on("cp-4", simulator.FaultEtcdLeaveHangs),
			end: func(w *world) {
				w.fault("cp-4", true, simulator.FaultEtcdLeaveOKButError)
				w.fault("cp-4", false, simulator.FaultEtcdLeaveHangs)
				w.powerCycle("cp-4") // or the call goes on for nine minutes
			},
		},
	})
	w.removed("cp-4")
	w.fault("cp-4", false, simulator.FaultEtcdLeaveOKButError)
	w.members(3)
}

// leaveLate is a leave that happens after the provider has given the call up, of a machine that had the address of the
// Kubernetes API: that goes with it.
func leaveLate(w *world) {
	w.fourth()
	before := w.now()
	w.endure("cp-4", []stage{
		{
			fault: simulator.FaultEtcdLeaveLate, reason: v1alpha1.ReasonStepLeaveEtcd, words: "is leaving",
			begin: func(w *world) {
				w.fault("cp-4", true, simulator.FaultEtcdLeaveLate)
				w.remove("cp-4")
			},
			then: func(w *world) { w.awaitSent(before, "cp-4", "EtcdLeaveCluster", 1) },
			end:  func(*world) {},
		},
		{
			fault: "a machine that has left and is silent", reason: v1alpha1.ReasonMachineUnreachable, words: "connection refused",
			begin: on("cp-4", simulator.FaultAPIDown), // This ends the call, and then it leaves.
			then:  func(w *world) { w.members(3) },
			end:   off("cp-4", simulator.FaultAPIDown, simulator.FaultEtcdLeaveLate),
		},
		{
			fault: "the Kubernetes API went with the machine", reason: v1alpha1.ReasonNodeUnknown, words: "Kubernetes API of the cluster",
			begin: on("cp-1", simulator.FaultKubernetesDown), end: off("cp-1", simulator.FaultKubernetesDown),
		},
	})
	w.removed("cp-4")
	if n := w.count(before, "cp-4", "EtcdLeaveCluster"); n != 1 {
		w.t.Errorf("it was asked to leave %d times, and had left after the first", n)
	}
}

// dead are machines that went without a word, and one that etcd threw out.
func dead(w *world) {
	w.fourth()
	w.throwOut("cp-4")
	before := w.now()
	w.await("its etcd is down", func() bool { _, healthy := w.box("cp-4").EtcdState(); return !healthy })
	w.remove("cp-4")
	w.removed("cp-4")
	if n := w.count(before, "cp-4", "EtcdLeaveCluster"); n > 0 {
		w.t.Errorf("a machine without a member was asked to leave %d times", n)
	}

	w.declare("cp-4", v1alpha1.RoleControlPlane, func(m *v1alpha1.TalosMachine) {
		m.Spec.ForProvider.Unreachable.Policy = v1alpha1.UnreachableRemoveMember
	})
	w.ready("cp-4")
	w.votes("cp-4")
	w.box("cp-4").PowerOff()
	w.endure("cp-4", []stage{{
		fault: "a machine that is dead, with policy RemoveMember", reason: v1alpha1.ReasonDiskNotWiped, words: "not wiped",
		begin: func(w *world) { w.remove("cp-4") },
		then:  func(w *world) { w.members(3) },
		end:   func(w *world) { w.box("cp-4").PowerOn() }, // it comes back with old data
	}})
	w.removed("cp-4")
}

// fourth sees to it that there is a fourth control plane, which can go.
func (w *world) fourth() {
	w.t.Helper()
	m, err := w.machine(context.Background(), "cp-4")
	must(w.t, err)
	if m == nil {
		w.declare("cp-4", v1alpha1.RoleControlPlane)
	}
	w.ready("cp-4")
}

// votes waits until the object tells which voter its machine is: nobody could tell that of one that dies before.
func (w *world) votes(name string) {
	w.t.Helper()
	w.eventually("the member of "+name+" is known", func(ctx context.Context) error {
		m, err := w.machine(ctx, name)
		if err != nil {
			return err
		}
		if e := m.Status.AtProvider.Etcd; e == nil || e.MemberID == "" || !e.Voter {
			return fmt.Errorf("etcd of it is %+v", e)
		}
		return nil
	})
}

// await waits for something that needs no explanation if it does not come.
func (w *world) await(what string, is func() bool) {
	w.t.Helper()
	w.eventually(what, func(context.Context) error {
		if !is() {
			return errors.New("it is not so yet")
		}
		return nil
	})
}
