package talosmachine

import (
	"context"
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/act"
	"github.com/maesh/provider-ichor/internal/clusterlock"
	"github.com/maesh/provider-ichor/internal/decide/configchange"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/disruption"
	"github.com/maesh/provider-ichor/internal/talos"
)

const purposeReboot = "reboot for a new configuration"

// reconfigure takes the machine one step closer to its declared configuration: at once where Talos can, and else through
// the same gate as any other disruption.
func (e *external) reconfigure(ctx context.Context, mg *v1alpha1.TalosMachine) error {
	if e.doors == nil || e.seen.Live.Mode != facts.Configured {
		return nil // Nothing to update: with policies that leave Create out, a blank machine ends up here.
	}
	if !e.seen.ours && configchange.Verdict(e.seen.config) == configchange.Drifted {
		target := act.Target{ID: idOf(mg), Name: mg.GetName(), UUID: mg.PinnedUUID()}
		if err := act.ChangeConfig(ctx, target, e.doors.Machine(mg.Spec.ForProvider.Address), e.seen.desired); err != nil {
			if talos.ClassOf(err) == talos.Rejected {
				mark(mg, v1alpha1.TypeConfigApplied, corev1.ConditionFalse, v1alpha1.ReasonConfigRejected, sentence(err))
			}
			return err
		}
		e.marker.record.Event(mg, event.Normal(eventConfigChanged, "Changed the machine's configuration without a reboot"))
		return nil
	}
	if !e.seen.ours {
		if stop, err := e.rebootWouldStop(ctx, mg); stop || err != nil {
			return err
		}
	}
	// A reboot that holds the lock has cordoned its machine already and goes on, or steps aside, whatever the count.
	lock, err := e.gate.AcquireDisruptiveLock(ctx, clusterOf(mg), holderOf(mg, purposeReboot), e.seen.ours)
	if err != nil {
		return e.rebootWithoutLock(ctx, mg, err)
	}
	f, err := e.survey.Cluster(ctx, clusterOf(mg), idOf(mg))
	if err != nil {
		return errors.Wrap(err, "cannot survey the cluster")
	}
	return e.rebootStep(ctx, mg, lock, f)
}

// mayReconfigure returns an error unless the machine may be given the hostname that is declared. What is begun is finished.
func (e *external) mayReconfigure(ctx context.Context, mg *v1alpha1.TalosMachine) error {
	if e.seen.ours {
		return nil
	}
	f, err := e.survey.Objects(ctx, clusterOf(mg))
	if err != nil {
		return errors.Wrap(err, "cannot read the machines of the cluster")
	}
	return namesake(mg, f)
}

// rebootWithoutLock is what becomes of a pass that did not get the lock. While the number of control planes is even, what a
// reboot did before it lost its lock is undone: nobody else may be disturbed while this machine is cordoned, so the cure would
// never come.
func (e *external) rebootWithoutLock(ctx context.Context, mg *v1alpha1.TalosMachine, err error) error {
	te, he := (*disruption.TransitioningError)(nil), (*clusterlock.HeldError)(nil)
	switch {
	case errors.As(err, &he):
		e.rebootWaits(mg, v1alpha1.ReasonWaitingForLock, waitsForLock(mg.ClusterName(), he))
		return nil
	case errors.As(err, &te):
		e.rebootWaits(mg, v1alpha1.ReasonClusterTransitioning, sentence(te))
		if !e.seen.cordoned {
			return nil
		}
		return e.stepAside(ctx, mg, holderOf(mg, purposeReboot), true)
	}
	return errors.Wrap(err, "cannot take the lock of the cluster")
}

// rebootWouldStop looks before the lock is taken, as wouldStop does for a removal.
func (e *external) rebootWouldStop(ctx context.Context, mg *v1alpha1.TalosMachine) (bool, error) {
	f, err := e.survey.Snapshot(ctx, clusterOf(mg), idOf(mg))
	if err != nil {
		return false, errors.Wrap(err, "cannot survey the cluster")
	}
	m, ok := f.Machine(idOf(mg))
	if node, _ := m.Node.Get(); !ok || node.Ours {
		return false, nil // Younger than the snapshot, or begun already.
	}
	switch d := configchange.Next(f, m.ID, e.seen.config).(type) {
	case configchange.Wait:
		e.rebootWaits(mg, v1alpha1.ReasonNeedsReboot, d.Message)
		return true, nil
	case configchange.Refuse:
		e.rebootWaits(mg, v1alpha1.ReasonNeedsReboot, d.Refusal.Error())
		return true, d.Refusal
	case configchange.Act, configchange.Done:
	}
	return false, nil
}

// rebootStep decides under the lock and does one thing.
func (e *external) rebootStep(ctx context.Context, mg *v1alpha1.TalosMachine, lock *clusterlock.Held, f facts.Cluster) error {
	target, ok := f.Machine(idOf(mg))
	if !ok {
		return fmt.Errorf("the survey of cluster %q does not know machine %q", mg.ClusterName(), mg.GetName())
	}
	switch d := configchange.Next(f, target.ID, e.seen.config).(type) {
	case configchange.Act:
		return e.rebootAct(ctx, mg, lock, f, target, d)
	case configchange.Wait:
		e.rebootWaits(mg, v1alpha1.ReasonNeedsReboot, d.Message)
		return e.rebootLetGo(ctx, mg, target, d)
	case configchange.Refuse:
		mark(mg, v1alpha1.TypeConfigApplied, corev1.ConditionFalse, v1alpha1.ReasonNeedsReboot, d.Refusal.Error())
		e.wait(mg)
		node, known := target.Node.Get()
		if err := e.stepAside(ctx, mg, holderOf(mg, purposeReboot), node.Ours || !known); err != nil {
			return err
		}
		return d.Refusal
	case configchange.Done:
		return errors.Wrap(lock.Release(ctx), "cannot release the lock of the cluster")
	}
	return fmt.Errorf("the change of configuration of %q was answered with a decision that is not known", mg.GetName())
}

// rebootLetGo gives up the lock in a wait, where keeping it would block others for nothing: its cure, while the number of
// control planes is even; and whoever is first, while nothing was disturbed yet.
func (e *external) rebootLetGo(ctx context.Context, mg *v1alpha1.TalosMachine, target facts.Machine, d configchange.Wait) error {
	node, known := target.Node.Get()
	switch d.Reason {
	case configchange.ClusterTransitioning:
		return e.stepAside(ctx, mg, holderOf(mg, purposeReboot), true)
	case configchange.NodeUnknown, configchange.ConfigUnknown, configchange.MachineUnreachable:
		if (known && !node.Ours) || (!known && !e.seen.ours) {
			return e.gate.ReleaseIfReversible(ctx, clusterOf(mg), holderOf(mg, purposeReboot))
		}
	case configchange.WaitingForReboot, configchange.WaitingForMachine:
	}
	return nil
}

func (e *external) rebootAct(ctx context.Context, mg *v1alpha1.TalosMachine, lock *clusterlock.Held, f facts.Cluster, target facts.Machine, d configchange.Act) error {
	mark(mg, v1alpha1.TypeConfigApplied, corev1.ConditionFalse, v1alpha1.ReasonRebooting, d.Message)
	e.wait(mg)
	job := e.job(mg, lock, f, target)
	job.Config = e.seen.desired
	err := e.actor.Reconfigure(ctx, job, d)
	blocked, lost := (*act.DrainBlockedError)(nil), (*clusterlock.LostError)(nil)
	switch {
	case errors.As(err, &blocked):
		e.rebootWaits(mg, v1alpha1.ReasonNeedsReboot, sentence(blocked))
		return nil
	case errors.As(err, &lost):
		e.rebootWaits(mg, v1alpha1.ReasonWaitingForLock, lostLock(lost))
		if lost.Elsewhere {
			e.standBack(mg)
			return lost // An update that went well is repeated at the pace of the poll.
		}
		return nil
	}
	if err == nil {
		e.marker.record.Event(mg, event.Normal(eventReboot, d.Message))
		e.soon(mg)
	}
	return err
}

// rebootWaits shows a reboot that waits. While its cordon stands the reason says so, with or without the lock: the finalizer
// undoes nothing where nothing was begun.
func (e *external) rebootWaits(mg *v1alpha1.TalosMachine, reason xpv2.ConditionReason, message string) {
	if e.seen.cordoned {
		reason = v1alpha1.ReasonRebooting
	}
	mark(mg, v1alpha1.TypeConfigApplied, corev1.ConditionFalse, reason, message)
	e.marker.record.Event(mg, event.Normal(eventRebootWaits, message))
	e.wait(mg)
}
