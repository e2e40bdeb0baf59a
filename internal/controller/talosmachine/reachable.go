package talosmachine

import (
	"fmt"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/talos"
)

// stageUnknown is the stage of a machine that does not tell it.
const stageUnknown = "unknown"

// markAnswering says that the machine answers, and as what.
func markAnswering(mg *v1alpha1.TalosMachine, mode facts.Mode) {
	if mode == facts.Maintenance {
		mark(mg, v1alpha1.TypeReachable, corev1.ConditionTrue, v1alpha1.ReasonMaintenance, "The machine is blank and answers in maintenance mode")
		return
	}
	mark(mg, v1alpha1.TypeReachable, corev1.ConditionTrue, v1alpha1.ReasonAnswering, "The machine answers as a member of its cluster")
}

// markUnreachable says why a machine does not answer as the one that it should be.
func markUnreachable(mg *v1alpha1.TalosMachine, err error) {
	reasons := map[talos.Class]xpv2.ConditionReason{
		talos.WrongCluster:        v1alpha1.ReasonForeignCluster,
		talos.CertificateRequired: v1alpha1.ReasonForeignCluster,
		talos.FingerprintMismatch: v1alpha1.ReasonFingerprintMismatch,
		talos.ClockSkew:           v1alpha1.ReasonClockSkew,
	}
	reason, ok := reasons[talos.ClassOf(err)]
	if !ok {
		reason = v1alpha1.ReasonUnreachable
	}
	notItself(mg, reason, sentence(err)+wayBack[reason])
}

// wayBack is what a person can do about a machine that answers, and not as it should.
var wayBack = map[xpv2.ConditionReason]string{
	v1alpha1.ReasonForeignCluster: ". Nothing is sent to it. Correct spec.forProvider.address, or reset the machine if it is to join this cluster",
	v1alpha1.ReasonFingerprintMismatch: ". Nothing is sent to it. The fingerprint is on its console and is another one after each boot: " +
		"if it is the right machine, correct spec.forProvider.maintenanceFingerprint",
	v1alpha1.ReasonClockSkew: ". The clock of the machine and that of the provider differ. Set the one that is wrong",
}

// notItself says that the machine does not answer as the one that it should be. What it told of itself before is what was
// last known from then on, and is not shown as if it were so now. Its UUID, its Node and the like stay: they say which
// machine it is, and not how it is.
func notItself(mg *v1alpha1.TalosMachine, reason xpv2.ConditionReason, message string) {
	mark(mg, v1alpha1.TypeReachable, corev1.ConditionFalse, reason, message)
	at := &mg.Status.AtProvider
	at.Stage = stageUnknown
	was := mg.GetCondition(v1alpha1.TypeConfigApplied)
	if was.Reason == "" || was.Status == corev1.ConditionUnknown {
		return
	}
	at.Config = v1alpha1.MachineConfigObservation{State: v1alpha1.ConfigUnknown}
	now := v1alpha1.ReasonLastKnown
	if was.Reason == v1alpha1.ReasonRebooting {
		now = was.Reason // The finalizer knows by it that there is something to undo.
	}
	mark(mg, v1alpha1.TypeConfigApplied, corev1.ConditionUnknown, now,
		fmt.Sprintf("Not known while the machine does not answer as itself, see Reachable. Last known: %s: %s", was.Reason, was.Message))
}

// showTarget writes what the survey of a removal, which has asked the machine itself, tells into the status.
func (e *external) showTarget(mg *v1alpha1.TalosMachine, f facts.Cluster) {
	e.showFacts(mg, f)
	m, _ := f.Machine(idOf(mg))
	live, answers := m.Live.Get()
	switch {
	case !answers && mg.GetCondition(v1alpha1.TypeReachable).Status == corev1.ConditionFalse:
		mg.Status.AtProvider.Stage = stageUnknown // Why it does not answer is said already, and with its reason.
	case !answers:
		notItself(mg, v1alpha1.ReasonUnreachable, sentence(errors.New(m.Live.Why())))
	case identify(mg, live.UUID) == nil:
		markAnswering(mg, live.Mode)
		if live.Mode == facts.Maintenance {
			markBlank(mg)
		}
	}
}

// markBlank says that the machine has no configuration.
func markBlank(mg *v1alpha1.TalosMachine) {
	mark(mg, v1alpha1.TypeConfigApplied, corev1.ConditionFalse, v1alpha1.ReasonNotApplied, "The machine is blank")
	mg.Status.AtProvider.Config = v1alpha1.MachineConfigObservation{}
}

// identify returns an error if another machine than the pinned one answers at the address.
func identify(mg *v1alpha1.TalosMachine, uuid string) error {
	pinned := mg.PinnedUUID()
	if pinned == "" || strings.EqualFold(pinned, uuid) {
		return nil
	}
	message := fmt.Sprintf("Another machine answers at %s: its SMBIOS UUID is %s and not %s. Nothing is sent to it. "+
		"Correct spec.forProvider.address, or delete this TalosMachine and declare the other machine anew",
		mg.Spec.ForProvider.Address, strings.ToLower(uuid), pinned)
	notItself(mg, v1alpha1.ReasonIdentityMismatch, message)
	return errors.New(message)
}

// singular returns an error if two TalosMachines are the same machine: both are blocked.
func singular(mg *v1alpha1.TalosMachine, f facts.Cluster) error {
	m, ok := f.Machine(idOf(mg))
	if !ok || len(m.SameMachine) == 0 {
		return nil
	}
	message := fmt.Sprintf("This machine is declared more than once, by UUID or address: also by %s. Nothing is sent to it. "+
		"Correct or delete the wrong one", strings.Join(m.SameMachine, ", "))
	notItself(mg, v1alpha1.ReasonDuplicateUUID, message)
	mark(mg, xpv2.TypeReady, corev1.ConditionFalse, xpv2.ReasonUnavailable, message)
	return errors.New(message)
}
