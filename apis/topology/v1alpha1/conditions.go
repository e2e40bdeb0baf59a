package v1alpha1

// Condition types of a topology, besides Crossplane's Ready and Synced.
const (
	// TypeValid tells whether the topology is one that can be composed. While it is not, nothing is changed.
	TypeValid = "Valid"
	// TypeClusterReady is the condition Ready of the composed TalosCluster.
	TypeClusterReady = "ClusterReady"
	// TypeMachinesReady tells whether every composed TalosMachine is ready, and names those that are not.
	TypeMachinesReady = "MachinesReady"
	// TypeMachinesListed tells whether every composed TalosMachine is listed, and names those that are kept although they
	// are not.
	TypeMachinesListed = "MachinesListed"
	// TypeRemoval tells what becomes of the machines in spec.removals: which is let through, or why none is.
	TypeRemoval = "Removal"
	// TypeDeletionProtected tells whether a deletion of the topology is refused, and how to allow it.
	TypeDeletionProtected = "DeletionProtected"
)

// Reasons of Valid of a topology.
const (
	// ReasonValid means that the topology can be composed.
	ReasonValid = "Valid"
	// ReasonInvalid means that a value is missing or wrong; the message says which. Nothing is changed meanwhile.
	ReasonInvalid = "Invalid"
)

// Reasons of ClusterReady and MachinesReady of a topology, besides those of the condition Ready of a TalosCluster.
const (
	// ReasonAllReady means that every machine is ready.
	ReasonAllReady = "AllReady"
	// ReasonNotReady means that some machine is not ready.
	ReasonNotReady = "NotReady"
	// ReasonNotObserved means that an object was not seen yet, or does not tell.
	ReasonNotObserved = "NotObserved"
)

// Reasons of MachinesListed of a topology.
const (
	// ReasonAllListed means that every machine is listed.
	ReasonAllListed = "AllListed"
	// ReasonKept means that a machine is kept although it is not listed: nobody asked for its removal.
	ReasonKept = "KeptUnlisted"
)

// Reasons of Removal of a topology. The condition is True while a removal goes on.
const (
	// ReasonNothingToRemove means that no machine is to be removed.
	ReasonNothingToRemove = "NothingToRemove"
	// ReasonAllowing means that a removal is let through: its permission is written to the TalosMachine first.
	ReasonAllowing = "Allowing"
	// ReasonRemoving means that a machine is being removed.
	ReasonRemoving = "Removing"
	// ReasonAwaitingRemoval means that another machine is being removed: one goes at a time.
	ReasonAwaitingRemoval = "AwaitingRemoval"
	// ReasonAwaitingAdditions means that a listed machine has not joined yet: additions come before removals.
	ReasonAwaitingAdditions = "AwaitingAdditions"
	// ReasonAwaitingCluster means that the cluster is not settled.
	ReasonAwaitingCluster = "AwaitingCluster"
	// ReasonAwaitingVerdict means that the machine does not tell yet whether it can be removed.
	ReasonAwaitingVerdict = "AwaitingVerdict"
	// ReasonBelowCount means that fewer control planes than spec.controlPlanes.count would be left.
	ReasonBelowCount = "BelowCount"
	// ReasonRefused means that a guard of the provider refuses the removal; the message is the guard's own.
	ReasonRefused = "Refused"
)

// Reasons of DeletionProtected of a topology.
const (
	// ReasonProtected means that a deletion is refused.
	ReasonProtected = "Protected"
	// ReasonProtecting means that the protection is not in place yet.
	ReasonProtecting = "Protecting"
	// ReasonAllowed means that a person allowed the deletion of the topology and of its cluster.
	ReasonAllowed = "Allowed"
)
