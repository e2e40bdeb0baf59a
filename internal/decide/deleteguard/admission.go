package deleteguard

import (
	"fmt"

	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/quorum"
)

// CheckDelete refuses a delete that nobody allowed: a prune that was not meant must not reset machines.
func CheckDelete(kind, name string, allowed bool) *Refusal {
	if allowed {
		return nil
	}
	return refuse(NotAllowed,
		fmt.Sprintf("If it is meant, annotate it with ichor.maesh.dev/allow-delete: \"true\" and delete it again; to let the object go and leave everything as it is, take Delete out of spec.managementPolicies of the %s", kind),
		"Nobody allowed the deletion of %s %q", kind, name)
}

// CheckControlPlaneQuorum refuses the removal of one of so many approved control planes if none would be left, or fewer
// than a quorum of those before. It is stronger than any permission: a person cannot make the arithmetic come out
// differently.
func CheckControlPlaneQuorum(current int) *Refusal {
	after := current - 1
	switch {
	case after < 1:
		return refuse(LastControlPlane,
			"To take the whole cluster down, delete its TalosCluster; to replace this machine, approve two more control planes first",
			"It is the last control plane: %d is approved now, and none would be left", current)
	case !quorum.Holds(after, current):
		return refuse(QuorumWouldBreak,
			"Approve another control plane first; to take the whole cluster down, delete its TalosCluster",
			"%d control planes are approved now, and %d would be left: a quorum of %d needs %d", current, after, current, quorum.Majority(current))
	}
	return nil
}

// CheckControlPlaneCount refuses the removal of one of so many approved control planes if fewer than declared would be
// left: a replacement comes up before the old one goes.
func CheckControlPlaneCount(current, declared int) *Refusal {
	if current-1 >= declared {
		return nil
	}
	return refuse(BelowDeclaredCount,
		"Approve a replacement first and remove this one when the replacement has joined, or lower spec.forProvider.controlPlane.count of the TalosCluster",
		"%d control planes are approved now, and %d would be left of %d that are declared", current, current-1, declared)
}

// CheckAdmission is what objects alone can say about the removal of a machine: that it was allowed, and that enough
// control planes would be left. It asks no machine, so it is fast feedback and never the last word.
func CheckAdmission(f facts.Cluster, t facts.MachineID) *Refusal {
	m, ok := f.Machine(t)
	if !ok {
		return unknownMachine(f, t)
	}
	if f.Teardown {
		return nil
	}
	if r := CheckDelete("TalosMachine", m.Name, m.AllowDelete); r != nil {
		return r
	}
	if !m.IsApprovedControlPlane() {
		return nil
	}
	n := f.ApprovedControlPlanes()
	if r := CheckControlPlaneQuorum(n); r != nil {
		return r
	}
	declared, known := f.Declared.Get()
	if !known {
		return unknownCount(f)
	}
	return CheckControlPlaneCount(n, declared)
}

func unknownCount(f facts.Cluster) *Refusal {
	return refuse(UnknownCount,
		fmt.Sprintf("Restore the TalosCluster %q, or take Delete out of spec.managementPolicies to let the object go and leave the machine as it is", f.Name),
		"The declared number of control planes is not known: %s", f.Declared.Why())
}
