package deleteguard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/membership"
	"github.com/maesh/provider-ichor/internal/decide/quorum"
)

// A gate is etcd's own answer, laid out for the question whether one of its members may be lost.
//
//	views    every reachable voter but a victim that does not serve: those who have to agree
//	members  the list that they agree on
//	victim   the member that is about to be lost
//	stays    whether it comes back and remains a voter meanwhile
type gate struct {
	f       facts.Cluster
	m       facts.Machine
	victim  facts.Member
	views   []facts.View
	members []facts.Member
	stays   bool
}

// A guard is named by what it finds.
type guard func(gate) *Refusal

// Each guard of the chain relies on those before it only for what to look at, never for a verdict.
var (
	reboot   = []guard{leaderIsMissing, listIsUnknown, votersDisagree, alarmIsRaised, learnerIsPresent, quorumWouldBreak, otherIsUnhealthy, memberIsUnmapped}
	removal  = append(slices.Clone(reboot), replacementIsMissing)
	teardown = []guard{leaderIsMissing, listIsUnknown, votersDisagree, quorumWouldBreak}
)

// judge asks every guard of a chain whether the target's member may be lost, or be down for a while if it stays a member.
// A member that is absent already is not judged.
func judge(f facts.Cluster, t facts.MachineID, stays bool, chain []guard) *Refusal {
	m, ok := f.Machine(t)
	if !ok {
		return unknownMachine(f, t)
	}
	found := membership.Of(f, m)
	switch found.State {
	case membership.Absent:
		return nil
	case membership.Unknown:
		if r := leaderIsMissing(newGate(f, m, facts.Member{}, stays)); r != nil && r.Reason == NoLeader {
			return r
		}
		return refuse(UnknownMembers,
			"Bring the control planes back that do not answer; a member whose machine is gone for good is removed with talosctl etcd remove-member; if etcd has lost its quorum for good, restore etcd from a snapshot",
			"It is not known whether %s is a member of etcd: %s", m.Name, found.Why)
	case membership.Vanishing:
		return refuse(MembersDisagree,
			"Wait until the voters agree; if one of them stays behind, repair it",
			"The voters of etcd do not agree whether %s is a member: %s list it, others do not", m.Name, strings.Join(found.Listers, ", "))
	case membership.Listed:
	}
	g := newGate(f, m, found.Member, stays)
	for _, check := range chain {
		if r := check(g); r != nil {
			return r
		}
	}
	return nil
}

func newGate(f facts.Cluster, m facts.Machine, victim facts.Member, stays bool) gate {
	g := gate{f: f, m: m, victim: victim, stays: stays, views: membership.Voters(f, "")}
	g.views = slices.DeleteFunc(g.views, func(v facts.View) bool { return v.Machine == m.ID && !facts.Is(v.Healthy, true) })
	for _, v := range membership.Healthy(g.views) {
		if list, ok := v.Members.Get(); ok {
			g.members = list
			break
		}
	}
	return g
}

func leaderIsMissing(g gate) *Refusal {
	healthy := membership.Healthy(g.views)
	if i := slices.IndexFunc(healthy, func(v facts.View) bool { return v.Leader == 0 }); i < 0 && len(healthy) > 0 {
		return nil
	}
	if len(g.f.Etcd.Views) == 0 {
		return refuse(UnknownMembers,
			"Repair what keeps the control planes from answering; this goes on by itself then. If they are gone for good, restore etcd from a snapshot",
			"No voter of etcd answers")
	}
	return refuse(NoLeader,
		"Bring voters back until more than half of them are up; if they are gone for good, restore etcd from a snapshot",
		"Etcd has no leader, so it does not serve: of those of its members that answer (%d) none has a quorum", len(g.f.Etcd.Views))
}

func listIsUnknown(g gate) *Refusal {
	for _, v := range g.views {
		if !v.Members.IsKnown() {
			return refuse(UnknownMembers,
				"Repair that control plane first; this goes on by itself then",
				"%s does not tell its list of members: %s", g.name(v.Self), v.Members.Why())
		}
	}
	return nil
}

// votersDisagree compares the lists of all, and leader and term of those that serve: a voter that does not serve follows
// nobody, and whether that may be is for other guards to say.
func votersDisagree(g gate) *Refusal {
	first, rest := g.views[0], g.views[1:]
	for _, v := range rest {
		if !sameMembers(first, v) {
			return disagree(g, first, v, "members", list(g, first), list(g, v))
		}
	}
	healthy := membership.Healthy(g.views)
	for _, v := range healthy[1:] {
		if v.Leader != healthy[0].Leader || v.Term != healthy[0].Term {
			return disagree(g, healthy[0], v, "leader and term",
				fmt.Sprintf("%s in term %d", g.name(healthy[0].Leader), healthy[0].Term), fmt.Sprintf("%s in term %d", g.name(v.Leader), v.Term))
		}
	}
	return nil
}

func disagree(g gate, a, b facts.View, about, one, other string) *Refusal {
	return refuse(MembersDisagree,
		"Wait until the voters agree; if one of them stays behind, repair it or remove its machine first",
		"The voters of etcd do not tell the same %s: %s says %s, %s says %s", about, g.name(a.Self), one, g.name(b.Self), other)
}

// sameMembers compares what counts for quorum: who is a member and who votes.
func sameMembers(a, b facts.View) bool {
	one, _ := a.Members.Get()
	two, _ := b.Members.Get()
	return slices.EqualFunc(sorted(one), sorted(two), func(x, y facts.Member) bool { return x.ID == y.ID && x.Learner == y.Learner })
}

func sorted(list []facts.Member) []facts.Member {
	return slices.SortedFunc(slices.Values(list), func(a, b facts.Member) int { return cmp.Compare(a.ID, b.ID) })
}

func list(g gate, v facts.View) string {
	members, _ := v.Members.Get()
	names := make([]string, 0, len(members))
	for _, e := range sorted(members) {
		name := g.name(e.ID)
		if e.Learner {
			name += " (learner)"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

func alarmIsRaised(g gate) *Refusal {
	alarms, known := g.f.Etcd.Alarms.Get()
	if !known {
		return refuse(UnknownAlarms,
			"Repair what keeps the control planes from answering; this goes on by itself then",
			"The alarms of etcd are not known: %s", g.f.Etcd.Alarms.Why())
	}
	if len(alarms) == 0 {
		return nil
	}
	names := make([]string, 0, len(alarms))
	for _, a := range alarms {
		names = append(names, fmt.Sprintf("%s of %s", a.Name, g.name(a.Member)))
	}
	return refuse(EtcdAlarm,
		"NOSPACE: compact and defragment etcd and disarm the alarm; CORRUPT: restore the member's data from the others",
		"Etcd has raised an alarm: %s", strings.Join(names, ", "))
}

func learnerIsPresent(g gate) *Refusal {
	for _, e := range g.members {
		if !e.Learner || (e.ID == g.victim.ID && !g.stays) {
			continue
		}
		if e.ID == g.victim.ID {
			return refuse(LearnerPresent,
				"Wait until it votes; if it does not within some minutes, remove its machine and declare it anew",
				"%s has no vote in etcd yet: Talos does not promote a learner that was rebooted", g.m.Name)
		}
		return refuse(LearnerPresent,
			"Wait until it votes; if it does not within some minutes, remove its machine first, or the member alone with talosctl etcd remove-member",
			"Another member of etcd has no vote yet: %s is a learner", g.name(e.ID))
	}
	return nil
}

func memberIsUnmapped(g gate) *Refusal {
	for _, e := range g.members {
		if membership.Contested(g.f, e.ID) {
			return refuse(MemberUnmapped,
				"Reset the machine that was cloned from the other and declare it anew",
				"More than one machine says to run member %x of etcd", uint64(e.ID))
		}
		if _, known := membership.Owner(g.f, e.ID); known || e.ID == g.victim.ID {
			continue
		}
		return refuse(MemberUnmapped,
			"Bring its machine back if it only does not answer, wait if it is just joining, declare it if it is not declared; if it is gone for good, remove the member with talosctl etcd remove-member",
			"No known machine runs %s of etcd, by its ID", g.name(e.ID))
	}
	return nil
}

func quorumWouldBreak(g gate) *Refusal {
	n, up := g.voters(), len(g.up())
	afterN, afterUp := g.after()
	verb := "losing"
	if g.stays {
		verb = "rebooting"
	}
	if quorum.Holds(up, n) && quorum.Holds(afterUp, afterN) {
		return nil
	}
	wayOut, sick := "Approve another control plane and wait until it is a voter", g.sick()
	switch {
	case len(sick) > 0:
		wayOut = repair(sick)
	case g.f.Teardown:
		wayOut = "This goes on by itself once no other control plane is a member of etcd; the conditions of their TalosMachines say what they wait for. A learner that neither becomes a voter nor goes is removed with talosctl etcd remove-member"
	case g.stays:
		wayOut = "Approve more control planes and wait until they are voters, or do it by hand at a time when the cluster may stand still"
	}
	return refuse(QuorumWouldBreak, wayOut,
		"%d of %d voters of etcd are known to be up now (a quorum needs %d); %s %s would leave %d of %d up (a quorum needs %d)",
		up, n, quorum.Majority(n), verb, g.m.Name, afterUp, afterN, quorum.Majority(afterN))
}

// otherIsUnhealthy keeps a machine that serves while another does not: the sick one goes first.
func otherIsUnhealthy(g gate) *Refusal {
	sick := g.sick()
	if len(sick) == 0 || g.victim.Learner || !g.serves(g.victim.ID) {
		return nil
	}
	return refuse(OtherMemberUnhealthy,
		repair(sick),
		"%s is a healthy voter of etcd, and others are not known to be: %s; %d of %d voters are up", g.m.Name, strings.Join(sick, ", "), len(g.up()), g.voters())
}

// replacementIsMissing keeps a healthy voter while etcd itself would have fewer voters than control planes are declared: a
// replacement that is approved, and so counts as an object, may not have joined yet.
func replacementIsMissing(g gate) *Refusal {
	declared, known := g.f.Declared.Get()
	after, _ := g.after()
	switch {
	case g.victim.Learner, !g.serves(g.victim.ID), known && after >= declared:
		return nil
	case !known:
		return unknownCount(g.f)
	}
	return refuse(BelowDeclaredCount,
		"Wait until the replacement is a voter of etcd, or lower spec.forProvider.controlPlane.count of the TalosCluster",
		"Etcd has %d voters now, and %d would be left of %d control planes that are declared", g.voters(), after, declared)
}

// voters is how many members have a vote.
func (g gate) voters() int {
	n := 0
	for _, e := range g.members {
		if !e.Learner {
			n++
		}
	}
	return n
}

// up are the voters that are known to serve.
func (g gate) up() []facts.MemberID {
	var up []facts.MemberID
	for _, e := range g.members {
		if !e.Learner && g.serves(e.ID) {
			up = append(up, e.ID)
		}
	}
	return up
}

// after is how many voters there would be without the victim, and how many of them are known to serve.
func (g gate) after() (voters, up int) {
	voters, up = g.voters(), len(g.up())
	if g.victim.Learner {
		return voters, up
	}
	if g.serves(g.victim.ID) {
		up--
	}
	if !g.stays {
		voters--
	}
	return voters, up
}

// serves tells whether a member itself is known to serve. Whoever did not answer is not.
func (g gate) serves(id facts.MemberID) bool {
	return slices.ContainsFunc(g.views, func(v facts.View) bool { return v.Self == id && facts.Is(v.Healthy, true) })
}

// sick names the other voters that are not known to serve.
func (g gate) sick() []string {
	var names []string
	for _, e := range g.members {
		if e.ID != g.victim.ID && !e.Learner && !g.serves(e.ID) {
			names = append(names, g.name(e.ID))
		}
	}
	slices.Sort(names)
	return names
}

// repair says how voters that are not known to serve get out of the way. A member can be removed by hand even where the lock
// keeps its machine from being removed.
func repair(sick []string) string {
	return fmt.Sprintf("Repair first: %s; what is gone for good goes before this one: its TalosMachine, or the member alone with talosctl etcd remove-member", strings.Join(sick, ", "))
}

// name names a member by its machine, or else by its ID and the name that it has in etcd.
func (g gate) name(id facts.MemberID) string {
	name := membership.Name(g.f, id)
	i := slices.IndexFunc(g.members, func(e facts.Member) bool { return e.ID == id })
	if _, known := membership.Owner(g.f, id); known || i < 0 {
		return name
	}
	return fmt.Sprintf("%s (%s)", name, cmp.Or(g.members[i].Name, "never started"))
}
