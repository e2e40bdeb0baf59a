// Package deleteguard says whether a machine may be disturbed, and if not, why and what a person can do about it. It must
// never let through what it does not know: each guard stands alone and refuses on facts that are unknown, and the order of
// a chain decides only which reason is shown first.
package deleteguard

import "fmt"

// A Reason tells one refusal from another. It is stable: people and programs may match it.
type Reason string

// Reasons that objects alone can tell.
const (
	// NotAllowed means that nobody allowed the delete.
	NotAllowed Reason = "NotAllowed"
	// LastControlPlane means that no control plane would be left.
	LastControlPlane Reason = "LastControlPlane"
	// QuorumWouldBreak means that too few voters would be left, or would be up, for etcd to serve.
	QuorumWouldBreak Reason = "QuorumWouldBreak"
	// BelowDeclaredCount means that fewer control planes than declared would be left.
	BelowDeclaredCount Reason = "BelowDeclaredCount"
	// UnknownCount means that the declared number of control planes is not known.
	UnknownCount Reason = "UnknownCount"
)

// Reasons that etcd's own answer tells.
const (
	// LearnerPresent means that a member of etcd has no vote yet: somebody is joining.
	LearnerPresent Reason = "LearnerPresent"
	// MemberUnmapped means that etcd has a member that no known machine runs.
	MemberUnmapped Reason = "MemberUnmapped"
	// MembersDisagree means that the voters of etcd do not tell the same members, leader and term.
	MembersDisagree Reason = "MembersDisagree"
	// OtherMemberUnhealthy means that another voter than the one in question is not known to serve.
	OtherMemberUnhealthy Reason = "OtherMemberUnhealthy"
	// OtherMachineCordoned means that another control plane is out of service by our hand.
	OtherMachineCordoned Reason = "OtherMachineCordoned"
	// EtcdAlarm means that etcd has raised an alarm.
	EtcdAlarm Reason = "EtcdAlarm"
	// NoLeader means that etcd has no leader, so that it does not serve.
	NoLeader Reason = "NoLeader"
	// UnknownMembers means that the members of etcd are not known.
	UnknownMembers Reason = "UnknownMembers"
	// UnknownAlarms means that the alarms of etcd are not known.
	UnknownAlarms Reason = "UnknownAlarms"
)

// Reasons that the identity of a machine tells.
const (
	// UnknownIdentity means that it is not known which machine it is.
	UnknownIdentity Reason = "UnknownIdentity"
	// DuplicateMachine means that two TalosMachines are the same machine.
	DuplicateMachine Reason = "DuplicateMachine"
	// IdentityMismatch means that another machine answers at the address.
	IdentityMismatch Reason = "IdentityMismatch"
)

// A Refusal is a decision not to act. It is an error so that it cannot be dropped silently.
type Refusal struct {
	Reason Reason
	// Message says what was found, with the numbers before and after; without a full stop.
	Message string
	// WayOut says what a person can do about it; without a full stop.
	WayOut string
}

// Error is both sentences.
func (r *Refusal) Error() string { return r.Message + ". " + r.WayOut + "." }

func refuse(r Reason, wayOut, format string, args ...any) *Refusal {
	return &Refusal{Reason: r, Message: fmt.Sprintf(format, args...), WayOut: wayOut}
}
