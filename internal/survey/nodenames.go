package survey

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/facts"
)

// matchNodenames finds machines that run under one Nodename. Their kubelets write to one Node in turns, so that it has now
// the UUID of the one and now that of the other: to cordon, drain or delete it for the one would hit the other, and not to
// find it means nothing. Nobody's Node is known then.
func (o *objects) matchNodenames() {
	for i := range o.machines {
		m := &o.machines[i]
		if node, _ := m.Node.Get(); m.Nodename == "" || (!node.Exists && !o.runs(i)) {
			continue // Nothing of it writes to a Node any more, and none is found that could be hit.
		}
		for k, other := range o.machines {
			if uuidOf(other) != uuidOf(*m) && other.Nodename == m.Nodename && o.runs(k) { // One that is declared twice is no two.
				m.SameNodename = append(m.SameNodename, other.Name)
			}
		}
		if len(m.SameNodename) > 0 {
			m.LeftoverNodes = nil
			m.Node = facts.Unknown[facts.Node](fmt.Sprintf("its hostname %q is also that of %s", m.Nodename, strings.Join(m.SameNodename, ", ")))
		}
	}
}

// uuidOf is the SMBIOS UUID of a machine as it is pinned, else as it answers; empty if neither is known.
func uuidOf(m facts.Machine) string {
	live, _ := m.Live.Get()
	return cmp.Or(m.UUID, live.UUID)
}

// markHostnames names, for each machine, the other approved ones of the cluster that are declared with its hostname. A machine
// whose removal was completed has left it.
func (o *objects) markHostnames() {
	for i := range o.machines {
		o.machines[i].SameHostname = nil
		for k, other := range o.machines {
			if k != i && other.Approved && !other.Removed && o.declared[k].Hostname() == o.declared[i].Hostname() {
				o.machines[i].SameHostname = append(o.machines[i].SameHostname, other.Name)
			}
		}
	}
}

// runs tells whether the kubelet of a machine may write to a Node: whether it has a configuration and answers, now if it
// was asked now, else when it last was. A dead machine's replacement may have its hostname.
func (o *objects) runs(i int) bool {
	m := o.machines[i]
	live, answers := m.Live.Get()
	switch {
	case m.Removed:
		return false
	case answers:
		return live.Mode == facts.Configured
	}
	c := o.declared[i].GetCondition(v1alpha1.TypeReachable)
	return m.Live.Why() == whyNotAsked && c.Status == corev1.ConditionTrue && c.Reason == v1alpha1.ReasonAnswering
}
