package modelcheck

import (
	"fmt"

	"github.com/maesh/provider-ichor/internal/decide/configchange"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/story"
)

// Names of what never changes, made once: facts are gathered millions of times.
var (
	ids, names, uuids, nodes [maxMachines]string
	pods                     = []string{"default/web"}
)

func init() {
	for i := range maxMachines {
		ids[i], names[i] = fmt.Sprintf("id-%d", i+1), fmt.Sprintf("cp-%d", i+1)
		uuids[i], nodes[i] = fmt.Sprintf("uuid-%d", i+1), names[i]
	}
}

// memberID is what etcd calls a member of a machine; zero is no member.
func memberID(owner, member uint8) facts.MemberID {
	if member == 0 {
		return 0
	}
	return facts.MemberID(owner+1)<<4 | facts.MemberID(member)
}

// named is the inverse of memberID.
func named(id facts.MemberID) (owner, member uint8) {
	if id == 0 {
		return 0, 0
	}
	return uint8(id>>4) - 1, uint8(id & 0xf)
}

// facts are what a survey finds: only what answers is known.
func (w *world) facts() facts.Cluster {
	f := facts.Cluster{
		Name: "prod", TakenAt: story.TakenAt, Declared: facts.Of(int(w.declared)), Teardown: w.teardown, Bootstrapped: uuids[0],
		Machines: make([]facts.Machine, 0, maxMachines),
	}
	f.Etcd.Alarms = facts.Unknown[[]facts.Alarm]("nobody told")
	for i := range uint8(maxMachines) {
		m := &w.machines[i]
		if !m.declared {
			continue
		}
		f.Machines = append(f.Machines, w.object(i))
		if v, ok := w.view(i); ok {
			f.Etcd.Views = append(f.Etcd.Views, v)
			f.Etcd.Alarms = w.alarms()
		}
	}
	return f
}

// alarms are what any member tells.
func (w *world) alarms() facts.Known[[]facts.Alarm] {
	switch w.alarm {
	case raised:
		return facts.Of([]facts.Alarm{{Name: "NOSPACE"}})
	case untold:
		return facts.Unknown[[]facts.Alarm]("nobody told")
	}
	return facts.Of[[]facts.Alarm](nil)
}

func (w *world) object(i uint8) facts.Machine {
	m := &w.machines[i]
	o := facts.Machine{
		ID: facts.MachineID(ids[i]), Name: names[i], Role: facts.ControlPlane, Address: names[i], Approved: m.approved, Deleting: m.deleting,
		AllowDelete: m.allowed, Removed: m.completed, UUID: uuids[i], RemoveUnreachable: m.policy, LastMember: memberID(i, m.seen),
		Live: w.live(i), Node: w.nodeOf(i),
	}
	if m.accepted {
		o.AcceptedUnwiped = uuids[i]
	}
	if m.recorded != 0 {
		o.Record = &facts.Record{UUID: uuids[i], BootID: "boot", Member: memberID(i, m.recorded-1), Reset: m.resetNoted}
	}
	return o
}

// live is what answers at the address of a machine.
func (w *world) live(i uint8) facts.Known[facts.Live] {
	m := &w.machines[i]
	switch k, twin := m.twin(); {
	case m.completed:
		return facts.Unknown[facts.Live]("its removal was completed")
	case twin:
		t := w.machines[k]
		t.at = itself
		return liveOf(&t, uint8(k))
	case m.at == stranger:
		return facts.Of(facts.Live{Mode: facts.Maintenance, UUID: "uuid-stranger", Stage: "maintenance"})
	}
	return liveOf(m, i)
}

func liveOf(m *machine, i uint8) facts.Known[facts.Live] {
	switch {
	case !m.answers():
		return facts.Unknown[facts.Live]("no answer")
	case m.blank:
		return facts.Of(facts.Live{Mode: facts.Maintenance, UUID: uuids[i], Stage: "maintenance"})
	}
	l := facts.Live{Mode: facts.Configured, UUID: uuids[i], BootID: facts.Of("boot"), Stage: "running", Ready: true}
	if m.resetting {
		l.Stage, l.Ready = "resetting", false
	}
	switch {
	case m.runs():
		l.Member, l.EtcdService = facts.Of(memberID(i, m.data)), facts.Of("Running")
	case m.etcd && !m.resetting:
		l.EtcdService = facts.Of("Preparing")
	case m.data != 0:
		l.EtcdService = facts.Of("Failed")
	default:
		l.EtcdService = facts.Of("Finished")
	}
	return facts.Of(l)
}

// nodeOf is what the Kubernetes API of the cluster tells, which serves while etcd does.
func (w *world) nodeOf(i uint8) facts.Known[facts.Node] {
	m := &w.machines[i]
	if !w.serves() {
		return facts.Unknown[facts.Node]("the API does not answer")
	}
	n := facts.Node{Exists: m.node, Name: nodes[i], Ready: m.up && !m.blank && !m.resetting, Cordoned: m.ours, Ours: m.ours}
	if m.pods {
		n.Evictable = pods
	}
	return facts.Of(n)
}

// view is what the etcd at the address of a machine answers.
func (w *world) view(i uint8) (facts.View, bool) {
	k := i
	if t, twin := w.machines[i].twin(); twin {
		k = uint8(t)
	}
	m := &w.machines[k]
	if w.machines[i].completed || w.machines[i].at == stranger || !m.runs() || !m.heard || m.blank {
		return facts.View{}, false
	}
	v := facts.View{Machine: facts.MachineID(ids[i]), Self: memberID(k, m.data), Learner: m.learner&bit(m.data) != 0, Term: 1, Healthy: facts.Of(false)}
	if m.isMember() {
		v.Healthy = facts.Of(w.serves())
		if w.leader != 0 {
			v.Leader = memberID(w.leader-1, w.machines[w.leader-1].data)
		}
	}
	v.Members = facts.Of(w.listOf(k))
	return v, true
}

// listOf is the list of members as the member of a machine has it. One that etcd removed still lists itself, and one that
// lags behind lists what is gone.
func (w *world) listOf(k uint8) []facts.Member {
	list := make([]facts.Member, 0, maxMachines)
	for i := range uint8(maxMachines) {
		m := &w.machines[i]
		for g := uint8(1); g <= m.born; g++ {
			itself := i == k && g == m.data
			lags := w.lagger == k+1 && w.laggedOf == i && w.lagged == g
			if (m.voters|m.learner)&bit(g) != 0 || itself || lags {
				list = append(list, facts.Member{ID: memberID(i, g), Name: names[i], Learner: m.learner&bit(g) != 0, PeerHosts: []string{names[i]}})
			}
		}
	}
	return list
}

// configOf is how the configuration of a machine compares to the declared one.
func (m *machine) configOf() configchange.Config {
	c := configchange.Config{BootID: facts.Of("boot"), Active: facts.Of(m.config == inSync), Persistent: facts.Of(m.config != needsReboot)}
	c.NeedsReboot = facts.Of(m.config != inSync)
	return c
}
