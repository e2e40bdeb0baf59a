package deleteguard

import (
	"fmt"
	"strings"

	"github.com/maesh/provider-ichor/internal/decide/facts"
)

// NodeUnknown says why the Node of a machine is not known, and what a person can do about that. Kubernetes may not answer;
// or it does, and has a Node that nobody may touch for this machine alone.
func NodeUnknown(m facts.Machine) string {
	wayOut := "Bring the Kubernetes API of the cluster back; this goes on by itself then"
	switch {
	case len(m.SameNodename) > 0:
		wayOut = fmt.Sprintf("Their kubelets write to one Node in turns, and what is done to it for the one hits the other. Give one of them another hostname with spec.forProvider.hostname; this goes on by itself once Node %s has one owner", m.Nodename)
	case len(m.LeftoverNodes) > 0:
		wayOut = fmt.Sprintf("If that stays so, see which one is left over (%s) and delete it with kubectl delete node; this goes on by itself then", strings.Join(m.LeftoverNodes, ", "))
	}
	return fmt.Sprintf("The Node of %s is not known: %s. %s", m.Name, m.Node.Why(), wayOut)
}
