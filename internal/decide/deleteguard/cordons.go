package deleteguard

import (
	"fmt"

	"github.com/maesh/provider-ichor/internal/decide/facts"
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
			return refuse(OtherMachineCordoned,
				fmt.Sprintf("That is finished or undone first, and this goes on by itself then; the conditions of its TalosMachine say what it waits for. If nothing is to become of it, uncordon Node %s", node.Name),
				"Another control plane is cordoned for a removal or a reboot that was begun before: %s", o.Name)
		}
	}
	return nil
}
