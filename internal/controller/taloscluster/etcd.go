package taloscluster

import (
	"fmt"
	"slices"
	"strings"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/quorum"
)

// How healthy a member is, as status shows it.
const (
	healthyYes     = "yes"
	healthyNo      = "no"
	healthyUnknown = "unknown"
)

// unknownCount is what status shows for a count that is not known.
const unknownCount = -1

// etcdHealth is what one survey says of etcd, for people. Nothing is decided by it.
type etcdHealth struct {
	leader          string
	members         []v1alpha1.EtcdMemberObservation
	voters, healthy int // unknownCount if no member gave its list.
	hasLeader       bool
	reason          xpv2.ConditionReason
	message         string
}

// healthOf sums up what the members of etcd say.
func healthOf(f facts.Cluster) etcdHealth {
	h := etcdHealth{voters: unknownCount, healthy: unknownCount}
	views := viewsByMember(f.Etcd.Views)
	members := listed(f.Etcd.Views)
	if len(members) == 0 {
		h.reason, h.message = v1alpha1.ReasonEtcdUnknown, "No control plane tells the members of etcd"+whySilent(f)
		if neverBootstrapped(f) {
			h.reason, h.message = v1alpha1.ReasonEtcdNotBootstrapped, "Etcd is not bootstrapped yet"
		}
		return h
	}
	names, alarms, unstarted := machineNames(f), alarmsByMember(f), map[string]string{}
	h.voters, h.healthy = 0, 0
	for _, m := range members {
		o := v1alpha1.EtcdMemberObservation{
			ID: memberHex(m.ID), Machine: names[m.ID], Learner: m.Learner, Healthy: healthyUnknown, Alarms: alarms[m.ID],
		}
		if v, ok := views[m.ID]; ok {
			o.Healthy = healthWord(v.Healthy)
			h.noteLeader(v.Leader, names)
		}
		if !m.Learner {
			h.voters++
			if o.Healthy == healthyYes {
				h.healthy++
			}
		}
		if m.Name == "" && m.Learner {
			unstarted[o.ID] = unstartedLearner(f, m)
		}
		h.members = append(h.members, o)
	}
	h.judge(f, unstarted)
	return h
}

// judge sets reason and message from the members, and from what is known of those that were never started.
func (h *etcdHealth) judge(f facts.Cluster, unstarted map[string]string) {
	var troubles []string
	for _, m := range h.members {
		if why := unstarted[m.ID]; why != "" {
			troubles = append(troubles, why)
			continue
		}
		troubles = append(troubles, troublesOf(m)...)
	}
	alarms, known := f.Etcd.Alarms.Get()
	switch {
	case !known:
		troubles = append(troubles, "its alarms are not known: "+f.Etcd.Alarms.Why())
	case len(alarms) > 0 && len(troubles) == 0:
		troubles = append(troubles, "an alarm is raised for no member that is listed")
	}
	count := fmt.Sprintf("%d of %d voters are healthy", h.healthy, h.voters)
	switch {
	case !h.hasLeader && h.healthy < quorum.Majority(h.voters):
		h.reason = v1alpha1.ReasonQuorumLost
		h.message = fmt.Sprintf("Etcd has no leader: %s, %d are needed", count, quorum.Majority(h.voters))
	case len(troubles) > 0:
		h.reason, h.message = v1alpha1.ReasonEtcdDegraded, sentence(count, troubles)
	default:
		h.reason, h.message = v1alpha1.ReasonEtcdAllHealthy, sentence(count, nil)
	}
}

// noteLeader takes note of the leader that a member follows. Members that disagree show as the last one; the gate is
// what judges disagreement.
func (h *etcdHealth) noteLeader(id facts.MemberID, names map[facts.MemberID]string) {
	if id == 0 {
		return
	}
	h.hasLeader = true
	h.leader = names[id]
	if h.leader == "" {
		h.leader = memberHex(id)
	}
}

// unstartedLearner says what a learner is that was added and is not started yet. It is what every control plane is for some
// seconds while it joins. Talos before 1.14 does not go on with one that was left behind, etcd takes one learner at a time, and
// removing one that is just starting breaks its machine: so a person decides, after a while.
func unstartedLearner(f facts.Cluster, m facts.Member) string {
	by, ask := "", "<a control plane that runs etcd>"
	for _, machine := range f.Machines {
		if slices.Contains(m.PeerHosts, machine.Address) {
			by = " for " + machine.Name
		}
	}
	for _, v := range f.Etcd.Views {
		if machine, ok := f.Machine(v.Machine); ok && !v.Learner {
			ask = machine.Address
			break
		}
	}
	return fmt.Sprintf("member %s was added%s as a learner and is not started yet. No other can join meanwhile. If it stays so for more than ten minutes, "+
		"remove it with: talosctl -n %s etcd remove-member %s", memberHex(m.ID), by, ask, memberHex(m.ID))
}

func troublesOf(m v1alpha1.EtcdMemberObservation) []string {
	name := m.Machine
	if name == "" {
		name = "member " + m.ID + ", which no TalosMachine runs,"
	}
	var ts []string
	switch {
	case m.Learner:
		ts = append(ts, name+" is a learner")
	case m.Healthy == healthyNo:
		ts = append(ts, name+" is unhealthy")
	case m.Healthy == healthyUnknown:
		ts = append(ts, name+" does not answer")
	}
	for _, a := range m.Alarms {
		ts = append(ts, name+" has alarm "+a)
	}
	return ts
}

// neverBootstrapped tells whether it is certain that the cluster has no etcd: Bootstrap was never recorded, and every
// approved control plane answered. One that does not answer may have been bootstrapped before it was imported.
func neverBootstrapped(f facts.Cluster) bool {
	if f.Bootstrapped != "" {
		return false
	}
	return !slices.ContainsFunc(f.Machines, func(m facts.Machine) bool {
		return m.IsApprovedControlPlane() && !m.Live.IsKnown()
	})
}

// whySilent says why the approved control planes did not answer, if they did not.
func whySilent(f facts.Cluster) string {
	var why []string
	for _, m := range f.Machines {
		if m.IsApprovedControlPlane() && !m.Live.IsKnown() {
			why = append(why, m.Name+": "+m.Live.Why())
		}
	}
	if len(why) == 0 {
		return ""
	}
	return ": " + strings.Join(why, "; ")
}

// listed returns the members of etcd in the order of their IDs: every member that any member lists, since a member that
// only one of them knows is what a person wants to see.
func listed(views []facts.View) []facts.Member {
	byID := map[facts.MemberID]facts.Member{}
	for _, v := range views {
		members, _ := v.Members.Get()
		for _, m := range members {
			byID[m.ID] = m
		}
	}
	members := make([]facts.Member, 0, len(byID))
	for _, m := range byID {
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b facts.Member) int { return strings.Compare(memberHex(a.ID), memberHex(b.ID)) })
	return members
}

func viewsByMember(views []facts.View) map[facts.MemberID]facts.View {
	m := make(map[facts.MemberID]facts.View, len(views))
	for _, v := range views {
		m[v.Self] = v
	}
	return m
}

// machineNames maps members to the machines that run them, by ID only.
func machineNames(f facts.Cluster) map[facts.MemberID]string {
	names := map[facts.MemberID]string{}
	for _, m := range f.Machines {
		id := m.LastMember
		if live, ok := m.Live.Get(); ok {
			if member, ok := live.Member.Get(); ok {
				id = member
			}
		}
		if id != 0 && !m.Removed {
			names[id] = m.Name
		}
	}
	return names
}

func alarmsByMember(f facts.Cluster) map[facts.MemberID][]string {
	alarms, _ := f.Etcd.Alarms.Get()
	m := map[facts.MemberID][]string{}
	for _, a := range alarms {
		m[a.Member] = append(m[a.Member], a.Name)
	}
	for _, names := range m {
		slices.Sort(names)
	}
	return m
}

func healthWord(k facts.Known[bool]) string {
	switch healthy, known := k.Get(); {
	case !known:
		return healthyUnknown
	case healthy:
		return healthyYes
	default:
		return healthyNo
	}
}

func memberHex(id facts.MemberID) string { return v1alpha1.FormatMemberID(uint64(id)) }

// sentence joins a statement and what qualifies it.
func sentence(statement string, more []string) string {
	if len(more) == 0 {
		return statement
	}
	return statement + "; " + strings.Join(more, ", ")
}
