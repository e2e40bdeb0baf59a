package deleteguard

import (
	"strings"

	"github.com/maesh/provider-ichor/internal/decide/facts"
)

// CheckIdentity refuses to touch a machine that is not proved to be the one that its object declares. A machine that does
// not answer is not judged here.
func CheckIdentity(f facts.Cluster, t facts.MachineID) *Refusal {
	m, ok := f.Machine(t)
	if !ok {
		return unknownMachine(f, t)
	}
	if len(m.SameMachine) > 0 {
		return refuse(DuplicateMachine,
			"Correct the address or the UUID of the wrong one, or take Delete out of its spec.managementPolicies and delete it, which touches no machine",
			"%s is declared more than once, by UUID or address: also by %s. Neither is touched", m.Name, strings.Join(m.SameMachine, ", "))
	}
	live, answered := m.Live.Get()
	if !answered {
		return nil
	}
	pinned := Pinned(m)
	switch {
	case live.Mode == facts.Configured && pinned == "":
		return refuse(UnknownIdentity,
			"Pin the machine with spec.forProvider.uuid once you know that it is the right one",
			"It is not known which machine %s is: nothing is pinned, and SMBIOS UUID %q answers at its address", m.Name, live.UUID)
	case live.Mode == facts.Configured && live.UUID == "":
		return refuse(UnknownIdentity,
			"See why the firmware of the machine does not tell it",
			"It cannot be told whether the machine at the address of %s is the right one: it does not tell its SMBIOS UUID, and %q is pinned", m.Name, pinned)
	case pinned != "" && !strings.EqualFold(pinned, live.UUID):
		return refuse(IdentityMismatch,
			"Correct spec.forProvider.address if the machine has moved; if it is gone for good, delete the TalosMachine and accept that its disk is not wiped with the annotation ichor.maesh.dev/accept-unwiped-disk: \""+pinned+"\"",
			"Another machine answers at the address of %s: its SMBIOS UUID is %q, not %q. Nothing is sent to it", m.Name, strings.ToLower(live.UUID), pinned)
	}
	return nil
}

// Pinned is the UUID that a machine has to prove: what its removal wrote down, else what is pinned. Empty if neither is.
func Pinned(m facts.Machine) string {
	if m.Record != nil && m.Record.UUID != "" {
		return m.Record.UUID
	}
	return m.UUID
}

func unknownMachine(f facts.Cluster, t facts.MachineID) *Refusal {
	return refuse(UnknownIdentity,
		"Look whether its spec.forProvider.clusterRef names this cluster",
		"Cluster %q has no TalosMachine with UID %q", f.Name, string(t))
}
