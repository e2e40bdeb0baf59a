// Package facts says what is known of a cluster at one moment, and what is not known. It holds values only: it must never
// import anything that can read a clock, a network or a log, so that the same facts always give the same verdict.
package facts

import "time"

// A MachineID is the UID of a TalosMachine object. It tells one declaration from another of the same name.
type MachineID string

// A MemberID is the ID that etcd gives a member. Zero is no member.
type MemberID uint64

// A Role is what a machine does in its cluster.
type Role int

// Roles.
const (
	ControlPlane Role = 1 + iota
	Worker
)

// A Cluster is what one survey found.
type Cluster struct {
	// Name of the TalosCluster, for messages.
	Name string

	// TakenAt is when the survey was begun.
	TakenAt time.Time

	// Declared is the declared number of control planes. Unknown while the TalosCluster cannot be read.
	Declared Known[int]

	// Teardown is true while the TalosCluster is being deleted with permission: the whole cluster goes.
	Teardown bool

	// Bootstrapped is the SMBIOS UUID that Bootstrap was recorded for, or empty if there is no record.
	Bootstrapped string

	// BootstrapBoot is the boot ID of the boot in which that machine answered Bootstrap, or empty if it is not known to have.
	BootstrapBoot string

	// Machines are all TalosMachines of the cluster, in the order of their names.
	Machines []Machine

	// Etcd is what the members of etcd say.
	Etcd Etcd
}

// A Machine is what is known of one TalosMachine and of the machine behind it.
type Machine struct {
	ID   MachineID
	Name string
	Role Role

	// Address of its Talos API as declared.
	Address string

	// Approved, Deleting and AllowDelete are what the object says: that it may be given its configuration, that it is
	// being deleted, and that a person allowed its deletion.
	Approved, Deleting, AllowDelete bool

	// Removed is true once the removal of this machine was completed: its object may still exist (in a teardown the
	// garbage collector takes it), but it is no machine of the cluster any more.
	Removed bool

	// UUID is the SMBIOS UUID that is pinned for the machine: declared, or seen when it got its first configuration.
	// Empty if the machine was never given a configuration and none was declared.
	UUID string

	// SameMachine names other TalosMachines, anywhere, with the same UUID or the same address. Both sides are blocked.
	SameMachine []string

	// SameHostname names other approved machines of the cluster that are declared with the same hostname, in order.
	SameHostname []string

	// Nodename is the name of the machine's Node: as the machine itself says, else as its Node is or was last called. Empty
	// for one that is blank or never had a Node. It proves nothing of which machine a Node is.
	Nodename string

	// SameNodename names other machines of the cluster that run under the same Nodename: the kubelets of all of them write
	// to one Node in turns, so that Node is unknown. All sides are blocked where a Node is to be touched.
	SameNodename []string

	// LeftoverNodes are Nodes that Kubernetes has for the machine beside the right one, in order: several of its UUID, or
	// one of its name and another UUID. Node is unknown as long as there are any.
	LeftoverNodes []string

	// Holds are the holds on a removal, in the order of who holds.
	Holds []Hold

	// RemoveUnreachable is true if the member of this machine may be removed through a peer while it does not answer.
	RemoveUnreachable bool

	// AcceptedUnwiped is the SMBIOS UUID for which a person accepted an unwiped disk, or empty.
	AcceptedUnwiped string

	// Record is what a removal wrote down before it went on, or nil. See Record.
	Record *Record

	// LastMember is the ID of the member that this machine was last seen to be, or zero.
	LastMember MemberID

	// LastVersion of Talos that this machine was last seen to run, or empty. It is shown, and never decided on.
	LastVersion string

	// Live is what the machine itself answered; unknown if it did not answer, or not as a machine of this cluster.
	Live Known[Live]

	// Node is what the Kubernetes API of the cluster tells of the machine's Node.
	Node Known[Node]
}

// A Hold keeps a removal from anything irreversible until its owner takes it off.
type Hold struct{ Who, Why string }

// A Record is what the world cannot tell any more once a removal has begun, written down before it goes on.
type Record struct {
	UUID   string
	BootID string
	// Member is the ID of the machine's etcd member before the removal; zero for a machine that was none.
	Member MemberID
	// Reset is true once a reset was about to be sent. Written before the call.
	Reset bool
}

// A Mode is how a machine's Talos API is served.
type Mode int

// Modes.
const (
	// Maintenance: the machine is blank and has no configuration.
	Maintenance Mode = 1 + iota
	// Configured: the machine has a configuration, with the PKI of this cluster.
	Configured
)

// Live is what a machine answered about itself.
type Live struct {
	Mode   Mode
	UUID   string
	BootID Known[string]
	// Stage as Talos names it, such as running or resetting.
	Stage string
	// Ready is Talos's own readiness; only meaningful in stage running.
	Ready bool
	// TalosVersion that runs, with the leading v. Unknown in the maintenance mode of 1.12.
	TalosVersion Known[string]
	// Nodename is the name under which the machine's kubelet runs, the hostname as a rule. Unknown for blank machines and
	// where it was not asked for.
	Nodename Known[string]
	// EtcdService is the state of the machine's etcd service, such as Preparing, Running, Finished or Failed.
	// Unknown for workers and while it cannot be read.
	EtcdService Known[string]
	// EtcdSays is what that service said last, in Talos's words, or empty. It is shown, and never decided on.
	EtcdSays string
	// Member is the ID of the machine's own etcd member as its etcd says; unknown if its etcd does not answer.
	Member Known[MemberID]
}

// A Node is what the Kubernetes API of the cluster tells of a machine's Node.
type Node struct {
	// Exists is false if no Node has the machine's UUID or recorded name.
	Exists bool
	Name   string
	Ready  bool
	// KubeletVersion that runs, with the leading v.
	KubeletVersion string
	// Addresses of the Node as the kubelet reports them, each once, in order. For status; not deciding.
	Addresses []string
	// Cordoned is true if the Node is unschedulable; Ours if we cordoned it for this very machine object.
	Cordoned, Ours bool
	// Evictable are the pods that a drain has still to evict, as namespace/name, in order.
	Evictable []string
	// Attached are the volumes that are still attached to the Node, in order.
	Attached []string
}

// Etcd is what the members of etcd say.
type Etcd struct {
	// Views are the answers of every machine whose etcd was asked, in the order of machine names.
	Views []View
	// Alarms that are raised; unknown if no voter could be asked.
	Alarms Known[[]Alarm]
}

// A View is what the etcd of one machine answered when it alone was asked.
type View struct {
	Machine MachineID
	// Self is the ID of the member that answered.
	Self MemberID
	// Learner is true if the member that answered has no vote.
	Learner bool
	// Members is the member list as this member has it; unknown if it did not give it.
	Members Known[[]Member]
	// Leader is the leader that this member follows; zero if it has none.
	Leader MemberID
	// Term is the raft term that this member is in.
	Term uint64
	// Healthy tells whether the member serves: it has a leader and reports no errors.
	Healthy Known[bool]
}

// A Member is one entry of etcd's own member list.
type Member struct {
	ID MemberID
	// Name is empty while the member was added but never started.
	Name    string
	Learner bool
	// PeerHosts are the hosts of its peer URLs.
	PeerHosts []string
}

// An Alarm is raised by etcd for one member.
type Alarm struct {
	Member MemberID
	// Name is NOSPACE or CORRUPT.
	Name string
}

// Machine returns the machine with the given ID.
func (c Cluster) Machine(id MachineID) (Machine, bool) {
	for _, m := range c.Machines {
		if m.ID == id {
			return m, true
		}
	}
	return Machine{}, false
}

// IsApprovedControlPlane tells whether the machine counts as a control plane. One that is being deleted counts until it is
// gone; one whose removal was completed does not. It is the only place that says so: whoever counted otherwise would let
// through, or park, what the gate does not.
func (m Machine) IsApprovedControlPlane() bool {
	return m.Role == ControlPlane && m.Approved && !m.Removed
}

// ApprovedControlPlanes returns how many approved control planes the cluster has.
func (c Cluster) ApprovedControlPlanes() int {
	n := 0
	for _, m := range c.Machines {
		if m.IsApprovedControlPlane() {
			n++
		}
	}
	return n
}
