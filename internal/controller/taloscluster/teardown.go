package taloscluster

import (
	"context"
	"fmt"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/deleteguard"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/metrics"
)

// Steps of a teardown, as status shows them. Machines take themselves down, each through its own object: the provider
// may not delete objects of its own kinds. The PKI goes last, since without it nothing can talk to a machine.
const (
	stepMachines = "TakeDownMachines"
	stepPKI      = "DeletePKI"
)

// observeTeardown answers whether anything of the cluster is left, and asks as little as it can: whatever a teardown
// does not need may be gone by now.
func (e *external) observeTeardown(ctx context.Context, c *v1alpha1.TalosCluster, p *pki) (managed.ExternalObservation, error) {
	f, err := e.survey.Objects(ctx, name(c))
	if err != nil {
		return managed.ExternalObservation{}, errors.Wrap(err, "cannot list the machines of the cluster")
	}
	e.pki, e.left = p, awaited(f)
	return managed.ExternalObservation{ResourceExists: p != nil || len(e.left) > 0, ResourceUpToDate: true}, nil
}

// awaited are the machines that still have to be taken down: those that may ever have been given a configuration, until
// their removal is completed or their object is gone.
func awaited(f facts.Cluster) []facts.Machine {
	var left []facts.Machine
	for _, m := range f.Machines {
		if m.Approved && !m.Removed {
			left = append(left, m)
		}
	}
	return left
}

// Delete goes on with the teardown of a cluster by at most one effect: the end of its PKI, once no machine needs it.
func (e *external) Delete(ctx context.Context, c *v1alpha1.TalosCluster) (managed.ExternalDelete, error) {
	allowed := c.GetAnnotations()[v1alpha1.AnnotationAllowDelete] == "true"
	if refusal := deleteguard.CheckDelete(v1alpha1.TalosClusterKind, c.GetName(), allowed); refusal != nil {
		e.hints.Give(name(c))
		e.markRemoval(c, "", corev1.ConditionFalse, xpv2.ConditionReason(refusal.Reason), refusal.Error())
		return managed.ExternalDelete{}, refusal
	}
	if err := e.giveBackLock(ctx, c); err != nil {
		return managed.ExternalDelete{}, err
	}
	switch {
	case len(e.left) > 0 && e.pki == nil:
		e.hints.Give(name(c))
		e.markRemoval(c, stepMachines, corev1.ConditionFalse, v1alpha1.ReasonPKIMissing, pkiMissing(c, e.left))
		return managed.ExternalDelete{}, nil
	case len(e.left) > 0:
		e.hints.Give(name(c))
		e.markRemoval(c, stepMachines, corev1.ConditionTrue, v1alpha1.ReasonAwaitingMachines, awaiting(e.left))
		return managed.ExternalDelete{}, nil
	case e.pki == nil:
		return managed.ExternalDelete{}, nil
	}
	e.markRemoval(c, stepPKI, corev1.ConditionTrue, v1alpha1.ReasonTeardown, "Every machine is taken down; deleting the PKI")
	if err := e.keeper.remove(ctx, e.pki); err != nil {
		return managed.ExternalDelete{}, err
	}
	metrics.Forget(c.GetNamespace(), c.GetName())
	return managed.ExternalDelete{}, nil
}

// markRemoval shows where a teardown stands, in its own condition: Ready is overwritten while an object is deleted.
func (e *external) markRemoval(c *v1alpha1.TalosCluster, step string, s corev1.ConditionStatus, r xpv2.ConditionReason, message string) {
	if before := c.GetCondition(v1alpha1.TypeRemoval); s == corev1.ConditionFalse && before.Reason != r {
		metrics.Refusal(string(r))
	}
	e.mark(c, condition(v1alpha1.TypeRemoval, s, r, message))
	if step == "" {
		c.Status.AtProvider.Removal = nil
		return
	}
	since := metav1.NewTime(e.clock.Now()).Rfc3339Copy()
	if before := c.Status.AtProvider.Removal; before != nil && before.Step == step {
		since = before.Since
	}
	c.Status.AtProvider.Removal = &v1alpha1.RemovalObservation{
		Step: step, Since: since, Irreversible: step == stepPKI, Message: message,
	}
}

// awaiting says which machines are waited for, in the order in which they go.
func awaiting(left []facts.Machine) string {
	workers, controlPlanes := byRole(left)
	var parts []string
	if len(workers) > 0 {
		parts = append(parts, fmt.Sprintf("workers %s (first)", strings.Join(workers, ", ")))
	}
	if len(controlPlanes) > 0 {
		parts = append(parts, fmt.Sprintf("control planes %s (one by one)", strings.Join(controlPlanes, ", ")))
	}
	return "Waiting until these are taken down: " + strings.Join(parts, "; ") +
		". Each TalosMachine says in its condition Removal what it does or what it waits for. To leave a machine as it is, take Delete out of its managementPolicies and delete it"
}

// pkiMissing says why a teardown cannot go on, and the ways out.
func pkiMissing(c *v1alpha1.TalosCluster, left []facts.Machine) string {
	workers, controlPlanes := byRole(left)
	return fmt.Sprintf("The PKI is gone, without which nothing can talk to %s. Restore the PKI Secret from a backup; or, to leave these machines as they are, take Delete out of the managementPolicies of TalosCluster %s",
		strings.Join(append(workers, controlPlanes...), ", "), c.GetName())
}

func byRole(machines []facts.Machine) (workers, controlPlanes []string) {
	for _, m := range machines {
		if m.Role == facts.Worker {
			workers = append(workers, m.Name)
		} else {
			controlPlanes = append(controlPlanes, m.Name)
		}
	}
	return workers, controlPlanes
}
