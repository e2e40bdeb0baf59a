package modelcheck

import (
	"math/bits"

	"github.com/maesh/provider-ichor/internal/decide/quorum"
)

// maxMachines is how many control planes a world can have: five and one that replaces another.
const maxMachines = 6

// maxGeneration is how many members one machine can have been, one after the other. A machine that was them all joins no
// more, which bounds the model.
const maxGeneration = 3

// Who answers at the address of a machine; beyond these, another machine of the cluster, see twin.
const (
	itself uint8 = iota
	stranger
	twins
)

// States of a configuration.
const (
	inSync uint8 = iota
	needsReboot
	staged
)

// What etcd tells of its alarms.
const (
	noAlarm uint8 = iota
	raised
	untold
)

// elsewhere is a call that nobody waits for any more: the process that made it has died.
const elsewhere = 3

// A machine is one control plane as it is, and not as anybody knows it: its object, its hardware, its members of etcd and
// its Node. Members are counted from 1; a set of them is a set of bits.
type machine struct {
	// The object.
	declared, approved, deleting, allowed, orphaned, policy, accepted, completed bool
	// byHand is true once a person took its member out of etcd.
	byHand bool
	// recorded is the member that the removal wrote down, plus one; zero is no record.
	recorded   uint8
	resetNoted bool
	// seen is the member that status says, or zero.
	seen   uint8
	config uint8

	// The hardware. One that is dead does not come back unless a fault brings it back.
	blank, up, heard, dead bool
	at                     uint8
	resetting              bool
	// leaving is who waits for a leave from etcd that was sent: a replica, elsewhere, or zero.
	leaving uint8

	// Its etcd: whether the service runs, which member its data is, which was the last, and which ones etcd lists.
	etcd            bool
	data, born      uint8
	voters, learner uint8

	// Its Node.
	node, ours, pods bool
}

// A lease is the lock. Sessions are those of replicas; zero is that of a process that died.
type lease struct {
	holder, session       uint8
	irreversible, expired bool
}

// A pass is what one replica is in the middle of: it has the lock, has looked, has decided, and has not acted yet.
type pass struct {
	// machine plus one; zero is no pass.
	machine uint8
	work    work
	step    step
	// marked is true between the mark in the lock and the call.
	marked bool
	// stale is true once so much time has passed since the look that the permit is too old.
	stale bool
	// reset is what a Record writes down; owner and member are whom a removal names.
	reset         bool
	owner, member uint8
	// up are the machines whose voters were up at the look, heard those that could be asked.
	up, heard uint8
}

// A world is a cluster and the replicas of the provider. It is a comparable value: two worlds that are equal have the same
// future.
type world struct {
	machines [maxMachines]machine
	passes   [2]pass
	lock     lease
	// leader is the machine whose member leads, plus one.
	leader uint8
	// lagger is the machine whose voter still lists a member that is gone, plus one; lagged says which.
	lagger, laggedOf, lagged uint8
	// leaveUp are the machines whose voters were up when the leave that is under way was decided.
	leaveUp  uint8
	declared uint8
	alarm    uint8
	teardown bool
	// tampered is true once a person took the lock away by hand: who does that answers for what it kept apart.
	tampered bool
	// What may still happen.
	faults, deletes, edits uint8
}

func bit(i uint8) uint8 { return 1 << i }

// isVoter tells whether the member that a machine runs now is a voter.
func (m *machine) isVoter() bool { return m.data != 0 && m.voters&bit(m.data) != 0 }

// isMember tells whether etcd lists the member that a machine runs now.
func (m *machine) isMember() bool { return m.data != 0 && (m.voters|m.learner)&bit(m.data) != 0 }

// runs tells whether the machine's etcd process is up, whether or not etcd wants it.
func (m *machine) runs() bool { return m.up && m.etcd && m.data != 0 && !m.resetting }

// present tells whether the machine counts as one of the cluster.
func (m *machine) present() bool { return m.declared && !m.completed }

// answers tells whether the machine itself can be asked.
func (m *machine) answers() bool { return m.up && m.heard && m.at == itself }

// gone tells whether the member that was written down is no member any more.
func (m *machine) gone() bool { return m.recorded > 1 && (m.voters|m.learner)&bit(m.recorded-1) == 0 }

// left tells whether we have taken the machine past the point of no return.
func (m *machine) left() bool {
	return m.leaving != 0 || m.resetting || (m.gone() && !m.byHand) || m.resetNoted
}

// upVoters is the set of machines whose voters are up.
func (w *world) upVoters() uint8 {
	var up uint8
	for i := range w.machines {
		if m := &w.machines[i]; m.runs() && m.isVoter() {
			up |= bit(uint8(i))
		}
	}
	return up
}

// heardVoters is the set of machines whose voters can be asked, at their own address or at that of another machine.
func (w *world) heardVoters() uint8 {
	var reached uint8
	for i := range w.machines {
		m := &w.machines[i]
		if k, twin := m.twin(); m.present() && twin {
			reached |= bit(uint8(k))
		} else if m.present() && m.at == itself {
			reached |= bit(uint8(i))
		}
	}
	for i := range w.machines {
		if !w.machines[i].heard {
			reached &^= bit(uint8(i))
		}
	}
	return reached & w.upVoters()
}

// voters is how many voters etcd lists.
func (w *world) voters() int {
	n := 0
	for i := range w.machines {
		n += bits.OnesCount8(w.machines[i].voters)
	}
	return n
}

func (w *world) learners() int {
	n := 0
	for i := range w.machines {
		n += bits.OnesCount8(w.machines[i].learner)
	}
	return n
}

// serves tells whether etcd has a quorum.
func (w *world) serves() bool { return quorum.Holds(bits.OnesCount8(w.upVoters()), w.voters()) }

// approved is how many approved control planes there are.
func (w *world) approved() int {
	n := 0
	for i := range w.machines {
		if m := &w.machines[i]; m.present() && m.approved {
			n++
		}
	}
	return n
}

// twin is the machine that answers at m's address instead of m.
func (m *machine) twin() (int, bool) { return int(m.at) - int(twins), m.at >= twins }

// elect keeps a leader if etcd serves. The new one is the first by rank, so that worlds that differ only in the order of
// their machines stay alike.
func (w *world) elect() {
	up := w.upVoters()
	switch {
	case !w.serves():
		w.leader = 0
	case w.leader == 0 || up&bit(w.leader-1) == 0:
		w.leader = w.candidate(up)
	}
}

func (w *world) candidate(up uint8) uint8 {
	var best uint8
	for i := range uint8(maxMachines) {
		if up&bit(i) != 0 && (best == 0 || w.rank(i) < w.rank(best-1)) {
			best = i + 1
		}
	}
	return best
}

// remove takes a member out of etcd.
func (w *world) remove(owner, member uint8) {
	m := &w.machines[owner]
	m.voters &^= bit(member)
	m.learner &^= bit(member)
}

// slow is for what takes longer than a permit lives: who looked before may not act after.
func (w *world) slow() {
	for r := range w.passes {
		if w.passes[r].machine != 0 {
			w.passes[r].stale = true
		}
	}
}

// calling tells whether a replica is right before a call. What takes minutes does not fit in between.
func (w *world) calling() bool { return w.passes[0].marked || w.passes[1].marked }
