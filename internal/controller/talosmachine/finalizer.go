package talosmachine

import (
	"context"
	"fmt"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/clusterlock"
	"github.com/maesh/provider-ichor/internal/decide/removal"
	"github.com/maesh/provider-ichor/internal/disruption"
)

// A finalizer keeps a TalosMachine until its machine was removed, or was given up while that could still be undone. It is
// the only thing of ours that Crossplane calls when a machine is given up by taking Delete out of its management policies.
type finalizer struct {
	parts

	api       resource.Finalizer
	connector *connector
}

// AddFinalizer to the TalosMachine.
func (f *finalizer) AddFinalizer(ctx context.Context, obj resource.Object) error {
	return f.api.AddFinalizer(ctx, obj)
}

// RemoveFinalizer from the TalosMachine, unless its removal is past the point of no return and not at its end.
func (f *finalizer) RemoveFinalizer(ctx context.Context, obj resource.Object) error {
	mg, ok := obj.(*v1alpha1.TalosMachine)
	if !ok {
		return fmt.Errorf("cannot remove the finalizer of a %T: not a TalosMachine", obj)
	}
	if meta.FinalizerExists(mg, v1alpha1.FinalizerMachine) {
		if err := f.letGo(ctx, mg); err != nil {
			return err
		}
	}
	f.survey.Forget(mg.GetUID())
	return f.api.RemoveFinalizer(ctx, mg)
}

// letGo ends whatever holds the object.
func (f *finalizer) letGo(ctx context.Context, mg *v1alpha1.TalosMachine) error {
	record, err := mg.RemovalRecord()
	if err != nil {
		return err
	}
	holder := holderOf(mg, purposeRemoval)
	if !mg.Spec.ForProvider.Approved || (record != nil && record.Completed) {
		return f.gate.Release(ctx, clusterOf(mg), holder)
	}
	if !mg.LeftAlone() {
		return errors.New("the removal of the machine was not completed")
	}
	return f.giveUp(ctx, mg, record, holder)
}

// giveUp ends what was begun with a machine that is to be left as it is, if it can still be undone.
func (f *finalizer) giveUp(ctx context.Context, mg *v1alpha1.TalosMachine, record *v1alpha1.RemovalRecord, holder clusterlock.Holder) error {
	held, irreversible, err := f.gate.HeldBy(ctx, clusterOf(mg), holder)
	if err != nil {
		return err
	}
	cordoned := record != nil || mg.GetCondition(v1alpha1.TypeConfigApplied).Reason == v1alpha1.ReasonRebooting
	if !held && !cordoned {
		return nil // Nothing was begun.
	}
	if accepted(mg) {
		return f.gate.Release(ctx, clusterOf(mg), holder)
	}
	if irreversible || (record != nil && record.Reset) || f.actor.Running(idOf(mg)) {
		return tooLate(mg)
	}
	if held {
		// Taken over, so that another process in the middle of a pass does nothing more to the machine.
		if _, err := f.gate.AcquireDisruptiveLock(ctx, clusterOf(mg), holder, true); err != nil {
			return errors.Wrap(err, "cannot take the lock of the cluster over")
		}
	}
	return f.callOff(ctx, mg, cordoned)
}

// callOff undoes a removal, or a reboot, that was begun.
func (f *finalizer) callOff(ctx context.Context, mg *v1alpha1.TalosMachine, cordoned bool) error {
	e, err := f.connector.open(ctx, mg)
	if err != nil {
		return err
	}
	if e.cluster == nil {
		return f.gate.Release(ctx, clusterOf(mg), holderOf(mg, purposeRemoval))
	}
	facts, err := f.survey.Cluster(ctx, clusterOf(mg), idOf(mg))
	if err != nil {
		return errors.Wrap(err, "cannot tell whether the removal can still be called off")
	}
	if removal.Irreversible(facts, idOf(mg)) {
		return tooLate(mg)
	}
	err = e.stepAside(ctx, mg, holderOf(mg, purposeRemoval), cordoned)
	if ie := (*disruption.IrreversibleError)(nil); errors.As(err, &ie) {
		return tooLate(mg)
	}
	if err != nil {
		return errors.Wrapf(err, "cannot undo what was done to %q (bring the Kubernetes API of its cluster back; or accept that its disk is not wiped "+
			"with the annotation %s: %q, which undoes nothing)", mg.GetName(), v1alpha1.AnnotationAcceptUnwipedDisk, mg.PinnedUUID())
	}
	return nil
}

// accepted tells whether a person accepts in writing that the machine's disk is not wiped.
func accepted(mg *v1alpha1.TalosMachine) bool {
	uuid := mg.GetAnnotations()[v1alpha1.AnnotationAcceptUnwipedDisk]
	return uuid != "" && strings.EqualFold(uuid, mg.PinnedUUID())
}

func tooLate(mg *v1alpha1.TalosMachine) error {
	return fmt.Errorf("the removal of %q is past the point of no return and cannot be called off. Put Delete back into spec.managementPolicies "+
		"to let it finish, or accept that its disk is not wiped with the annotation %s: %q", mg.GetName(), v1alpha1.AnnotationAcceptUnwipedDisk, mg.PinnedUUID())
}
