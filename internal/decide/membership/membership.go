// Package membership reads from etcd's own answers which machine runs which member, by ID only, and whether a machine still
// runs one. It must never judge: what follows from it is for the guards to say.
package membership

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/maesh/provider-ichor/internal/decide/facts"
)

// A State says whether a machine runs a member of etcd.
type State int

// States.
const (
	// Listed: every healthy voter that can tell lists a member of the machine.
	Listed State = 1 + iota
	// Vanishing: etcd has removed the member, and a voter that lags behind lists it still.
	Vanishing
	// Absent: a healthy voter can tell that the machine runs no member, and no reachable voter says otherwise. Or etcd
	// was never begun.
	Absent
	// Unknown: nobody who could tell did.
	Unknown
)

// A Finding is what the members of etcd say of one machine.
type Finding struct {
	State State
	// Member that the machine runs, if Listed or Vanishing. Of several it is one that the machine does not run any more.
	Member facts.Member
	// Listers are the names of the machines whose voters list Member, in order.
	Listers []string
	// Why nobody can tell, if Unknown; a clause.
	Why string
}

// Of returns what the members of etcd say of machine m. Only voters that serve can tell: what others know may be long out of
// date. What m's own etcd says is never evidence that m runs no member. That it serves is evidence that m does.
func Of(f facts.Cluster, m facts.Machine) Finding {
	if m.Role == facts.Worker || NeverBegun(f) {
		return Finding{State: Absent}
	}
	others := Voters(f, m.ID)
	healthy := Healthy(others)
	if len(healthy) == 0 {
		return alone(f, m)
	}
	member, listers := listed(f, m, others)
	switch {
	case len(listers) > 0 && slices.ContainsFunc(healthy, func(v facts.View) bool { return lacks(v, member.ID) }):
		return Finding{State: Vanishing, Member: member, Listers: listers}
	case len(listers) > 0:
		return Finding{State: Listed, Member: member, Listers: listers}
	}
	if why := doubt(f, m, others, healthy); why != "" {
		return Finding{State: Unknown, Why: why}
	}
	return Finding{State: Absent}
}

// alone is for a machine without another healthy voter that could tell. Its own etcd, if it serves, can only tell that it is
// a member.
func alone(f facts.Cluster, m facts.Machine) Finding {
	if member, listers := listed(f, m, ownView(f, m)); len(listers) > 0 {
		return Finding{State: Listed, Member: member, Listers: listers}
	}
	return Finding{State: Unknown, Why: "no other control plane runs a voter of etcd that answers and serves"}
}

// ownView is what the etcd of m itself says, if it serves. One that etcd has removed does not serve.
func ownView(f facts.Cluster, m facts.Machine) []facts.View {
	return slices.DeleteFunc(Healthy(f.Etcd.Views), func(v facts.View) bool { return v.Machine != m.ID })
}

// listed returns a member of m that one of the views lists, and the names of all machines whose views do. A member that m
// runs no more comes before the one that it says to run: it is in the way of everything else.
func listed(f facts.Cluster, m facts.Machine, views []facts.View) (facts.Member, []string) {
	var found []facts.Member
	for _, v := range views {
		members, _ := v.Members.Get()
		for _, e := range members {
			if isOf(f, m, e) {
				found = append(found, e)
			}
		}
	}
	if len(found) == 0 {
		return facts.Member{}, nil
	}
	slices.SortFunc(found, func(a, b facts.Member) int { return cmp.Compare(a.ID, b.ID) })
	if i := slices.IndexFunc(found, func(e facts.Member) bool { return e.ID != Running(m) }); i > 0 {
		found = found[i:]
	}
	member := found[0]
	var listers []facts.View
	for _, v := range views {
		if lists(v, member.ID) {
			listers = append(listers, v)
		}
	}
	return member, machines(f, listers)
}

// isOf tells whether a member is, or was left behind by, machine m: by its ID; or, if it never voted and so nobody can
// tell its ID, by the address that it was added with. No two machines have the same address where this is asked.
func isOf(f facts.Cluster, m facts.Machine, e facts.Member) bool {
	if slices.Contains(IDs(m), e.ID) {
		// What m was last seen to be counts for nothing against a machine that says to be it now.
		return Running(m) == e.ID || len(runners(f, e.ID)) == 0
	}
	if e.Name != "" && !e.Learner {
		return false
	}
	_, known := Owner(f, e.ID)
	return !known && isAt(m, e)
}

// isAt tells whether a member was added with the address of m: m left it behind, perhaps, in a life that nobody saw.
func isAt(m facts.Machine, e facts.Member) bool {
	return m.Address != "" && slices.Contains(e.PeerHosts, host(m.Address))
}

// doubt says why a machine that nobody lists may be a member all the same, or nothing.
func doubt(f facts.Cluster, m facts.Machine, others, healthy []facts.View) string {
	for _, v := range others {
		if !v.Members.IsKnown() {
			return fmt.Sprintf("%s does not tell its list of members: %s", Name(f, v.Self), v.Members.Why())
		}
	}
	if own := ownView(f, m); len(own) > 0 {
		return fmt.Sprintf("the etcd of %s itself says that it serves, and no other lists it", m.Name)
	}
	anywhere := mayRunAnother(m)
	for _, v := range healthy {
		members, _ := v.Members.Get()
		for _, e := range members {
			if _, known := Owner(f, e.ID); !known && !leftBehind(f, e.ID) && (anywhere || isAt(m, e)) {
				return fmt.Sprintf("etcd lists a member (%s) that no known machine runs, and it may be the one of %s", Name(f, e.ID), m.Name)
			}
		}
	}
	return ""
}

// leftBehind tells whether a member was that of a machine whose removal was completed.
func leftBehind(f facts.Cluster, id facts.MemberID) bool {
	return slices.ContainsFunc(f.Machines, func(m facts.Machine) bool { return m.Removed && slices.Contains(IDs(m), id) })
}

// mayRunAnother tells whether m may run a member with an ID that nobody knows to be its own: it joins by itself whenever it
// boots with a configuration and without data.
func mayRunAnother(m facts.Machine) bool {
	if len(IDs(m)) == 0 {
		return true
	}
	live, answered := m.Live.Get()
	switch {
	case !answered:
		return true
	case live.Mode == facts.Maintenance, facts.Is(live.EtcdService, "Finished"):
		return false
	}
	return Running(m) == 0
}

// NeverBegun tells whether it is certain that the cluster never had an etcd: nobody wrote down that it has, every approved
// control plane answered, and none of them knows of a member.
func NeverBegun(f facts.Cluster) bool {
	if f.Bootstrapped != "" || Begun(f) {
		return false
	}
	return !slices.ContainsFunc(f.Machines, func(m facts.Machine) bool {
		live, answered := m.Live.Get()
		return m.IsApprovedControlPlane() && (!answered || MayHaveData(live))
	})
}

// Begun tells whether it is certain that the cluster has, or had, an etcd: a member answers, or a control plane was seen to
// be one.
func Begun(f facts.Cluster) bool {
	return len(f.Etcd.Views) > 0 || slices.ContainsFunc(f.Machines, func(m facts.Machine) bool {
		return m.IsApprovedControlPlane() && len(IDs(m)) > 0
	})
}

// MayHaveData tells whether a control plane may have data of etcd. One that waits for its etcd to be begun prepares; every
// other state of the service, and an unknown one, may follow data.
func MayHaveData(l facts.Live) bool {
	if l.Mode == facts.Maintenance {
		return false
	}
	return !facts.Is(l.EtcdService, "Preparing")
}

// Voters are the views of all voters of etcd but that of one machine. A member that etcd has removed answers sometimes,
// with what it knew before: it is no voter if the healthy ones do not list it.
func Voters(f facts.Cluster, but facts.MachineID) []facts.View {
	var all []facts.View
	for _, v := range f.Etcd.Views {
		if m, ok := f.Machine(v.Machine); ok && !m.Removed && v.Machine != but && !v.Learner {
			all = append(all, v)
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(v facts.View) bool { return !facts.Is(v.Healthy, true) && disowned(all, v.Self) })
}

// Healthy are those of the views whose members serve.
func Healthy(views []facts.View) []facts.View {
	return slices.DeleteFunc(slices.Clone(views), func(v facts.View) bool { return !facts.Is(v.Healthy, true) })
}

// disowned tells whether every healthy voter has a list without the given member, and at least one has.
func disowned(views []facts.View, id facts.MemberID) bool {
	healthy := Healthy(views)
	return slices.ContainsFunc(healthy, func(v facts.View) bool { return lacks(v, id) }) &&
		!slices.ContainsFunc(healthy, func(v facts.View) bool { return lists(v, id) })
}

// IDs are the IDs of the members that m may be, as far as anybody ever saw: what it says now, what a removal wrote down,
// and what it was last seen to be. Each once, none zero.
func IDs(m facts.Machine) []facts.MemberID {
	ids := []facts.MemberID{Running(m), m.LastMember}
	if m.Record != nil {
		ids = append(ids, m.Record.Member)
	}
	slices.Sort(ids)
	return slices.DeleteFunc(slices.Compact(ids), func(id facts.MemberID) bool { return id == 0 })
}

// Running is the member that m's own etcd says to be, or zero. Another machine that answers at m's address speaks for
// itself: taken for m, it would have two owners there, or m a member that is not its own.
func Running(m facts.Machine) facts.MemberID {
	live, _ := m.Live.Get()
	if m.UUID != "" && !strings.EqualFold(live.UUID, m.UUID) {
		return 0
	}
	id, _ := live.Member.Get()
	return id
}

// Owner returns the one machine of the cluster that runs a member: that says so, or else, while nobody does, that was last
// seen to. A member has no owner if nobody runs it, or if two machines claim to.
func Owner(f facts.Cluster, id facts.MemberID) (facts.Machine, bool) {
	found := runners(f, id)
	if len(found) == 0 {
		found = those(f, func(m facts.Machine) bool { return Running(m) == 0 && slices.Contains(IDs(m), id) })
	}
	if len(found) != 1 {
		return facts.Machine{}, false
	}
	return found[0], true
}

// Contested tells whether more than one machine says to run a member: they were cloned, data and all.
func Contested(f facts.Cluster, id facts.MemberID) bool { return len(runners(f, id)) > 1 }

// runners are the machines that say to run a member.
func runners(f facts.Cluster, id facts.MemberID) []facts.Machine {
	return those(f, func(m facts.Machine) bool { return Running(m) == id })
}

// those are the machines of the cluster of which something is true.
func those(f facts.Cluster, is func(facts.Machine) bool) []facts.Machine {
	var found []facts.Machine
	for _, m := range f.Machines {
		if !m.Removed && is(m) {
			found = append(found, m)
		}
	}
	return found
}

// Name names a member for people: by the machine that runs it, or else by its ID.
func Name(f facts.Cluster, id facts.MemberID) string {
	if m, ok := Owner(f, id); ok {
		return m.Name
	}
	return fmt.Sprintf("member %x", uint64(id))
}

// IsListed tells whether anybody who answers lists a member, healthy or not.
func IsListed(f facts.Cluster, id facts.MemberID) bool {
	return slices.ContainsFunc(f.Etcd.Views, func(v facts.View) bool { return lists(v, id) })
}

// machines names the machines of views.
func machines(f facts.Cluster, views []facts.View) []string {
	names := make([]string, 0, len(views))
	for _, v := range views {
		m, _ := f.Machine(v.Machine)
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names
}

func lists(v facts.View, id facts.MemberID) bool {
	members, _ := v.Members.Get()
	return slices.ContainsFunc(members, func(m facts.Member) bool { return m.ID == id })
}

// lacks tells whether a view is known not to list a member. A view without a list lacks nothing.
func lacks(v facts.View, id facts.MemberID) bool { return v.Members.IsKnown() && !lists(v, id) }

// host is an address without its port.
func host(address string) string {
	if i := strings.LastIndexByte(address, ':'); i >= 0 && strings.Count(address, ":") == 1 {
		address = address[:i]
	} else if end := strings.IndexByte(address, ']'); strings.HasPrefix(address, "[") && end > 0 {
		address = address[1:end]
	}
	return address
}
