package deleteguard

import (
	"fmt"

	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/membership"
)

// CheckCordons keeps a control plane in service while another one is out of it by our hand: a disruption that lost the
// lock after it had cordoned, as when nobody renewed it for minutes, is finished or undone before another one begins.
// Where Nodes are not known, nothing is cordoned or rebooted anyway.
func CheckCordons(f facts.Cluster, t facts.MachineID) *Refusal {
	m, ok := f.Machine(t)
	if !ok {
		return unknownMachine(f, t)
	}
	if m.Role != facts.ControlPlane {
		return nil
	}
	for _, o := range f.Machines {
		if node, _ := o.Node.Get(); node.Ours && node.Cordoned && o.ID != t && o.Role == facts.ControlPlane && !o.Removed {
			return refuse(OtherMachineCordoned, afterThat(f, m, o, node.Name),
				"Another control plane is cordoned for a removal or a reboot that was begun before: %s", o.Name)
		}
	}
	return nil
}

// afterThat says what a person can do about the machine that is out of service. One that has left etcd, or may have, is
// uncordoned only where the two wait for each other, as after a reset that failed let this one join again: its pods would
// come back to a machine that is about to be wiped.
func afterThat(f facts.Cluster, m, o facts.Machine, node string) string {
	if mayHaveLeft(f, o) {
		return fmt.Sprintf("Its removal is past the point of no return, or may be, so it is finished first, and this goes on by itself then. "+
			"Leave its Node cordoned. The one exception: if the conditions of %s say that it waits for the lock, and that is held for %s, uncordon Node %s", o.Name, m.Name, node)
	}
	return fmt.Sprintf("That is finished or undone first, and this goes on by itself then; the conditions of its TalosMachine say what it waits for. If nothing is to become of it, uncordon Node %s", node)
}

// mayHaveLeft tells whether the removal of a machine is past the point of no return, or cannot be told not to be. One that adds
// itself to etcd again without getting to start is a learner, for which other guards wait before this is asked.
func mayHaveLeft(f facts.Cluster, m facts.Machine) bool {
	if m.Record == nil {
		return false
	}
	return m.Record.Reset || (m.Record.Member != 0 && membership.Of(f, m).State != membership.Listed)
}
