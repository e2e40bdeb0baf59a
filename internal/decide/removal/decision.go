// Package removal says which single step of a machine's removal comes next, or why none may. It must never remember
// anything: where a removal stands comes from the facts of the moment, so a pass that ended anywhere is only a slow one.
package removal

import (
	"github.com/maesh/provider-ichor/internal/decide/deleteguard"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/permit"
)

// A Step of a removal.
type Step int

// Steps, in the order in which a control plane takes them.
const (
	// Record writes down what the world cannot tell any more after the next steps: Act.Record.
	Record Step = 1 + iota
	// Cordon the machine's Node.
	Cordon
	// Drain the machine's Node.
	Drain
	// MoveLeadership of etcd to another member.
	MoveLeadership
	// LeaveEtcd has the machine take its own member out of etcd: Act.Member.
	LeaveEtcd
	// RemoveMember has another control plane take the member out of etcd: Act.Member.
	RemoveMember
	// Reset wipes the machine.
	Reset
	// DeleteNode deletes the machine's Node.
	DeleteNode
	// Release ends the removal: lock and finalizer may go.
	Release
)

var steps = [...]string{
	Record: "Record", Cordon: "Cordon", Drain: "Drain", MoveLeadership: "MoveLeadership", LeaveEtcd: "LeaveEtcd",
	RemoveMember: "RemoveMember", Reset: "Reset", DeleteNode: "DeleteNode", Release: "Release",
}

// String is the name of the step. It is stable: permits and conditions carry it.
func (s Step) String() string {
	if s < Record || s > Release {
		return "unknown"
	}
	return steps[s]
}

// A Reason says what a removal waits for. It is stable: people and programs may match it.
type Reason string

// Reasons to wait.
const (
	// WaitingForVolumes means that volumes are still attached to the drained Node.
	WaitingForVolumes Reason = "WaitingForVolumes"
	// Held means that somebody holds the removal before anything irreversible.
	Held Reason = "Held"
	// WaitingForAbsence means that etcd has removed the member, and that a voter still lists it.
	WaitingForAbsence Reason = "WaitingForAbsence"
	// MachineBusy means that the machine is rebooting, upgrading or the like, and would refuse what comes next.
	MachineBusy Reason = "MachineBusy"
	// WaitingForReset means that a reset was sent and that the machine is not back in maintenance mode.
	WaitingForReset Reason = "WaitingForReset"
	// MachineUnreachable means that the machine does not answer.
	MachineUnreachable Reason = "MachineUnreachable"
	// DiskNotWiped means that the machine does not answer and is gone from etcd and Kubernetes, but not wiped.
	DiskNotWiped Reason = "DiskNotWiped"
	// NodeUnknown means that nobody can tell which Node is the machine's: the Kubernetes API of the cluster does not answer,
	// or another machine has the same hostname, or Nodes are left over.
	NodeUnknown Reason = "NodeUnknown"
	// AwaitingWorkers means that a teardown takes the workers first.
	AwaitingWorkers Reason = "AwaitingWorkers"
	// AwaitingOtherMachines means that another machine is in the way of this one in a teardown.
	AwaitingOtherMachines Reason = "AwaitingOtherMachines"
)

// A Decision is one of Act, Wait, Refuse and Done.
//
//sumtype:decl
type Decision interface{ decision() }

// Act says to carry out one step.
type Act struct {
	Step   Step
	Permit permit.Permit
	// Message says what is done, and why where that is not plain.
	Message string
	// Record to write, of a Record.
	Record facts.Record
	// Member to take out, of a LeaveEtcd or RemoveMember.
	Member facts.MemberID
	// Again is true of a Reset that comes after one that ended in a reboot and wiped nothing, which Message says.
	Again bool
	// Irreversible is true once there is only forward, this step included.
	Irreversible bool
}

// Wait says that nothing can be done now, for what is waited, and what a person can do.
type Wait struct {
	Reason       Reason
	Message      string
	Irreversible bool
}

// Refuse says that a guard does not let the removal go on.
type Refuse struct {
	Refusal      *deleteguard.Refusal
	Irreversible bool
}

// Done says that nothing is left to do: the finalizer may go.
type Done struct{}

func (Act) decision()    {}
func (Wait) decision()   {}
func (Refuse) decision() {}
func (Done) decision()   {}
