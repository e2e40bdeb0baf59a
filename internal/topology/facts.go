package topology

import (
	"slices"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"

	topology "github.com/maesh/provider-ichor/apis/topology/v1alpha1"
	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// Facts are everything that is decided on: what is declared, and what there is.
type Facts struct {
	// Owner is the topology itself.
	Owner Owner
	// Spec is what is declared, checked.
	Spec topology.TalosTopologySpec
	// Listed are the machines that are declared, in the order of the document.
	Listed []Listed
	// Cluster is what is seen of the TalosCluster.
	Cluster Cluster
	// Machines are the TalosMachines that there are, in the order of their names.
	Machines []Machine
	// Complete is true if machines that were dropped and are still being removed are among Machines. It is false until
	// Crossplane has looked for them.
	Complete bool
	// Secret is the data of the connection Secret that was composed before; nil if there is none.
	Secret map[string][]byte
	// Guards are the protections against deletion that there are, by the names of their composed resources.
	Guards map[string]Condition
}

// An Owner is the topology as an object.
type Owner struct {
	APIVersion, Kind, Name, UID string
	// Claim is the claim that the topology belongs to; empty for a namespaced one.
	Claim string
	// ClaimAPIVersion and ClaimKind of that claim.
	ClaimAPIVersion, ClaimKind string
	// Namespace that everything is composed in.
	Namespace string
	// AllowDelete is true if a person allowed the deletion of the whole cluster.
	AllowDelete bool
}

// Base is the name of the cluster, and what the names of everything else begin with.
func (o Owner) Base() string {
	if o.Claim != "" {
		return o.Claim
	}
	return o.Name
}

// Listed is a machine as it is declared.
type Listed struct {
	Name string
	Role v1alpha1.MachineRole
	// Pool of a worker; empty for a control plane.
	Pool string
	// Parameters of its TalosMachine, with everything that it inherits.
	Parameters v1alpha1.TalosMachineParameters
}

// A Condition is what an object says of itself. The zero Condition says nothing.
type Condition struct {
	Status  corev1.ConditionStatus
	Reason  xpv2.ConditionReason
	Message string
	// Stale is true if the condition tells about an older version of the object than there is.
	Stale bool
}

// True tells whether the condition is known to be true now.
func (c Condition) True() bool { return c.Status == corev1.ConditionTrue && !c.Stale }

// False tells whether the condition is known to be false now.
func (c Condition) False() bool { return c.Status == corev1.ConditionFalse && !c.Stale }

// Cluster is what is seen of the TalosCluster.
type Cluster struct {
	// Exists and Deleting tell whether there is one, and whether it is being deleted.
	Exists, Deleting bool
	// Bootstrapped is true once etcd was bootstrapped, or may have been.
	Bootstrapped bool
	// Ready, Synced and Transitioning are its conditions.
	Ready, Synced, Transitioning Condition
	// Approved is how many approved control planes it has counted.
	Approved int
	// Disruption is who holds its lock, and for what; empty if nobody does.
	Disruption string
	// Connection is what it published: kubeconfig, talosconfig, endpoint and CA. Empty if it did not.
	Connection map[string][]byte
}

// A Machine is a TalosMachine that there is.
type Machine struct {
	// Name within the topology.
	Name     string
	Role     v1alpha1.MachineRole
	Pool     string
	Approved bool
	// Referenced is true while the topology refers to it: Crossplane deletes what is referred to and not desired.
	Referenced bool
	// Deleting and Allowed tell whether it is being deleted, and whether it carries the permission.
	Deleting, Allowed bool
	// Joined is true if it works in its cluster, or did and does not answer now: it is no addition that is awaited.
	Joined bool
	// Ready, Removable and Removal are its conditions.
	Ready, Removable, Removal Condition
	// ForProvider and ProviderConfigRef are parts of its spec as they are, so that a machine can be kept as it is whatever
	// version of its kind it was made with.
	ForProvider, ProviderConfigRef map[string]any
}

// machine returns the TalosMachine of that name.
func (f Facts) machine(name string) (Machine, bool) {
	i := slices.IndexFunc(f.Machines, func(m Machine) bool { return m.Name == name })
	if i < 0 {
		return Machine{}, false
	}
	return f.Machines[i], true
}

// listed tells whether a machine of that name is declared.
func (f Facts) listed(name string) bool {
	return slices.ContainsFunc(f.Listed, func(l Listed) bool { return l.Name == name })
}

// asked tells whether a person asked for the removal of the machine of that name.
func (f Facts) asked(name string) bool { return slices.Contains(f.Spec.Removals, name) }

// going tells whether a machine is on its way out: it is being deleted, or it was dropped and the deletion is not seen yet.
func (f Facts) going(m Machine) bool {
	return m.Deleting || (!m.Referenced && m.Allowed && f.asked(m.Name))
}

// approvedControlPlanes counts the approved control planes that are there to stay.
func (f Facts) approvedControlPlanes() int {
	n := 0
	for _, m := range f.Machines {
		if m.Role == v1alpha1.RoleControlPlane && m.Approved && !f.going(m) {
			n++
		}
	}
	return n
}
