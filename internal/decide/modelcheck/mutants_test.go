package modelcheck

import (
	"slices"

	"github.com/maesh/provider-ichor/internal/decide/facts"
)

// A mutant is the product with one rule broken, and a config that is large enough to show what comes of it.
type mutant struct {
	name  string
	rules rules
	in    config
	// dawn is a rule of the bootstrap that is broken instead.
	dawn dawnBlunder
}

// A lie is facts with something in them made to look as a guard wants it.
type lie = func(f facts.Cluster, target facts.MachineID) facts.Cluster

// ofMachines lies about machines, one by one.
func ofMachines(about func(m *facts.Machine, isTarget bool)) lie {
	return func(f facts.Cluster, target facts.MachineID) facts.Cluster {
		f.Machines = slices.Clone(f.Machines)
		for i := range f.Machines {
			about(&f.Machines[i], f.Machines[i].ID == target)
		}
		return f
	}
}

// ofLists lies about the member lists of all views.
func ofLists(about func(f facts.Cluster, target facts.MachineID, list []facts.Member) []facts.Member) lie {
	return func(f facts.Cluster, target facts.MachineID) facts.Cluster {
		f.Etcd.Views = slices.Clone(f.Etcd.Views)
		for i := range f.Etcd.Views {
			list, _ := f.Etcd.Views[i].Members.Get()
			f.Etcd.Views[i].Members = facts.Of(about(f, target, slices.Clone(list)))
		}
		return f
	}
}

func nobodyAsks(m *facts.Machine, _ bool) { m.AllowDelete = true }

func itIsWhoItShouldBe(m *facts.Machine, _ bool) {
	if l, ok := m.Live.Get(); ok {
		l.UUID = m.UUID
		m.Live = facts.Of(l)
	}
}

func noOtherIsCordoned(m *facts.Machine, isTarget bool) {
	if n, ok := m.Node.Get(); ok && !isTarget {
		n.Ours = false
		m.Node = facts.Of(n)
	}
}

func itIsDrained(m *facts.Machine, _ bool) {
	if n, ok := m.Node.Get(); ok {
		n.Cordoned, n.Evictable = true, nil
		m.Node = facts.Of(n)
	}
}

func whatWasResetIsBlank(m *facts.Machine, isTarget bool) {
	if isTarget && m.Record != nil && m.Record.Reset {
		m.Live = facts.Of(facts.Live{Mode: facts.Maintenance, UUID: m.UUID, Stage: "maintenance"})
	}
}

func nothingIsDeclared(f facts.Cluster, _ facts.MachineID) facts.Cluster {
	f.Declared = facts.Of(0)
	return f
}

// oneMoreThanThereIs counts a control plane that is gone, and its voter: the count is stale.
func oneMoreThanThereIs(f facts.Cluster, _ facts.MachineID) facts.Cluster {
	f.Machines = append(slices.Clone(f.Machines), facts.Machine{ID: "gone", Name: "gone", Role: facts.ControlPlane, Approved: true, UUID: "uuid-gone"})
	f.Declared = facts.Of(1)
	return f
}

// everybodyIsHealthy has every member that is listed answer and serve.
func everybodyIsHealthy(f facts.Cluster, _ facts.MachineID) facts.Cluster {
	i := slices.IndexFunc(f.Etcd.Views, func(v facts.View) bool { return facts.Is(v.Healthy, true) })
	if i < 0 {
		return f
	}
	model := f.Etcd.Views[i]
	list, _ := model.Members.Get()
	f.Etcd.Views = slices.Clone(f.Etcd.Views)
	for _, e := range list {
		answers := slices.ContainsFunc(f.Etcd.Views, func(v facts.View) bool { return v.Self == e.ID })
		if owner, _ := named(e.ID); !answers {
			v := model
			v.Machine, v.Self, v.Learner = facts.MachineID(ids[owner]), e.ID, e.Learner
			f.Etcd.Views = append(f.Etcd.Views, v)
		}
	}
	return f
}

// theLastIsRight takes the shortest list for everybody's.
func theLastIsRight(f facts.Cluster, target facts.MachineID) facts.Cluster {
	var shortest []facts.Member
	for _, v := range f.Etcd.Views {
		if list, _ := v.Members.Get(); shortest == nil || len(list) < len(shortest) {
			shortest = list
		}
	}
	return ofLists(func(facts.Cluster, facts.MachineID, []facts.Member) []facts.Member { return shortest })(f, target)
}

func withoutLearners(f facts.Cluster, target facts.MachineID) facts.Cluster {
	own := func(m facts.Member) bool { owner, _ := named(m.ID); return ids[owner] == string(target) }
	return ofLists(func(_ facts.Cluster, _ facts.MachineID, list []facts.Member) []facts.Member {
		return slices.DeleteFunc(list, func(m facts.Member) bool { return m.Learner && !own(m) })
	})(f, target)
}

func withoutStrangers(f facts.Cluster, _ facts.MachineID, list []facts.Member) []facts.Member {
	return slices.DeleteFunc(list, func(m facts.Member) bool {
		owner, _ := named(m.ID)
		_, known := f.Machine(facts.MachineID(ids[owner]))
		return !known
	})
}

// somebodyElseLeads has another member lead than the target's.
func somebodyElseLeads(f facts.Cluster, target facts.MachineID) facts.Cluster {
	f.Etcd.Views = slices.Clone(f.Etcd.Views)
	other := slices.IndexFunc(f.Etcd.Views, func(v facts.View) bool { return v.Machine != target && facts.Is(v.Healthy, true) })
	for i := range f.Etcd.Views {
		if v := &f.Etcd.Views[i]; other >= 0 && v.Leader != 0 {
			v.Leader = f.Etcd.Views[other].Self
		}
	}
	return f
}

// noAlarmIsRaised has no alarm where one is raised.
func noAlarmIsRaised(f facts.Cluster, _ facts.MachineID) facts.Cluster {
	if f.Etcd.Alarms.IsKnown() {
		f.Etcd.Alarms = facts.Of[[]facts.Alarm](nil)
	}
	return f
}

// noAlarmIsTold takes alarms that nobody tells for none.
func noAlarmIsTold(f facts.Cluster, _ facts.MachineID) facts.Cluster {
	if !f.Etcd.Alarms.IsKnown() {
		f.Etcd.Alarms = facts.Of[[]facts.Alarm](nil)
	}
	return f
}

// What a mutant is shown in: a cluster that may lose two of three, one that replaces, and one that reboots.
var (
	shrinks  = config{name: "shrinks", voters: 3, declared: 1, replicas: 1, faults: 1, deletes: 2}
	fails    = config{name: "fails", voters: 3, declared: 1, replicas: 1, faults: 2, deletes: 1}
	replaces = config{name: "replaces", voters: 3, spares: 1, declared: 3, replicas: 1, deletes: 1, edits: 1}
	reboots  = config{name: "reboots", voters: 3, declared: 3, replicas: 1, faults: 1, edits: 2, changes: true}
	grows    = config{name: "grows", voters: 3, spares: 1, declared: 3, replicas: 1, edits: 2, changes: true}
	prunes   = config{name: "prunes", voters: 3, declared: 1, replicas: 1, deletes: 1, unasked: true}
	givesUp  = config{name: "gives up", voters: 3, declared: 1, replicas: 1, deletes: 1, edits: 1, callsOff: true}
	swaps    = config{name: "swaps", voters: 3, declared: 1, replicas: 1, faults: 2, deletes: 1, swaps: true}
	pair     = config{name: "pair", voters: 3, declared: 1, replicas: 2, faults: 1, deletes: 2}
	alarms   = config{name: "alarms", voters: 3, declared: 1, replicas: 1, faults: 1, deletes: 1, edits: 1, changes: true, alarms: true}
	loses    = config{name: "loses", voters: 4, declared: 1, replicas: 1, faults: 1, deletes: 2, edits: 1, callsOff: true}
)

// mutants are all rules of design.md 4 that the model can tell the loss of.
func mutants() []mutant {
	return []mutant{
		{"a delete needs no permission", rules{show: ofMachines(nobodyAsks)}, prunes, 0},
		{"the declared count does not count", rules{show: nothingIsDeclared}, replaces, 0},
		{"the count is stale", rules{show: oneMoreThanThereIs}, replaces, 0},
		{"learners are not looked for", rules{show: withoutLearners}, replaces, 0},
		{"nobody's health is asked", rules{show: everybodyIsHealthy}, shrinks, 0},
		{"members of unknown machines are passed over", rules{show: ofLists(withoutStrangers)}, loses, 0},
		{"voters need not agree", rules{show: theLastIsRight}, fails, 0},
		{"any machine at the address will do", rules{show: ofMachines(itIsWhoItShouldBe)}, swaps, 0},
		{"cordons of others are not looked at", rules{show: ofMachines(noOtherIsCordoned)}, shrinks, 0},
		{"nothing is drained", rules{show: ofMachines(itIsDrained)}, shrinks, 0},
		{"the leader may leave", rules{show: somebodyElseLeads}, shrinks, 0},
		{"a reset that was sent was done", rules{show: ofMachines(whatWasResetIsBlank)}, shrinks, 0},
		{"health is not asked before a reboot", rules{show: everybodyIsHealthy}, reboots, 0},
		{"alarms are not looked at", rules{show: noAlarmIsRaised}, alarms, 0},
		{"alarms that nobody tells are none", rules{show: noAlarmIsTold}, alarms, 0},
		{"the lock is not read again", rules{broken: forgetsToReread}, pair, 0},
		{"the point of no return is not marked", rules{broken: forgetsToMark}, shrinks, 0},
		{"the machine proves nothing", rules{broken: forgetsToProve}, swaps, 0},
		{"old permits are good", rules{broken: trustsOldPermits}, fails, 0},
		{"the leave is retried blind", rules{broken: retriesBlindly}, pair, 0},
		{"the lock is the process's", rules{broken: locksForTheProcess}, shrinks, 0},
		{"expiry frees every lock", rules{broken: freesByExpiry}, shrinks, 0},
		{"who steps aside leaves the cordon", rules{broken: leavesItCordoned}, givesUp, 0},
		{"a removal can always be called off", rules{broken: callsOffTooLate}, givesUp, 0},
		{"a reset instead of a leave", rules{broken: resetsInsteadOfLeaving}, shrinks, 0},
		{"nothing is written down", rules{broken: skipsRecording}, shrinks, 0},
		{"reboots go on while the count is even", rules{show: oneMoreThanThereIs, broken: rebootsWhenEven}, grows, 0},
		{"who does not answer has no data", rules{}, config{}, takesSilentForBlank},
		{"Bootstrap is sent before it is written down", rules{}, config{}, sendsBeforeRecording},
		{"it is not looked who Bootstrap was sent to", rules{}, config{}, forgetsItsRecord},
		{"it is not looked in which boot it was answered", rules{}, config{}, forgetsTheAnswer},
		{"the answer is written down before the call", rules{}, config{}, recordsBeforeSending},
	}
}

// hunt explores until something shows.
func (m mutant) hunt() Mutant {
	found := Mutant{Name: m.name}
	hunted := func() *finding { return explore(newChecker(m.in, m.rules)).found }
	if m.dawn != 0 {
		hunted = func() *finding { return explore(dawns{faults: 2, broken: m.dawn}).found }
	}
	if f := hunted(); f != nil {
		found.Rule, found.Story = f.rule, f.story
	}
	return found
}
