package e2e

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	topology "github.com/maesh/provider-ichor/apis/topology/v1alpha1"
	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/lab"
	"github.com/maesh/provider-ichor/internal/lab/story"
)

// vanishes takes a control plane off its list, as a merge that went wrong does, and puts it back.
func (e *E2E) vanishes(ctx context.Context) error {
	from, err := e.lab.Fleet.LastCall(ctx)
	if err != nil {
		return err
	}
	listed := e.claim.Spec.ControlPlanes.Machines
	e.claim.Spec.ControlPlanes.Machines = listed[:2]
	if err := e.write(ctx, e.claim); err != nil {
		return err
	}
	err = e.await(ctx, "the claim says what it keeps", func(ctx context.Context) error {
		c, err := e.topology(ctx, topology.KindClaim, claimName)
		if err != nil {
			return err
		}
		return wants(c, topology.TypeMachinesListed, corev1.ConditionFalse, topology.ReasonKept, "cp-3", "spec.removals")
	})
	if err != nil {
		return err
	}
	if err := e.quiet(ctx, 2*poll); err != nil {
		return err
	}
	if err := errors.Join(e.voters(ctx, 3), e.untouched(ctx, "", from)); err != nil {
		return err
	}
	e.claim.Spec.ControlPlanes.Machines = listed
	if err := e.write(ctx, e.claim); err != nil {
		return err
	}
	return e.await(ctx, "every machine is listed", func(ctx context.Context) error {
		c, err := e.topology(ctx, topology.KindClaim, claimName)
		if err != nil {
			return err
		}
		return wants(c, topology.TypeMachinesListed, corev1.ConditionTrue)
	})
}

func (e *E2E) poolGrows(ctx context.Context) error {
	list(&e.claim.Spec.Pools[0].Machines, "worker-2", spare)
	if err := e.write(ctx, e.claim); err != nil {
		return err
	}
	return e.await(ctx, "five Nodes are Ready, and the claim is", func(ctx context.Context) error {
		return errors.Join(e.claimReady(ctx), e.nodes(ctx, claimSecret, 5))
	})
}

func (e *E2E) poolShrinks(ctx context.Context) error {
	r, err := e.begin(ctx, "worker-2")
	if err != nil {
		return err
	}
	unlist(&e.claim.Spec.Pools[0].Machines, r.name)
	e.claim.Spec.Removals = []string{r.name}
	if err := e.write(ctx, e.claim); err != nil {
		return err
	}
	if err := e.ends(ctx, r); err != nil {
		return err
	}
	return e.forget(ctx, 4)
}

// replaces writes the example of a replacement: one edit, by which cp-4 takes the place of cp-2.
func (e *E2E) replaces(ctx context.Context) error {
	r, err := e.begin(ctx, "cp-2")
	if err != nil {
		return err
	}
	if e.claim, err = e.example("replacement-claim.yaml"); err != nil {
		return err
	}
	if err := e.write(ctx, e.claim); err != nil {
		return err
	}
	if err := e.await(ctx, "four voters are healthy", func(ctx context.Context) error { return e.voters(ctx, 4) }); err != nil {
		return err
	}
	if err := e.ends(ctx, r); err != nil {
		return err
	}
	return e.forget(ctx, 4)
}

// forget takes what is gone out of spec.removals, and waits until the cluster is as declared.
func (e *E2E) forget(ctx context.Context, nodes int) error {
	e.claim.Spec.Removals = nil
	if err := e.write(ctx, e.claim); err != nil {
		return err
	}
	return e.await(ctx, "the claim is Ready, and no removal is left", func(ctx context.Context) error {
		c, err := e.topology(ctx, topology.KindClaim, claimName)
		if err != nil {
			return err
		}
		if err := wants(c, topology.TypeRemoval, corev1.ConditionFalse, topology.ReasonNothingToRemove, "No removal"); err != nil {
			return err
		}
		return errors.Join(e.claimReady(ctx), e.voters(ctx, 3), e.nodes(ctx, claimSecret, nodes))
	})
}

// A removal is a machine that is about to be removed, as it was before.
type removal struct {
	// name within the topology.
	name         string
	controlPlane bool
	before       lab.Machine
	// from is the number of the last call before.
	from uint64
	// told is what the removal was last seen to say.
	told string
}

func (e *E2E) begin(ctx context.Context, name string) (*removal, error) {
	m := &v1alpha1.TalosMachine{}
	if err := e.object(ctx, claimName+"-"+name, m); err != nil {
		return nil, err
	}
	before, err := e.lab.Fleet.At(ctx, m.Spec.ForProvider.Address)
	if err != nil {
		return nil, err
	}
	from, err := e.lab.Fleet.LastCall(ctx)
	return &removal{name: name, controlPlane: m.Spec.ForProvider.Role == v1alpha1.RoleControlPlane, before: before, from: from}, err
}

// ends waits until a removal has come to its end, and looks at what it left: a machine that left etcd before it was reset, and
// is blank in a new boot.
func (e *E2E) ends(ctx context.Context, r *removal) error {
	err := e.await(ctx, r.name+" is gone", func(ctx context.Context) error { return e.gone(ctx, r) })
	if err != nil {
		return err
	}
	after, err := e.lab.Fleet.At(ctx, r.before.Address)
	if err != nil {
		return err
	}
	if after.Stage != stageMaintenance || after.BootID == r.before.BootID {
		return fmt.Errorf("machine %s is in stage %q of boot %s (it was in boot %s): it was not reset", after.Name, after.Stage, after.BootID, r.before.BootID)
	}
	calls, err := e.lab.Fleet.Changes(ctx, r.before.Name, r.from)
	if err != nil {
		return err
	}
	return story.InOrder(calls, r.controlPlane)
}

// gone wants the TalosMachine to be gone, and shows what its removal says meanwhile.
func (e *E2E) gone(ctx context.Context, r *removal) error {
	m := &v1alpha1.TalosMachine{}
	err := e.object(ctx, claimName+"-"+r.name, m)
	if kerrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	c := m.GetCondition(v1alpha1.TypeRemoval)
	if now := fmt.Sprintf("%s: %s", c.Reason, c.Message); c.Reason != "" && now != r.told {
		r.told = now
		e.sayf("        %s: %s\n", r.name, now)
	}
	claim, err := e.topology(ctx, topology.KindClaim, claimName)
	if err != nil {
		return err
	}
	said, err := condition(claim, topology.TypeRemoval)
	if err != nil {
		return err
	}
	return fmt.Errorf("its removal says: %s; the claim says: %s: %s", r.told, said.Reason, said.Message)
}
