package v1alpha1

import (
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
)

// Reasons of Removal=True: the step that a removal has taken.
const (
	// ReasonStepRecord means that it was written down which machine and which member of etcd this is.
	ReasonStepRecord xpv2.ConditionReason = "Record"
	// ReasonStepCordon means that the machine's Node was cordoned.
	ReasonStepCordon xpv2.ConditionReason = "Cordon"
	// ReasonStepDrain means that the machine's Node is being drained.
	ReasonStepDrain xpv2.ConditionReason = "Drain"
	// ReasonStepMoveLeadership means that the leadership of etcd was moved to another member.
	ReasonStepMoveLeadership xpv2.ConditionReason = "MoveLeadership"
	// ReasonStepLeaveEtcd means that the machine is leaving etcd: the point of no return.
	ReasonStepLeaveEtcd xpv2.ConditionReason = "LeaveEtcd"
	// ReasonStepRemoveMember means that another control plane took the machine's member out of etcd.
	ReasonStepRemoveMember xpv2.ConditionReason = "RemoveMember"
	// ReasonStepReset means that the machine is being wiped.
	ReasonStepReset xpv2.ConditionReason = "Reset"
	// ReasonStepDeleteNode means that the machine's Node was deleted.
	ReasonStepDeleteNode xpv2.ConditionReason = "DeleteNode"
	// ReasonStepRelease means that nothing is left to do but to give the lock back.
	ReasonStepRelease xpv2.ConditionReason = "Release"
	// ReasonRemoved means that the machine was removed from its cluster.
	ReasonRemoved xpv2.ConditionReason = "Removed"
)

// Reasons of Removal=False: what a removal waits for. The first two are reasons of ConfigApplied as well, where a change
// that needs a reboot waits for the same.
const (
	// ReasonClusterTransitioning means that the number of approved control planes is even. Nothing is held meanwhile.
	ReasonClusterTransitioning xpv2.ConditionReason = "ClusterTransitioning"
	// ReasonWaitingForLock means that another disruption of the cluster holds its lock; the message says which.
	ReasonWaitingForLock xpv2.ConditionReason = "WaitingForLock"
	// ReasonNamespaceTerminating means that the namespace is being deleted, so that the lock of the cluster cannot be
	// created there: no machine can be disturbed any more.
	ReasonNamespaceTerminating xpv2.ConditionReason = "NamespaceTerminating"
	// ReasonDrainBlocked means that a pod cannot be evicted now; the message says which, and what protects it.
	ReasonDrainBlocked xpv2.ConditionReason = "DrainBlocked"
	// ReasonOutcomeUnknown means that the answer of a call was lost. The world is looked at before anything else.
	ReasonOutcomeUnknown xpv2.ConditionReason = "OutcomeUnknown"
	// ReasonWaitingForVolumes means that volumes are still attached to the drained Node.
	ReasonWaitingForVolumes xpv2.ConditionReason = "WaitingForVolumes"
	// ReasonHeld means that somebody holds the removal with an annotation; the message says who and why.
	ReasonHeld xpv2.ConditionReason = "Held"
	// ReasonWaitingForAbsence means that etcd has removed the member and that a voter still lists it.
	ReasonWaitingForAbsence xpv2.ConditionReason = "WaitingForAbsence"
	// ReasonMachineBusy means that the machine is rebooting, upgrading or the like, and would refuse what comes next.
	ReasonMachineBusy xpv2.ConditionReason = "MachineBusy"
	// ReasonWaitingForReset means that a reset was sent, or cannot be yet, and that the machine is not blank yet.
	ReasonWaitingForReset xpv2.ConditionReason = "WaitingForReset"
	// ReasonMachineUnreachable means that the machine does not answer.
	ReasonMachineUnreachable xpv2.ConditionReason = "MachineUnreachable"
	// ReasonDiskNotWiped means that the machine is gone from etcd and Kubernetes, but could not be wiped.
	ReasonDiskNotWiped xpv2.ConditionReason = "DiskNotWiped"
	// ReasonNodeUnknown means that nobody can tell which Node is the machine's: the Kubernetes API of the cluster does not
	// answer, or another machine has the same hostname, or Nodes are left over.
	ReasonNodeUnknown xpv2.ConditionReason = "NodeUnknown"
	// ReasonAwaitingWorkers means that a teardown takes the workers first.
	ReasonAwaitingWorkers xpv2.ConditionReason = "AwaitingWorkers"
	// ReasonAwaitingOtherMachines means that another machine is in the way of this one in a teardown.
	ReasonAwaitingOtherMachines xpv2.ConditionReason = "AwaitingOtherMachines"
)

// Reasons of Removal=False and of Removable=False: why a guard refuses. The message holds the numbers and the way out.
// ReasonIdentityMismatch, of Reachable, is one of them, too.
const (
	// ReasonNotAllowed means that nobody allowed the deletion.
	ReasonNotAllowed xpv2.ConditionReason = "NotAllowed"
	// ReasonLastControlPlane means that no control plane would be left.
	ReasonLastControlPlane xpv2.ConditionReason = "LastControlPlane"
	// ReasonQuorumWouldBreak means that too few voters would be left, or would be up, for etcd to serve.
	ReasonQuorumWouldBreak xpv2.ConditionReason = "QuorumWouldBreak"
	// ReasonBelowDeclaredCount means that fewer control planes than declared would be left.
	ReasonBelowDeclaredCount xpv2.ConditionReason = "BelowDeclaredCount"
	// ReasonUnknownCount means that the declared number of control planes is not known.
	ReasonUnknownCount xpv2.ConditionReason = "UnknownCount"
	// ReasonLearnerPresent means that a member of etcd has no vote yet: somebody is joining.
	ReasonLearnerPresent xpv2.ConditionReason = "LearnerPresent"
	// ReasonMemberUnmapped means that etcd has a member that no known machine runs.
	ReasonMemberUnmapped xpv2.ConditionReason = "MemberUnmapped"
	// ReasonMembersDisagree means that the voters of etcd do not tell the same members, leader and term.
	ReasonMembersDisagree xpv2.ConditionReason = "MembersDisagree"
	// ReasonOtherMemberUnhealthy means that another voter than the one in question is not known to serve.
	ReasonOtherMemberUnhealthy xpv2.ConditionReason = "OtherMemberUnhealthy"
	// ReasonOtherMachineCordoned means that another control plane is cordoned for a removal or a reboot that was begun before.
	ReasonOtherMachineCordoned xpv2.ConditionReason = "OtherMachineCordoned"
	// ReasonEtcdAlarm means that etcd has raised an alarm.
	ReasonEtcdAlarm xpv2.ConditionReason = "EtcdAlarm"
	// ReasonNoLeader means that etcd has no leader, so that it does not serve.
	ReasonNoLeader xpv2.ConditionReason = "NoLeader"
	// ReasonUnknownMembers means that the members of etcd are not known.
	ReasonUnknownMembers xpv2.ConditionReason = "UnknownMembers"
	// ReasonUnknownAlarms means that the alarms of etcd are not known.
	ReasonUnknownAlarms xpv2.ConditionReason = "UnknownAlarms"
	// ReasonUnknownIdentity means that it is not known which machine it is.
	ReasonUnknownIdentity xpv2.ConditionReason = "UnknownIdentity"
	// ReasonDuplicateMachine means that two TalosMachines are the same machine.
	ReasonDuplicateMachine xpv2.ConditionReason = "DuplicateMachine"
)
