package talosmachine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/conditions"
	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/removal"
	"github.com/maesh/provider-ichor/internal/metrics"
)

// Reasons of events.
const (
	eventRemoval       event.Reason = "MachineRemoval"
	eventRemovalWaits  event.Reason = "MachineRemovalWaits"
	eventReboot        event.Reason = "MachineReboot"
	eventRebootWaits   event.Reason = "MachineRebootWaits"
	eventConfigChanged event.Reason = "ChangedMachineConfig"
)

// A marker shows decisions: it is the only place that turns them into conditions, events and metrics. The recorder holds
// back what says nothing new, so a wait is one event however long it lasts.
type marker struct {
	record event.Recorder
	clock  clock.PassiveClock
}

func mark(mg *v1alpha1.TalosMachine, t xpv2.ConditionType, s corev1.ConditionStatus, r xpv2.ConditionReason, message string) {
	conditions.ObservedGenerationPropagationManager{}.For(mg).MarkConditions(xpv2.Condition{
		Type: t, Status: s, Reason: r, Message: message, LastTransitionTime: metav1.Now(),
	})
}

// waiting shows a removal that waits, at a step.
func (m *marker) waiting(mg *v1alpha1.TalosMachine, step string, reason xpv2.ConditionReason, message string, irreversible bool) {
	mark(mg, v1alpha1.TypeRemoval, corev1.ConditionFalse, reason, message)
	m.step(mg, step, message, irreversible)
	m.record.Event(mg, event.Normal(eventRemovalWaits, fmt.Sprintf("%s: %s", reason, message)))
}

// refused shows a removal that a guard refuses. Crossplane makes an event of the refusal, which is returned as an error.
func (m *marker) refused(mg *v1alpha1.TalosMachine, d removal.Refuse) {
	reason := xpv2.ConditionReason(d.Refusal.Reason)
	if was := mg.GetCondition(v1alpha1.TypeRemoval); was.Status != corev1.ConditionFalse || was.Reason != reason {
		metrics.Refusal(string(reason))
	}
	message := d.Refusal.Error()
	if meta.WasDeleted(mg) && !d.Irreversible && !strings.Contains(message, "spec.managementPolicies") {
		// The ways out of a refusal lead to the removal. Whoever deleted the object by mistake needs another one.
		message += " If the deletion was a mistake, take Delete out of spec.managementPolicies: the object goes, the machine stays as it is, and the object can be created again."
	}
	mark(mg, v1alpha1.TypeRemoval, corev1.ConditionFalse, reason, message)
	m.step(mg, string(reason), message, d.Irreversible)
}

// acted shows a step that a removal has taken.
func (m *marker) acted(mg *v1alpha1.TalosMachine, d removal.Act) {
	step := d.Step.String()
	if was := mg.Status.AtProvider.Removal; was == nil || was.Step != step {
		metrics.Removal(step)
	}
	mark(mg, v1alpha1.TypeRemoval, corev1.ConditionTrue, xpv2.ConditionReason(step), d.Message)
	m.step(mg, step, d.Message, d.Irreversible)
	m.record.Event(mg, event.Normal(eventRemoval, d.Message))
}

// failing shows a step that a removal could not take. Crossplane makes an event of the error, which is returned.
func (m *marker) failing(mg *v1alpha1.TalosMachine, d removal.Act, err error) {
	message := sentence(err)
	mark(mg, v1alpha1.TypeRemoval, corev1.ConditionFalse, xpv2.ConditionReason(d.Step.String()), message)
	m.step(mg, d.Step.String(), message, d.Irreversible)
}

// isAt tells whether the pass before this one left the removal at a step.
func (m *marker) isAt(mg *v1alpha1.TalosMachine, step removal.Step) bool {
	was := mg.Status.AtProvider.Removal
	return was != nil && was.Step == step.String()
}

// overdue says how long the step of a removal may take, if it has taken longer.
func (m *marker) overdue(mg *v1alpha1.TalosMachine, step string, limit time.Duration) string {
	was := mg.Status.AtProvider.Removal
	if was == nil || was.Step != step || m.clock.Since(was.Since.Time) <= limit {
		return ""
	}
	return fmt.Sprintf(". This takes longer than %s by now", limit)
}

// underWay shows that the machine is leaving etcd.
func (m *marker) underWay(mg *v1alpha1.TalosMachine) {
	const message = "The machine is leaving etcd. This takes up to nine minutes; then the other members tell whether it did."
	mark(mg, v1alpha1.TypeRemoval, corev1.ConditionTrue, v1alpha1.ReasonStepLeaveEtcd, message)
	m.step(mg, string(v1alpha1.ReasonStepLeaveEtcd), message, true)
}

// removed shows a machine whose removal is done.
func (m *marker) removed(mg *v1alpha1.TalosMachine) {
	const message = "The machine was removed from its cluster"
	mark(mg, v1alpha1.TypeRemoval, corev1.ConditionTrue, v1alpha1.ReasonRemoved, message)
	m.step(mg, string(v1alpha1.ReasonRemoved), message, true)
}

// step writes where a removal is into the status. The time changes only when the step does. What a removal would be told is
// said no more once there is one: it would be what was true before.
func (m *marker) step(mg *v1alpha1.TalosMachine, step, message string, irreversible bool) {
	if meta.WasDeleted(mg) {
		mg.Status.Conditions = slices.DeleteFunc(mg.Status.Conditions, func(c xpv2.Condition) bool { return c.Type == v1alpha1.TypeRemovable })
	}
	since := metav1.NewTime(m.clock.Now().Truncate(time.Second))
	if was := mg.Status.AtProvider.Removal; was != nil && was.Step == step {
		since = was.Since
	}
	o := &v1alpha1.RemovalObservation{Step: step, Since: since, Irreversible: irreversible, Message: message}
	if r, err := mg.RemovalRecord(); err == nil && r != nil {
		o.MemberID = r.MemberID
	}
	mg.Status.AtProvider.Removal = o
}
