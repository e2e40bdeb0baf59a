// Package talosmachine adapts the kind TalosMachine to survey, decide and act: its configuration, its reboots and its
// removal. It must never decide whether a machine may be disturbed, nor send it anything but through act.
package talosmachine

import (
	"context"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/act"
	"github.com/maesh/provider-ichor/internal/clusterlock"
	"github.com/maesh/provider-ichor/internal/controller/waiting"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/disruption"
	"github.com/maesh/provider-ichor/internal/machineconfig"
	"github.com/maesh/provider-ichor/internal/survey"
)

// A Surveyor reads what is decided on. *survey.Surveyor satisfies it.
type Surveyor interface {
	// Cluster reads everything afresh: for decisions under the lock.
	Cluster(ctx context.Context, cluster types.NamespacedName, target facts.MachineID) (facts.Cluster, error)
	// Overview is shared and asks control planes only: for status. See survey.Surveyor.
	Overview(ctx context.Context, cluster types.NamespacedName, rest time.Duration) (facts.Cluster, error)
	// Snapshot is at most some seconds old: for not asking for a lock in vain.
	Snapshot(ctx context.Context, cluster types.NamespacedName, target facts.MachineID) (facts.Cluster, error)
	// Objects reads objects only, afresh.
	Objects(ctx context.Context, cluster types.NamespacedName) (facts.Cluster, error)
	// Forget drops what is remembered of a machine whose object is gone.
	Forget(machine types.UID)
}

// Doors open the machines of one cluster, for reading and for acting.
type Doors interface {
	act.Doors
	// Look asks one machine what it is and what it runs.
	Look(ctx context.Context, mg *v1alpha1.TalosMachine) (survey.Observation, error)
	// Maintenance opens the Talos API of a blank machine. The fingerprint pins its certificate unless it is empty.
	Maintenance(address, fingerprint string) act.Configurer
	// Bundle is the PKI of the cluster; nil if the provider does not have it.
	Bundle() *machineconfig.Bundle
	// Drain is what a drain may do where a machine does not say.
	Drain() v1alpha1.MachineDrain
	// ImageFactory is the host of the image factory where the cluster names none.
	ImageFactory() string
}

// parts are what every pass uses. They are shared by all passes and must not change.
type parts struct {
	kube   client.Client
	reader client.Reader // uncached
	survey Surveyor
	gate   *disruption.Gate
	actor  *act.Actor
	hints  *waiting.Hints
	marker *marker
	// rest is how old an overview of a cluster at rest may be: a bit more than a poll, so that it is the cluster's own
	// poll that makes one for all of its machines.
	rest time.Duration
}

// external is one pass over one machine.
type external struct {
	parts

	// cluster that the machine belongs to; nil if it does not exist.
	cluster *v1alpha1.TalosCluster
	// doors of the cluster; nil while it has no PKI.
	doors Doors
	// shut says why there are no doors.
	shut error

	// seen is what Observe found in this pass.
	seen sight
}

// Observe tells what the machine is. It never changes anything, and a machine that does not answer is an error: it is
// never taken for one that does not exist.
func (e *external) Observe(ctx context.Context, mg *v1alpha1.TalosMachine) (managed.ExternalObservation, error) {
	record, err := mg.RemovalRecord()
	if err != nil {
		return managed.ExternalObservation{}, err
	}
	switch {
	case meta.WasDeleted(mg):
		// Only whether it is still there matters. What it is and what comes next is asked under the lock, by Delete.
		gone := !mg.Spec.ForProvider.Approved || (record != nil && record.Completed)
		return managed.ExternalObservation{ResourceExists: !gone, ResourceUpToDate: true}, nil
	case record != nil && record.Completed:
		return e.observeRemoved(ctx, mg)
	case e.tearingDown(mg):
		mark(mg, xpv2.TypeReady, corev1.ConditionFalse, v1alpha1.ReasonTeardown, "The machine goes with its cluster")
		return managed.ExternalObservation{ResourceExists: true}, nil
	case !mg.Spec.ForProvider.Approved:
		return e.observeUnapproved(ctx, mg)
	case e.doors == nil:
		return e.observeWithoutCluster(mg)
	}
	return e.observe(ctx, mg)
}

// Create gives a blank machine its first configuration.
func (e *external) Create(ctx context.Context, mg *v1alpha1.TalosMachine) (managed.ExternalCreation, error) {
	return managed.ExternalCreation{}, e.configure(ctx, mg)
}

// Update takes the machine one step closer to what is declared: to its configuration, or away with its cluster.
func (e *external) Update(ctx context.Context, mg *v1alpha1.TalosMachine) (managed.ExternalUpdate, error) {
	record, err := mg.RemovalRecord()
	switch {
	case err != nil:
		return managed.ExternalUpdate{}, err
	case record != nil && record.Completed:
		return managed.ExternalUpdate{}, e.gate.Release(ctx, clusterOf(mg), holderOf(mg, purposeRemoval))
	case e.tearingDown(mg):
		return managed.ExternalUpdate{}, e.remove(ctx, mg)
	}
	if err := e.mayReconfigure(ctx, mg); err != nil {
		return managed.ExternalUpdate{}, err
	}
	return managed.ExternalUpdate{}, e.reconfigure(ctx, mg)
}

// Delete takes the removal of the machine one step further.
func (e *external) Delete(ctx context.Context, mg *v1alpha1.TalosMachine) (managed.ExternalDelete, error) {
	return managed.ExternalDelete{}, e.remove(ctx, mg)
}

// Disconnect does nothing: connections outlive a pass.
func (e *external) Disconnect(context.Context) error { return nil }

var upToDate = managed.ExternalObservation{ResourceExists: true, ResourceUpToDate: true}

// tearingDown tells whether this machine is to go because its whole cluster goes.
func (e *external) tearingDown(mg *v1alpha1.TalosMachine) bool {
	return e.cluster != nil && e.cluster.TearingDown() && mg.Spec.ForProvider.Approved && !mg.LeftAlone()
}

func clusterOf(mg *v1alpha1.TalosMachine) types.NamespacedName {
	return types.NamespacedName{Namespace: mg.GetNamespace(), Name: mg.ClusterName()}
}

func idOf(mg *v1alpha1.TalosMachine) facts.MachineID { return facts.MachineID(mg.GetUID()) }

// holderOf is the identity of a disruption of this machine: the object that it is for, not the process that works on it,
// so that a restarted provider goes on with its own.
func holderOf(mg *v1alpha1.TalosMachine, purpose string) clusterlock.Holder {
	return clusterlock.Holder{Kind: v1alpha1.TalosMachineKind, Name: mg.GetName(), UID: mg.GetUID(), Purpose: purpose}
}

// wait ends a pass that waits: it is repeated at a fixed pace.
func (e *external) wait(mg *v1alpha1.TalosMachine) { e.hints.Give(client.ObjectKeyFromObject(mg)) }

// standBack ends a pass whose lock went to another process that does the same work, as two that run at once have it. The more
// often they meet the longer this one waits: at a fixed pace they would take the lock from each other before either is done.
func (e *external) standBack(mg *v1alpha1.TalosMachine) {
	e.hints.TakeBack(client.ObjectKeyFromObject(mg))
}

// soon ends a pass that did its one thing: the next one follows as soon as the cache can know of it.
func (e *external) soon(mg *v1alpha1.TalosMachine) { e.hints.GiveSoon(client.ObjectKeyFromObject(mg)) }
