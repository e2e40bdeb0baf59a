package v1alpha1

import (
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
)

// Condition types besides Crossplane's Ready and Synced.
const (
	// TypeTransitioning on a TalosCluster is True while the number of approved control planes is even. All disruptive
	// work but the removal that ends it waits meanwhile.
	TypeTransitioning xpv2.ConditionType = "Transitioning"

	// TypeEtcdHealthy on a TalosCluster is True while every member of etcd is a started, healthy voter without alarms.
	TypeEtcdHealthy xpv2.ConditionType = "EtcdHealthy"

	// TypeReachable on a TalosMachine tells whether its Talos API answers, and as the machine that it should be.
	TypeReachable xpv2.ConditionType = "Reachable"

	// TypeConfigApplied on a TalosMachine tells whether it runs the machine configuration that is declared.
	TypeConfigApplied xpv2.ConditionType = "ConfigApplied"

	// TypeRemoval on a TalosMachine or TalosCluster being deleted tells what the removal is doing, or why it waits.
	TypeRemoval xpv2.ConditionType = "Removal"

	// TypeRemovable on a TalosMachine tells what a removal would be told now, before anybody asks for one.
	TypeRemovable xpv2.ConditionType = "Removable"
)

// Reasons of Transitioning.
const (
	// ReasonStableControlPlaneCount means that the number of approved control planes is odd.
	ReasonStableControlPlaneCount xpv2.ConditionReason = "StableControlPlaneCount"
	// ReasonEvenControlPlaneCount means that the number of approved control planes is even: a change is half done.
	ReasonEvenControlPlaneCount xpv2.ConditionReason = "EvenControlPlaneCount"
)

// Reasons of EtcdHealthy.
const (
	// ReasonEtcdAllHealthy means that every member is a started, healthy voter without alarms.
	ReasonEtcdAllHealthy xpv2.ConditionReason = "AllMembersHealthy"
	// ReasonEtcdDegraded means that etcd has quorum and that at least one member is a learner, unhealthy or alarmed.
	ReasonEtcdDegraded xpv2.ConditionReason = "Degraded"
	// ReasonQuorumLost means that too few healthy voters answer to form a quorum. It is a reason of Ready, too.
	ReasonQuorumLost xpv2.ConditionReason = "QuorumLost"
	// ReasonEtcdNotBootstrapped means that etcd was not bootstrapped yet.
	ReasonEtcdNotBootstrapped xpv2.ConditionReason = "NotBootstrapped"
	// ReasonEtcdUnknown means that no control plane told the state of etcd.
	ReasonEtcdUnknown xpv2.ConditionReason = "EtcdUnknown"
)

// Reasons of Ready of a TalosCluster and of a TalosMachine that are more precise than Crossplane's own.
const (
	// ReasonAwaitingControlPlanes means that fewer control planes are approved and blank-or-configured than declared,
	// so that the cluster cannot be bootstrapped yet.
	ReasonAwaitingControlPlanes xpv2.ConditionReason = "AwaitingControlPlanes"
	// ReasonBootstrapping means that bootstrap was sent and that etcd is not up yet.
	ReasonBootstrapping xpv2.ConditionReason = "Bootstrapping"
	// ReasonAwaitingApproval means that nothing is sent to the machine before spec.forProvider.approved is true.
	ReasonAwaitingApproval xpv2.ConditionReason = "AwaitingApproval"
	// ReasonAwaitingCluster means that the machine's TalosCluster or its PKI does not exist yet.
	ReasonAwaitingCluster xpv2.ConditionReason = "AwaitingCluster"
	// ReasonBooting means that the machine installs, boots or joins.
	ReasonBooting xpv2.ConditionReason = "Booting"
	// ReasonAwaitingMembers means that etcd has fewer voters than control planes are declared: more are still joining.
	ReasonAwaitingMembers xpv2.ConditionReason = "AwaitingMembers"
	// ReasonAPIUnavailable means that the Kubernetes API of the cluster does not answer.
	ReasonAPIUnavailable xpv2.ConditionReason = "APIUnavailable"
)

// Reasons of Reachable.
const (
	// ReasonAnswering means that the machine answers as a member of its cluster.
	ReasonAnswering xpv2.ConditionReason = "Answering"
	// ReasonMaintenance means that the machine is blank and answers in maintenance mode.
	ReasonMaintenance xpv2.ConditionReason = "Maintenance"
	// ReasonUnreachable means that nothing answers at the address.
	ReasonUnreachable xpv2.ConditionReason = "Unreachable"
	// ReasonForeignCluster means that a machine of another cluster (or of another PKI) answers at the address.
	ReasonForeignCluster xpv2.ConditionReason = "ForeignCluster"
	// ReasonIdentityMismatch means that another machine, by its SMBIOS UUID, answers at the address.
	ReasonIdentityMismatch xpv2.ConditionReason = "IdentityMismatch"
	// ReasonDuplicateUUID means that two TalosMachines are the same machine by SMBIOS UUID. Both are blocked.
	ReasonDuplicateUUID xpv2.ConditionReason = "DuplicateUUID"
	// ReasonFingerprintMismatch means that the maintenance certificate is not the pinned one.
	ReasonFingerprintMismatch xpv2.ConditionReason = "FingerprintMismatch"
	// ReasonClockSkew means that the machine refuses our client certificate because of its validity period.
	ReasonClockSkew xpv2.ConditionReason = "ClockSkew"
)

// Reasons of ConfigApplied.
const (
	// ReasonInSync means that the machine runs the declared configuration.
	ReasonInSync xpv2.ConditionReason = "InSync"
	// ReasonDrifted means that the running configuration differs and that it can be changed without a reboot.
	ReasonDrifted xpv2.ConditionReason = "Drifted"
	// ReasonStaged means that the configuration on disk differs from the running one: it waits for a reboot.
	ReasonStaged xpv2.ConditionReason = "Staged"
	// ReasonNeedsReboot means that the declared configuration can only be applied with a reboot, which goes through the
	// gate like any other disruption.
	ReasonNeedsReboot xpv2.ConditionReason = "NeedsReboot"
	// ReasonConfigUnknown means that the running configuration could not be read, or not be compared.
	ReasonConfigUnknown xpv2.ConditionReason = "ConfigUnknown"
	// ReasonLastKnown means that the machine does not answer, or not as the one that it should be. The message says what was
	// known of its configuration before.
	ReasonLastKnown xpv2.ConditionReason = "LastKnown"
	// ReasonConfigRejected means that the declared configuration is not valid, or that Talos refused it.
	ReasonConfigRejected xpv2.ConditionReason = "ConfigRejected"
	// ReasonNotApplied means that no configuration was sent to the machine yet.
	ReasonNotApplied xpv2.ConditionReason = "NotApplied"
	// ReasonRebooting means that the machine was drained and is being rebooted for its new configuration.
	ReasonRebooting xpv2.ConditionReason = "Rebooting"
)

// Reasons of Removable=True and of a Removal that goes on.
const (
	// ReasonRemovable means that a removal would be let through by every guard now.
	ReasonRemovable xpv2.ConditionReason = "Removable"
	// ReasonNothingToUndo means that the machine was never approved, so that a removal has nothing to undo.
	ReasonNothingToUndo xpv2.ConditionReason = "NothingToUndo"
	// ReasonTeardown means that the whole cluster is being taken down, where quorum guards stand aside.
	ReasonTeardown xpv2.ConditionReason = "Teardown"
)

// Reasons of Removal of a TalosCluster that waits.
const (
	// ReasonAwaitingMachines means that machines of the cluster are still being taken down.
	ReasonAwaitingMachines xpv2.ConditionReason = "AwaitingMachines"
	// ReasonPKIMissing means that machines of the cluster are still there and that its PKI, without which nothing can
	// talk to them, is not.
	ReasonPKIMissing xpv2.ConditionReason = "PKIMissing"
)
