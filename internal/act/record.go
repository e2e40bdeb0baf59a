package act

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/facts"
)

// Record writes down what the world cannot tell any more after the next steps. It is written, with the object's version
// as a precondition, before the step that makes it necessary: a record that was lost would leave a machine that cannot
// be told from one that was never a member.
func (a *Actor) Record(ctx context.Context, lock Lock, mg *v1alpha1.TalosMachine, r facts.Record) error {
	if r.Reset {
		// There is only forward from here, so nobody else may begin anything, though the reset itself comes later.
		if err := lock.MarkIrreversible(ctx); err != nil {
			return fmt.Errorf("cannot record the removal of %q: %w", mg.GetName(), err)
		}
	}
	if err := lock.Check(ctx); err != nil {
		return fmt.Errorf("cannot record the removal of %q: %w", mg.GetName(), err)
	}
	return a.writeRecord(ctx, mg, v1alpha1.RemovalRecord{
		UUID:     r.UUID,
		BootID:   r.BootID,
		MemberID: v1alpha1.FormatMemberID(uint64(r.Member)),
		Reset:    r.Reset,
	})
}

// Complete writes down that nothing is left to do for the removal of this machine. From then on it is no machine of its
// cluster, whether its object still exists or not.
func (a *Actor) Complete(ctx context.Context, lock Lock, mg *v1alpha1.TalosMachine) error {
	if err := lock.Check(ctx); err != nil {
		return fmt.Errorf("cannot complete the removal of %q: %w", mg.GetName(), err)
	}
	r, err := mg.RemovalRecord()
	if err != nil {
		return err
	}
	if r == nil {
		r = &v1alpha1.RemovalRecord{UUID: mg.PinnedUUID()}
	}
	r.Completed = true
	return a.writeRecord(ctx, mg, *r)
}

func (a *Actor) writeRecord(ctx context.Context, mg *v1alpha1.TalosMachine, r v1alpha1.RemovalRecord) error {
	// A copy is patched: the answer would overwrite the status that this pass has set and not persisted yet.
	after := mg.DeepCopy()
	if err := after.SetRemovalRecord(r); err != nil {
		return err
	}
	patch := client.MergeFromWithOptions(mg, client.MergeFromWithOptimisticLock{})
	if err := a.kube.Patch(ctx, after, patch); err != nil {
		return fmt.Errorf("cannot record the removal of %q: %w", mg.GetName(), err)
	}
	mg.SetAnnotations(after.GetAnnotations())
	mg.SetResourceVersion(after.GetResourceVersion())
	return nil
}
