package talosmachine

import (
	"context"
	"fmt"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/act"
	"github.com/maesh/provider-ichor/internal/clusterlock"
	"github.com/maesh/provider-ichor/internal/decide/deleteguard"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/removal"
	"github.com/maesh/provider-ichor/internal/disruption"
	"github.com/maesh/provider-ichor/internal/talos"
)

const (
	purposeRemoval = "removal"

	// defaultDrainTimeout is how long a drain may take before it shows as overdue, where nobody says otherwise.
	defaultDrainTimeout = 10 * time.Minute
)

// remove takes a removal one step further: look, take the lock, look again, decide, do one thing. Where it is in the
// removal comes from the world in every pass, so a pass that ended anywhere, even in a crash, is only a slow one.
func (e *external) remove(ctx context.Context, mg *v1alpha1.TalosMachine) error {
	if e.actor.Running(idOf(mg)) {
		// The leave from etcd renews the lock by itself. Nothing else may be done to the machine meanwhile.
		e.marker.underWay(mg)
		e.wait(mg)
		return nil
	}
	holder := holderOf(mg, purposeRemoval)
	held, irreversible, err := e.gate.HeldBy(ctx, clusterOf(mg), holder)
	if err != nil {
		return err
	}
	if !held && !hasRecord(mg) {
		if stop, err := e.wouldStop(ctx, mg); stop || err != nil {
			return err
		}
	}
	lock, err := e.gate.AcquireDisruptiveLock(ctx, clusterOf(mg), holder, irreversible || e.completesTransition(mg))
	if err != nil {
		return e.withoutLock(ctx, mg, held, err)
	}
	f, err := e.survey.Cluster(ctx, clusterOf(mg), idOf(mg))
	if err != nil {
		return errors.Wrap(err, "cannot survey the cluster")
	}
	return e.removeStep(ctx, mg, lock, f)
}

// completesTransition tells whether this removal may begin while the number of control planes is even: that of a control
// plane makes it odd again, and a teardown takes them all.
func (e *external) completesTransition(mg *v1alpha1.TalosMachine) bool {
	return e.tearingDown(mg) || (e.cluster != nil && mg.IsApprovedControlPlane(e.cluster.GetName()))
}

// wouldStop looks before a removal begins, so that one that would only be told to wait, or be refused, takes no lock and
// wakes nobody up by giving it back. What it lets through is decided again under the lock.
func (e *external) wouldStop(ctx context.Context, mg *v1alpha1.TalosMachine) (bool, error) {
	f, err := e.survey.Snapshot(ctx, clusterOf(mg), idOf(mg))
	if err != nil {
		return false, errors.Wrap(err, "cannot survey the cluster")
	}
	if _, ok := f.Machine(idOf(mg)); !ok {
		return false, nil // Younger than the snapshot.
	}
	switch d := removal.Next(f, idOf(mg)).(type) {
	case removal.Wait:
		if d.Irreversible {
			return false, nil
		}
		e.showTarget(mg, f)
		e.waitFor(mg, xpv2.ConditionReason(d.Reason), d.Message, false)
		return true, nil
	case removal.Refuse:
		allowed := mg.GetAnnotations()[v1alpha1.AnnotationAllowDelete] == "true"
		if d.Irreversible || (allowed && d.Refusal.Reason == deleteguard.NotAllowed) {
			return false, nil // The snapshot may be older than the permission.
		}
		e.showTarget(mg, f)
		e.marker.refused(mg, d)
		e.wait(mg)
		return true, d.Refusal
	case removal.Act, removal.Done:
	}
	return false, nil
}

// withoutLock is what becomes of a pass that did not get the lock.
func (e *external) withoutLock(ctx context.Context, mg *v1alpha1.TalosMachine, held bool, err error) error {
	if te := (*disruption.TransitioningError)(nil); errors.As(err, &te) {
		// What is parked holds nothing, or it would block its own cure.
		if err := e.stepAside(ctx, mg, holderOf(mg, purposeRemoval), held && hasRecord(mg)); err != nil {
			return err
		}
		e.waitFor(mg, v1alpha1.ReasonClusterTransitioning, sentence(te), false)
		return nil
	}
	if he := (*clusterlock.HeldError)(nil); errors.As(err, &he) {
		e.waitFor(mg, v1alpha1.ReasonWaitingForLock, waitsForLock(mg.ClusterName(), he), pastReturn(mg))
		return nil
	}
	if kerrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		e.waitFor(mg, v1alpha1.ReasonNamespaceTerminating, namespaceTerminating(mg), false)
		return nil
	}
	return errors.Wrap(err, "cannot take the lock of the cluster")
}

// waitsForLock says for whom a disruption waits, and where a person sees why that one does not end. A holder that is none of
// ours may never give the lock back, nor let it expire.
func waitsForLock(cluster string, he *clusterlock.HeldError) string {
	if k := he.Holder.Kind; k != v1alpha1.TalosMachineKind && k != v1alpha1.TalosClusterKind {
		return sentence(he) + fmt.Sprintf(". That is no object of this provider. If nobody works on the cluster, delete Lease %q; this goes on by itself then",
			clusterlock.LeaseName(cluster))
	}
	return sentence(he) + ". This goes on by itself once that is over; the conditions of that object say what it does or waits for"
}

// lostLock says what becomes of a disruption whose lock went away under it.
func lostLock(lost *clusterlock.LostError) string {
	return sentence(lost) + ". Nothing more is sent without it; this goes on by itself as soon as the lock can be had again"
}

// pastReturn tells whether a removal was past the point of no return when that was last known: a lock that somebody took away
// does not say so any more.
func pastReturn(mg *v1alpha1.TalosMachine) bool {
	was := mg.Status.AtProvider.Removal
	record, err := mg.RemovalRecord()
	return (was != nil && was.Irreversible) || (err == nil && record != nil && record.Reset)
}

// namespaceTerminating says why no lock can be had any more. The Lease of a lock that was held goes with the namespace, so
// that a removal that was half done when it went ends here as well.
func namespaceTerminating(mg *v1alpha1.TalosMachine) string {
	return fmt.Sprintf("Namespace %q is being deleted, which cannot be undone, and the lock of the cluster cannot be created in it any more: nothing more is "+
		"sent to the machine. Save the Secret with the PKI of the cluster first. Then take Delete out of spec.managementPolicies to let the object go and leave the "+
		"machine as it is; if its removal had passed the point of no return, accept that its disk is not wiped with the annotation %s: %q as well",
		mg.GetNamespace(), v1alpha1.AnnotationAcceptUnwipedDisk, mg.PinnedUUID())
}

// removeStep decides under the lock, from facts that were read under the lock, and does one thing.
func (e *external) removeStep(ctx context.Context, mg *v1alpha1.TalosMachine, lock *clusterlock.Held, f facts.Cluster) error {
	e.showTarget(mg, f)
	target, ok := f.Machine(idOf(mg))
	if !ok {
		return fmt.Errorf("the survey of cluster %q does not know machine %q", mg.ClusterName(), mg.GetName())
	}
	switch d := removal.Next(f, target.ID).(type) {
	case removal.Act:
		return e.removeAct(ctx, mg, lock, f, target, d)
	case removal.Wait:
		return e.removeWait(ctx, mg, target, f.Teardown, d)
	case removal.Refuse:
		return e.removeRefused(ctx, mg, target, d)
	case removal.Done:
		return e.complete(ctx, mg, lock)
	}
	return fmt.Errorf("the removal of %q was answered with a decision that is not known", mg.GetName())
}

func (e *external) removeAct(ctx context.Context, mg *v1alpha1.TalosMachine, lock *clusterlock.Held, f facts.Cluster, target facts.Machine, d removal.Act) error {
	if d.Step == removal.Release {
		return e.complete(ctx, mg, lock)
	}
	if e.doors == nil {
		err := errors.Wrap(e.shut, "cannot open the cluster")
		e.marker.failing(mg, d, err)
		return err
	}
	failed := e.actor.LeaveFailed(idOf(mg))
	err := e.actor.Remove(ctx, e.job(mg, lock, f, target), d)
	blocked, lost := (*act.DrainBlockedError)(nil), (*clusterlock.LostError)(nil)
	switch {
	case err == nil:
		again := e.marker.isAt(mg, d.Step)
		d.Message += e.remark(mg, d, again, failed)
		e.marker.acted(mg, d)
		if again && d.Step == removal.Reset {
			e.wait(mg) // What keeps the machine from a reset does not end sooner for being asked each second.
			return nil
		}
		e.soon(mg)
		return nil
	case errors.As(err, &blocked):
		message := sentence(blocked) + e.marker.overdue(mg, d.Step.String(), e.drainTimeout(mg))
		e.marker.waiting(mg, d.Step.String(), v1alpha1.ReasonDrainBlocked, message, false)
		e.wait(mg)
		return nil
	case errors.As(err, &lost):
		// Whoever has it now is met in the next pass. It is a wait and no failure: one that failed is tried again ever later.
		e.marker.waiting(mg, d.Step.String(), v1alpha1.ReasonWaitingForLock, lostLock(lost), removal.Irreversible(f, target.ID) || pastReturn(mg))
		e.wait(mg)
		if lost.Elsewhere {
			e.standBack(mg)
		}
		return nil
	case talos.ClassOf(err) == talos.Ambiguous:
		message := fmt.Sprintf("The outcome of the last step (%s) is not known; it is looked at again", d.Step)
		e.marker.waiting(mg, d.Step.String(), v1alpha1.ReasonOutcomeUnknown, message, d.Irreversible)
		e.wait(mg)
		return nil
	}
	e.marker.failing(mg, d, err)
	return err
}

// remark says what the facts cannot: that a step was taken before and has not helped yet, and what a person can do.
func (e *external) remark(mg *v1alpha1.TalosMachine, d removal.Act, again bool, leaveFailed error) string {
	switch {
	case d.Step == removal.Drain:
		late := e.marker.overdue(mg, d.Step.String(), e.drainTimeout(mg))
		if late == "" {
			return ""
		}
		return late + ". See why these pods do not end; one whose containers are gone for good goes with kubectl delete pod --force"
	case d.Step == removal.LeaveEtcd && leaveFailed != nil:
		return fmt.Sprintf(". The attempt before this one failed: %s. If that goes on, see the etcd service of %s and of the other control planes", leaveFailed, mg.GetName())
	case d.Step == removal.Reset && again && !d.Again:
		return fmt.Sprintf(". The reset before this one did not begin: Talos answers OK and refuses while it is busy with something else. If that goes on, see the console of %s and power-cycle it", mg.GetName())
	}
	return ""
}

// removeRefused ends a pass that a guard did not let go on. What was done so far is undone, be it by a reboot that this
// removal came after; but not once the lock says that there is no way back.
func (e *external) removeRefused(ctx context.Context, mg *v1alpha1.TalosMachine, target facts.Machine, d removal.Refuse) error {
	e.marker.refused(mg, d)
	e.wait(mg)
	if d.Irreversible {
		return d.Refusal
	}
	node, _ := target.Node.Get()
	err := e.stepAside(ctx, mg, holderOf(mg, purposeRemoval), node.Ours || hasRecord(mg))
	if ie := (*disruption.IrreversibleError)(nil); err != nil && !errors.As(err, &ie) {
		return err
	}
	return d.Refusal
}

// removeWait ends a pass that waits under the lock. The lock is kept only where giving it up could let a second control
// plane be disturbed: from our cordon on. Otherwise others go first, perhaps the very ones that are waited for.
func (e *external) removeWait(ctx context.Context, mg *v1alpha1.TalosMachine, target facts.Machine, teardown bool, d removal.Wait) error {
	e.waitFor(mg, xpv2.ConditionReason(d.Reason), d.Message, d.Irreversible)
	node, known := target.Node.Get()
	disturbed := node.Ours || (!known && target.Record != nil && !teardown)
	if d.Irreversible || disturbed {
		return nil
	}
	return e.gate.ReleaseIfReversible(ctx, clusterOf(mg), holderOf(mg, purposeRemoval))
}

// complete writes down that the removal is done and gives the lock back. From then on Observe finds no machine, and
// Crossplane takes the finalizer off.
func (e *external) complete(ctx context.Context, mg *v1alpha1.TalosMachine, lock *clusterlock.Held) error {
	if err := e.actor.Complete(ctx, lock, mg); err != nil {
		return err
	}
	e.marker.removed(mg)
	return errors.Wrap(lock.Release(ctx), "cannot release the lock of the cluster")
}

// stepAside undoes what a disruption that may not go on has done so far, and gives the lock back: a machine that stayed
// cordoned without the lock would be a second one out of service as soon as another disruption began. Without a cordon
// the Kubernetes API of the cluster, which may be down, is not needed. Past the point of no return nothing is undone, and
// the error is *disruption.IrreversibleError: pods that came back would go down with the machine.
func (e *external) stepAside(ctx context.Context, mg *v1alpha1.TalosMachine, h clusterlock.Holder, cordoned bool) error {
	held, irreversible, err := e.gate.HeldBy(ctx, clusterOf(mg), h)
	switch {
	case err != nil:
		return err
	case held && irreversible:
		return &disruption.IrreversibleError{Holder: h}
	}
	if cordoned && e.doors != nil {
		k, err := e.doors.Kubernetes()
		if err != nil {
			return errors.Wrap(err, "cannot uncordon the Node")
		}
		if err := act.Uncordon(ctx, k, idOf(mg)); err != nil {
			return err
		}
	}
	return e.gate.ReleaseIfReversible(ctx, clusterOf(mg), h)
}

// hasRecord tells whether a removal has written anything down. It does so before it cordons.
func hasRecord(mg *v1alpha1.TalosMachine) bool {
	_, ok := mg.GetAnnotations()[v1alpha1.AnnotationRemovalRecord]
	return ok
}

func (e *external) waitFor(mg *v1alpha1.TalosMachine, reason xpv2.ConditionReason, message string, irreversible bool) {
	e.marker.waiting(mg, string(reason), reason, message, irreversible)
	e.wait(mg)
}

func (e *external) job(mg *v1alpha1.TalosMachine, lock *clusterlock.Held, f facts.Cluster, target facts.Machine) act.Job {
	return act.Job{Lock: lock, Doors: e.doors, Object: mg, Facts: f, Target: target, Drain: e.drainOptions(mg)}
}

// drainOptions are what the machine declares, else what the site decided.
func (e *external) drainOptions(mg *v1alpha1.TalosMachine) act.DrainOptions {
	own, site := mg.Spec.ForProvider.Drain, e.doors.Drain()
	return act.DrainOptions{
		Force:              own.Force || site.Force,
		DeleteEmptyDirData: own.DeleteEmptyDirData || site.DeleteEmptyDirData,
	}
}

// drainTimeout is how long a drain may take before it shows as overdue.
func (e *external) drainTimeout(mg *v1alpha1.TalosMachine) time.Duration {
	for _, t := range []*metav1.Duration{mg.Spec.ForProvider.Drain.Timeout, e.doors.Drain().Timeout} {
		if t != nil {
			return t.Duration
		}
	}
	return defaultDrainTimeout
}
