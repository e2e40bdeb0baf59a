package taloscluster

import (
	"context"
	"fmt"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/act"
	"github.com/maesh/provider-ichor/internal/clusterlock"
	"github.com/maesh/provider-ichor/internal/decide/bootstrap"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/disruption"
	"github.com/maesh/provider-ichor/internal/metrics"
	"github.com/maesh/provider-ichor/internal/talos"
)

// purposeBootstrap is what the lock is held for.
const purposeBootstrap = "bootstrap"

// holderOf is the holder of the lock for the bootstrap of a cluster.
func holderOf(c *v1alpha1.TalosCluster) clusterlock.Holder {
	return clusterlock.Holder{Kind: v1alpha1.TalosClusterKind, Name: c.GetName(), UID: c.GetUID(), Purpose: purposeBootstrap}
}

// readiness says whether the cluster is ready, or how far its bootstrap is.
func (e *external) readiness(f facts.Cluster, h etcdHealth, d bootstrap.Decision) xpv2.Condition {
	no := func(message string) xpv2.Condition {
		r := v1alpha1.ReasonAwaitingControlPlanes
		if f.Bootstrapped != "" {
			r = v1alpha1.ReasonBootstrapping
		}
		return condition(xpv2.TypeReady, corev1.ConditionFalse, r, message)
	}
	switch d := d.(type) {
	case bootstrap.Done:
		return ready(f, h)
	case bootstrap.Send:
		return no("Bootstrap is due: " + d.Message)
	case bootstrap.Wait:
		return no(d.Message)
	case bootstrap.Refuse:
		return condition(xpv2.TypeReady, corev1.ConditionFalse, xpv2.ConditionReason(d.Refusal.Reason), d.Refusal.Error())
	}
	return no("It is not known whether bootstrap is due")
}

// bootstrapTask bootstraps etcd if the last survey says that it is due. That survey may be some seconds old, so it only
// says that it is worth to take the lock and look again.
func (e *external) bootstrapTask(d bootstrap.Decision) task {
	if _, due := d.(bootstrap.Send); !due {
		return nil
	}
	return e.bootstrap
}

// bootstrap takes the lock, surveys the cluster afresh, decides and does one thing. The lock is given back in the same
// pass: that Bootstrap goes to one machine only is kept by the record, which is written before the call, and not by it.
func (e *external) bootstrap(ctx context.Context, c *v1alpha1.TalosCluster) (managed.ExternalUpdate, error) {
	lock, err := e.locks.Acquire(ctx, name(c), holderOf(c))
	if err != nil {
		return managed.ExternalUpdate{}, e.withoutLock(c, err)
	}
	err = e.bootstrapStep(ctx, c, lock)
	return managed.ExternalUpdate{}, errors.Join(err, errors.Wrap(lock.Release(ctx), "cannot give back the lock of the cluster"))
}

// withoutLock shows why the lock was not to be had: to wait for it is no failure.
func (e *external) withoutLock(c *v1alpha1.TalosCluster, err error) error {
	held, even := (*clusterlock.HeldError)(nil), (*disruption.TransitioningError)(nil)
	reason := v1alpha1.ReasonAwaitingControlPlanes
	switch {
	case errors.As(err, &held):
	case errors.As(err, &even):
		reason = v1alpha1.ReasonEvenControlPlaneCount
	default:
		return errors.Wrap(err, "cannot take the lock of the cluster")
	}
	e.hints.Give(name(c))
	e.mark(c, condition(xpv2.TypeReady, corev1.ConditionFalse, reason, "Bootstrap is due and waits: "+err.Error()))
	return nil
}

// bootstrapStep decides under the lock and does one thing: it writes down to which machine Bootstrap is sent, or, once
// that is written down, sends it.
func (e *external) bootstrapStep(ctx context.Context, c *v1alpha1.TalosCluster, lock Lock) error {
	f, err := e.survey.Cluster(ctx, name(c), "")
	if err != nil {
		return errors.Wrap(err, "cannot survey the cluster")
	}
	d := bootstrap.Next(f)
	send, due := d.(bootstrap.Send)
	if !due {
		e.hints.Give(name(c))
		e.mark(c, e.readiness(f, healthOf(f), d))
		return nil
	}
	m, ok := f.Machine(send.Machine)
	if !ok || m.UUID == "" {
		return errors.Errorf("cannot bootstrap the cluster: the machine that was chosen (%q) has no SMBIOS UUID that could be written down", m.Name)
	}
	switch {
	case f.Bootstrapped == "":
		return e.recordBootstrap(ctx, c, m)
	case strings.EqualFold(f.Bootstrapped, m.UUID):
		return e.sendBootstrap(ctx, c, lock, m, send)
	}
	return errors.Errorf("cannot bootstrap the cluster on %q (SMBIOS UUID %q): annotation %s says that Bootstrap was sent to the machine with SMBIOS UUID %q, and it is never sent to another one", m.Name, m.UUID, v1alpha1.AnnotationBootstrapped, f.Bootstrapped)
}

// recordBootstrap writes down to which machine Bootstrap will be sent. It fails if anybody changed the object since it was
// read, so that of two that choose only one can write.
func (e *external) recordBootstrap(ctx context.Context, c *v1alpha1.TalosCluster, m facts.Machine) error {
	err := e.annotate(ctx, c, func(c *v1alpha1.TalosCluster) {
		meta.AddAnnotations(c, map[string]string{v1alpha1.AnnotationBootstrapped: m.UUID})
		meta.RemoveAnnotations(c, v1alpha1.AnnotationBootstrapBoot) // That of a machine before, if a person has taken it off.
	})
	if err != nil {
		return errors.Wrap(err, "cannot write down which machine is bootstrapped")
	}
	e.hints.Give(name(c))
	e.mark(c, bootstrapping(m, "Bootstrap is about to be sent to"))
	return nil
}

// sendBootstrap sends Bootstrap to the machine that was written down. Its answer proves nothing, and neither does a lost
// one: the next survey tells what became of it.
func (e *external) sendBootstrap(ctx context.Context, c *v1alpha1.TalosCluster, lock Lock, m facts.Machine, d bootstrap.Send) error {
	if e.access == nil {
		return errors.New("cannot bootstrap the cluster: it could not be opened")
	}
	target := act.Target{ID: m.ID, Name: m.Name, UUID: m.UUID}
	err := e.actor.Bootstrap(ctx, lock, d.Permit, bootstrap.Step, target, e.access.Machine(m.Address))
	if class := talos.ClassOf(err); err != nil && class != talos.Ambiguous && class != talos.AlreadyExists {
		return err
	}
	metrics.Bootstrap(c.GetNamespace(), c.GetName())
	e.hints.Give(name(c))
	e.record.Event(c, event.Normal("SentBootstrap", fmt.Sprintf("Sent Bootstrap to machine %q (SMBIOS UUID %s)", m.Name, m.UUID)))
	e.mark(c, bootstrapping(m, "Bootstrap was sent to"))
	if err != nil {
		return nil //nolint:nilerr // a call that had no effect, perhaps, is not to be taken for one that had
	}
	return e.recordAnswer(ctx, c, m)
}

// recordAnswer writes down in which boot the machine answered Bootstrap, over whatever else was changed meanwhile. It comes after
// the call, since written before it would keep a call that was never made from being made: whoever dies in between sends it
// once more in this boot, to the same machine. So does one that cannot know the boot, as the machine does not tell its ID.
func (e *external) recordAnswer(ctx context.Context, c *v1alpha1.TalosCluster, m facts.Machine) error {
	live, _ := m.Live.Get()
	boot, known := live.BootID.Get()
	if !known {
		return nil
	}
	before, after := c.DeepCopy(), c.DeepCopy()
	meta.RemoveAnnotations(before, v1alpha1.AnnotationBootstrapBoot) // A cache that is behind may show one that was taken off: it would not be written.
	meta.AddAnnotations(after, map[string]string{v1alpha1.AnnotationBootstrapBoot: boot})
	if err := e.kube.Patch(ctx, after, client.MergeFrom(before)); err != nil {
		return errors.Wrap(err, "cannot write down in which boot Bootstrap was answered")
	}
	c.SetAnnotations(after.GetAnnotations())
	c.SetResourceVersion(after.GetResourceVersion())
	return nil
}

func bootstrapping(m facts.Machine, what string) xpv2.Condition {
	return condition(xpv2.TypeReady, corev1.ConditionFalse, v1alpha1.ReasonBootstrapping, fmt.Sprintf("%s %s; waiting until its etcd is up", what, m.Name))
}

// giveBackLock releases the lock if a pass that never ended holds it still for this cluster.
func (e *external) giveBackLock(ctx context.Context, c *v1alpha1.TalosCluster) error {
	return errors.Wrap(e.locks.Release(ctx, name(c), holderOf(c)), "cannot give back the lock of the cluster")
}
