package gitops

import (
	"maps"
	"testing"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	topology "github.com/maesh/provider-ichor/apis/topology/v1alpha1"
	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// What Argo CD and Flux call the health of an object.
const (
	healthy     = "Healthy"
	progressing = "Progressing"
	degraded    = "Degraded"
	suspended   = "Suspended"

	current    = "Current"
	inProgress = "InProgress"
	failed     = "Failed"
)

// A sample is an object in a state that users meet, and what both tools are to say of it.
type sample struct {
	kind    string
	object  *unstructured.Unstructured
	argo    string
	message string // what Argo CD shows beside it
	flux    string
}

func samples() map[string]sample {
	all := map[string]sample{}
	maps.Copy(all, machineSamples())
	maps.Copy(all, clusterSamples())
	maps.Copy(all, topologySamples())
	return all
}

func machineSamples() map[string]sample {
	kind := v1alpha1.TalosMachineKind
	ready, synced := yes("Ready", "Available", ""), yes("Synced", "ReconcileSuccess", "")
	inSync := yes("ConfigApplied", "InSync", "The machine runs the declared configuration")
	lost := no("Reachable", "Unreachable", "cannot reach")
	lastKnown := func(reason xpv2.ConditionReason) change {
		return condition("ConfigApplied", "Unknown", reason, "Not known while the machine does not answer")
	}
	wasNode := func(u *unstructured.Unstructured) { set(u, "cp-1", "status", "atProvider", "nodeName") }
	return map[string]sample{
		"MachineNotSeen":     {kind, object(kind), progressing, "The provider has not looked at it yet", inProgress},
		"MachineReady":       {kind, object(kind, ready, synced, inSync), healthy, "", current},
		"MachineNotApproved": {kind, object(kind, no("Ready", "AwaitingApproval", "Nothing is sent"), synced), progressing, "AwaitingApproval: Nothing is sent", inProgress},
		"MachineInstalling": {
			kind, object(kind, no("Ready", "Unavailable", "cannot reach"), no("Synced", "ReconcileError", "cannot reach"), lost),
			progressing, "Unavailable: cannot reach", inProgress,
		},
		"MachineDead": {
			kind, object(kind, no("Ready", "Unavailable", "cannot reach"), no("Synced", "ReconcileError", "cannot reach"), lost, lastKnown("LastKnown"), wasNode),
			degraded, "Unavailable: cannot reach", inProgress,
		},
		"MachineRebooting": {
			kind, object(kind, no("Ready", "Unavailable", "cannot reach"), synced, lost, lastKnown("Rebooting"), wasNode),
			progressing, "Rebooting: Not known while the machine does not answer", inProgress,
		},
		"MachineRebootWaits":    {kind, object(kind, ready, synced, no("ConfigApplied", "WaitingForLock", "cp-2 holds it")), progressing, "WaitingForLock: cp-2 holds it", inProgress},
		"MachineConfigRejected": {kind, object(kind, ready, synced, no("ConfigApplied", "ConfigRejected", "unknown keys")), degraded, "ConfigRejected: unknown keys", failed},
		"MachineForeign":        {kind, object(kind, no("Ready", "Unavailable", ""), synced, no("Reachable", "ForeignCluster", "another PKI")), degraded, "ForeignCluster: another PKI", failed},
		"MachineCannotBeRead":   {kind, object(kind, ready, no("Synced", "ReconcileError", "boom"), inSync), degraded, "ReconcileError: boom", inProgress},
		"MachinePaused":         {kind, object(kind, ready, no("Synced", "ReconcilePaused", ""), inSync), suspended, "Paused: nothing is looked at and nothing is changed", inProgress},
		"MachineChanged":        {kind, object(kind, ready, synced, inSync, changed), progressing, "The provider has not looked at the last change yet", inProgress},
		"MachineDeleteAsked":    {kind, object(kind, ready, synced, inSync, deleted), progressing, "Deleting: the provider has not told yet what becomes of it", inProgress},
		"MachineDraining":       {kind, object(kind, ready, synced, inSync, deleted, yes("Removal", "Drain", "Node cp-1 is drained")), progressing, "Drain: Node cp-1 is drained", inProgress},
		"MachineDrainBlocked":   {kind, object(kind, ready, synced, inSync, deleted, no("Removal", "DrainBlocked", "budget web")), progressing, "DrainBlocked: budget web", inProgress},
		"MachineRefused":        {kind, object(kind, ready, synced, inSync, deleted, no("Removal", "QuorumWouldBreak", "1 of 2")), degraded, "QuorumWouldBreak: 1 of 2", failed},
		"MachineNotWiped":       {kind, object(kind, ready, synced, inSync, deleted, no("Removal", "DiskNotWiped", "accept it")), degraded, "DiskNotWiped: accept it", failed},
		"MachineOfTeardown":     {kind, object(kind, no("Ready", "Teardown", ""), synced, no("Removal", "AwaitingWorkers", "worker-1 first")), progressing, "AwaitingWorkers: worker-1 first", inProgress},
	}
}

func clusterSamples() map[string]sample {
	kind := v1alpha1.TalosClusterKind
	ready, synced := yes("Ready", "Available", ""), yes("Synced", "ReconcileSuccess", "")
	return map[string]sample{
		"ClusterReady":         {kind, object(kind, ready, synced, no("Transitioning", "StableControlPlaneCount", ""), yes("EtcdHealthy", "AllMembersHealthy", "")), healthy, "", current},
		"ClusterBootstrapping": {kind, object(kind, no("Ready", "Bootstrapping", "sent to cp-1"), synced), progressing, "Bootstrapping: sent to cp-1", inProgress},
		"ClusterTransitioning": {kind, object(kind, ready, synced, yes("Transitioning", "EvenControlPlaneCount", "4")), progressing, "EvenControlPlaneCount: 4", inProgress},
		"ClusterOneMemberSick": {kind, object(kind, ready, synced, no("EtcdHealthy", "Degraded", "cp-3")), degraded, "Degraded: cp-3", current},
		"ClusterWithoutQuorum": {kind, object(kind, no("Ready", "QuorumLost", "1 of 3"), synced), degraded, "QuorumLost: 1 of 3", failed},
		"ClusterGoingDown":     {kind, object(kind, synced, deleted, no("Removal", "AwaitingMachines", "3 left")), progressing, "AwaitingMachines: 3 left", inProgress},
		"ClusterWithoutPKI":    {kind, object(kind, synced, deleted, no("Removal", "PKIMissing", "restore it")), degraded, "PKIMissing: restore it", failed},
	}
}

func topologySamples() map[string]sample {
	const kind = "TalosTopologyClaim"
	base := []change{
		yes("Synced", "ReconcileSuccess", ""), yes("Ready", "Available", ""), yes("Valid", "Valid", ""), yes("ClusterReady", "Available", ""),
		yes("MachinesReady", "AllReady", ""), yes("MachinesListed", "AllListed", ""), no("Removal", "NothingToRemove", ""), yes("DeletionProtected", "Protected", ""),
	}
	with := func(more ...change) *unstructured.Unstructured {
		return object(kind, append(base[:len(base):len(base)], more...)...)
	}
	return map[string]sample{
		"TopologyNotSeen":    {kind, object(kind), progressing, "Crossplane has not looked at it yet", inProgress},
		"TopologyReady":      {kind, with(), healthy, "", current},
		"TopologyChanged":    {kind, with(changed), progressing, "Crossplane has not looked at the last change yet", inProgress},
		"TopologyComesUp":    {kind, with(no("Ready", "Creating", ""), no("ClusterReady", "Bootstrapping", "sent to cp-1")), progressing, "Bootstrapping: sent to cp-1", inProgress},
		"TopologyMachineOut": {kind, with(no("MachinesReady", "NotReady", "cp-2")), progressing, "NotReady: cp-2", inProgress},
		"TopologyInvalid":    {kind, with(no("Valid", "Invalid", "Nothing is changed: no count")), degraded, "Invalid: Nothing is changed: no count", failed},
		"TopologyKeeps":      {kind, with(no("MachinesListed", "KeptUnlisted", "cp-2 is kept")), degraded, "KeptUnlisted: cp-2 is kept", failed},
		"TopologyRemoves":    {kind, with(yes("Removal", "Removing", "cp-2: Drain")), progressing, "Removing: cp-2: Drain", inProgress},
		"TopologyWaits":      {kind, with(no("Removal", "AwaitingAdditions", "cp-4")), progressing, "AwaitingAdditions: cp-4", inProgress},
		"TopologyRefused":    {kind, with(no("Removal", "Refused", "cp-2: NoLeader")), degraded, "Refused: cp-2: NoLeader", failed},
		"TopologyBelowCount": {kind, with(no("Removal", "BelowCount", "2 of 3")), degraded, "BelowCount: 2 of 3", failed},
		"TopologyNoQuorum":   {kind, with(no("ClusterReady", "QuorumLost", "1 of 3")), degraded, "QuorumLost: 1 of 3", failed},
		"TopologyPaused":     {kind, with(no("Synced", "ReconcilePaused", "")), suspended, "Paused: nothing is looked at and nothing is changed", inProgress},
		"TopologyDeleted":    {kind, with(deleted), progressing, "Deleting: the machines of the cluster tell what becomes of them", inProgress},
	}
}

// A change of a sample that was looked at once, at its first generation.
type change func(*unstructured.Unstructured)

func object(kind string, changes ...change) *unstructured.Unstructured {
	version := v1alpha1.SchemeGroupVersion.String()
	if kind != v1alpha1.TalosMachineKind && kind != v1alpha1.TalosClusterKind {
		version = topology.SchemeGroupVersion.String()
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind}}
	set(u, int64(1), "metadata", "generation")
	for _, c := range changes {
		c(u)
	}
	return u
}

func yes(t xpv2.ConditionType, reason xpv2.ConditionReason, message string) change {
	return condition(t, "True", reason, message)
}

func no(t xpv2.ConditionType, reason xpv2.ConditionReason, message string) change {
	return condition(t, "False", reason, message)
}

// condition replaces the one of its type.
func condition(t xpv2.ConditionType, status string, reason xpv2.ConditionReason, message string) change {
	return func(u *unstructured.Unstructured) {
		c := map[string]any{"type": string(t), "status": status, "reason": string(reason), "observedGeneration": int64(1)}
		if message != "" {
			c["message"] = message
		}
		kept := []any{c}
		before, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		for _, b := range before {
			if b.(map[string]any)["type"] != string(t) {
				kept = append(kept, b)
			}
		}
		set(u, kept, "status", "conditions")
	}
}

func changed(u *unstructured.Unstructured) { set(u, int64(2), "metadata", "generation") }

func deleted(u *unstructured.Unstructured) {
	set(u, "2026-01-01T00:00:00Z", "metadata", "deletionTimestamp")
}

func set(u *unstructured.Unstructured, value any, path ...string) {
	if err := unstructured.SetNestedField(u.Object, value, path...); err != nil {
		panic(err) // A sample that is wrong in itself.
	}
}

// TestEveryWaitGoesOn proves that both tools know what a removal may wait for by itself. What they do not know needs a person.
func TestEveryWaitGoesOn(t *testing.T) {
	argo, flux := loadLua(t), loadExpressions(t)
	goOn := []xpv2.ConditionReason{
		v1alpha1.ReasonClusterTransitioning, v1alpha1.ReasonWaitingForLock, v1alpha1.ReasonDrainBlocked, v1alpha1.ReasonOutcomeUnknown,
		v1alpha1.ReasonWaitingForVolumes, v1alpha1.ReasonHeld, v1alpha1.ReasonWaitingForAbsence, v1alpha1.ReasonMachineBusy,
		v1alpha1.ReasonWaitingForReset, v1alpha1.ReasonAwaitingWorkers, v1alpha1.ReasonAwaitingOtherMachines,
	}
	needPeople := []xpv2.ConditionReason{
		v1alpha1.ReasonMachineUnreachable, v1alpha1.ReasonDiskNotWiped, v1alpha1.ReasonNodeUnknown, v1alpha1.ReasonNotAllowed,
		v1alpha1.ReasonLastControlPlane, v1alpha1.ReasonBelowDeclaredCount, v1alpha1.ReasonOtherMemberUnhealthy, "NeverHeardOf",
	}
	kind := v1alpha1.TalosMachineKind
	check := func(reason xpv2.ConditionReason, wantArgo, wantFlux string) {
		o := object(kind, yes("Synced", "ReconcileSuccess", ""), deleted, no(v1alpha1.TypeRemoval, reason, "why"))
		if got, _ := argo.health(t, o); got != wantArgo {
			t.Errorf("Argo CD says %s of a removal that waits because of %s, want %s", got, reason, wantArgo)
		}
		if got := flux.status(t, o); got != wantFlux {
			t.Errorf("Flux says %s of a removal that waits because of %s, want %s", got, reason, wantFlux)
		}
	}
	for _, r := range goOn {
		check(r, progressing, inProgress)
	}
	for _, r := range needPeople {
		check(r, degraded, failed)
	}
}
