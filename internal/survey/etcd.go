package survey

import (
	"cmp"
	"slices"
	"strings"

	"github.com/maesh/provider-ichor/internal/decide/facts"
)

// etcdOf puts together what the members of etcd say, each asked by itself.
func etcdOf(machines []facts.Machine, seen []sight) facts.Etcd {
	var e facts.Etcd
	for i, s := range seen {
		if v, ok := viewOf(machines[i], s); ok {
			e.Views = append(e.Views, v)
		}
	}
	e.Alarms = alarmsOf(seen)
	return e
}

// viewOf is what one machine's member says. A member that does not say who it is has no view: it counts as one whose
// health is not known, through the lists of the others.
func viewOf(m facts.Machine, s sight) (facts.View, bool) {
	st, ok := s.status.Get()
	if !ok {
		return facts.View{}, false
	}
	v := facts.View{
		Machine: m.ID,
		Self:    facts.MemberID(st.Member),
		Learner: st.Learner,
		Leader:  facts.MemberID(st.Leader),
		Term:    st.Term,
		Healthy: facts.Of(st.Leader != 0 && !slices.ContainsFunc(st.Errors, isFailure)),
		Members: facts.Unknown[[]facts.Member](s.members.Why()),
	}
	if list, ok := s.members.Get(); ok {
		members := make([]facts.Member, 0, len(list))
		for _, e := range list {
			members = append(members, facts.Member{ID: facts.MemberID(e.ID), Name: e.Name, Learner: e.Learner, PeerHosts: e.PeerHosts})
		}
		slices.SortFunc(members, func(a, b facts.Member) int { return cmp.Compare(a.ID, b.ID) })
		v.Members = facts.Of(members)
	}
	return v, true
}

// isFailure tells an error of a member from an alarm: every member counts the alarms of all among its errors, as
// "memberID:… alarm:…". What serves with an alarm has a leader; alarms are a fact of their own, which has a guard.
func isFailure(text string) bool { return !strings.Contains(text, "alarm:") }

// alarmsOf are the alarms that any member tells of, each once. They are known if one member told: etcd keeps them in its
// own log, the same for all.
func alarmsOf(seen []sight) facts.Known[[]facts.Alarm] {
	why := "no member of etcd told its alarms"
	told := false
	var alarms []facts.Alarm
	for _, s := range seen {
		list, ok := s.alarms.Get()
		if !ok {
			continue
		}
		told = true
		for _, a := range list {
			alarms = append(alarms, facts.Alarm{Member: facts.MemberID(a.Member), Name: a.Name})
		}
	}
	if !told {
		return facts.Unknown[[]facts.Alarm](why)
	}
	slices.SortFunc(alarms, func(a, b facts.Alarm) int {
		return cmp.Or(cmp.Compare(a.Member, b.Member), cmp.Compare(a.Name, b.Name))
	})
	return facts.Of(slices.Compact(alarms))
}
