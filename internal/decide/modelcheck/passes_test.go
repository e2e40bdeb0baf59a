package modelcheck

import (
	"slices"

	"github.com/maesh/provider-ichor/internal/decide/configchange"
	"github.com/maesh/provider-ichor/internal/decide/removal"
)

const (
	record         = step(removal.Record)
	cordon         = step(removal.Cordon)
	drain          = step(removal.Drain)
	moveLeadership = step(removal.MoveLeadership)
	leaveEtcd      = step(removal.LeaveEtcd)
	removeMember   = step(removal.RemoveMember)
	reset          = step(removal.Reset)
	deleteNode     = step(removal.DeleteNode)
	release        = step(removal.Release)

	stage              = changeStep + step(configchange.Stage)
	cordonForChange    = changeStep + step(configchange.Cordon)
	drainForChange     = changeStep + step(configchange.Drain)
	moveForChange      = changeStep + step(configchange.MoveLeadership)
	reboot             = changeStep + step(configchange.Reboot)
	uncordonAfterwards = changeStep + step(configchange.Uncordon)
)

// due tells whether a replica would begin a pass of this work for a machine, as the controller's Observe says.
func (w *world) due(r, i uint8, k work) bool {
	m := &w.machines[i]
	if !m.declared || m.leaving == r+1 {
		return false
	}
	switch k {
	case removing:
		return m.present() && m.approved && !m.orphaned && (m.deleting || w.teardown)
	case rebooting:
		unfinished := w.lock.holder == i+1 || (w.serves() && m.node && m.ours)
		return m.present() && m.approved && !m.deleting && !w.teardown && m.answers() && !m.blank && (m.config != inSync || unfinished)
	default:
		return (m.deleting || w.teardown && m.completed) && (m.orphaned || m.completed || !m.approved)
	}
}

// acquire takes the lock for machine i, or renews it. It is the lock's whole rule.
func (c *checker) acquire(w *world, r, i uint8) bool {
	l := &w.lock
	mine := l.holder == i+1 || (c.judge.rules.broken == locksForTheProcess && l.session == r+1)
	expired := l.expired || c.cfg.skewed
	switch {
	case l.holder == 0:
	case mine:
		l.holder, l.session, l.expired = i+1, r+1, false
		return true
	case expired && (!l.irreversible || !w.machines[l.holder-1].declared || c.judge.rules.broken == freesByExpiry):
	default:
		return false
	}
	*l = lease{holder: i + 1, session: r + 1}
	return true
}

// holds tells whether the lock is that of a pass now.
func (w *world) holds(r, i uint8) bool {
	return w.lock.holder == i+1 && w.lock.session == r+1 && !w.lock.expired
}

// look begins a pass: take the lock, survey, decide. What it decides is carried out by later moves, so that everything can
// happen in between.
func (c *checker) look(w world, r, i uint8, k work) {
	if k == callingOff {
		c.lookToLetGo(w, r, i)
		return
	}
	held := w.lock.holder == i+1
	n := w
	if k == rebooting && !held && w.approved()%2 == 0 && c.judge.rules.broken != rebootsWhenEven {
		// Parked before it takes the lock; if it cordoned before it lost that, it undoes so.
		if w.serves() && w.machines[i].ours {
			n.passes[r] = pass{machine: i + 1, work: k, step: stepAside}
			c.emit(n, action{verb: looks, replica: r, machine: i, step: stepAside, reason: "ClusterTransitioning"}, product, violation{})
		}
		return
	}
	if !c.acquire(&n, r, i) {
		return
	}
	if k == removing {
		n.see(i)
	}
	v := c.judge.ask(&n, i, k)
	for m := n; v.step == record && c.judge.rules.broken == skipsRecording; v = c.judge.ask(&m, i, k) {
		m.machines[i].recorded, m.machines[i].resetNoted = v.member+1, v.notesReset // It keeps it in mind.
	}
	p := pass{machine: i + 1, work: k, up: n.upVoters(), heard: n.heardVoters()}
	switch v.kind {
	case act:
		p.step, p.owner, p.member, p.reset = v.step, v.owner, v.member, v.notesReset
		c.acting = true
		if c.judge.rules.broken == resetsInsteadOfLeaving && v.step == leaveEtcd {
			p.step = reset
		}
	case done:
		p.step = unlock
		if k == removing {
			p.step = release
		}
	case wait, refuse:
		p.step = c.yields(&n, i, k, v, held)
	}
	if p.step != 0 {
		n.passes[r] = p
	}
	if n != w {
		c.emit(n, action{verb: looks, replica: r, machine: i, step: p.step, reason: v.reason}, product, n.checkLook(i, p))
	}
}

// see writes into the status which member the machine runs, if it is the machine itself that answers at its address.
func (w *world) see(i uint8) {
	live, _ := w.live(i).Get()
	if id, ok := live.Member.Get(); ok && live.UUID == uuids[i] {
		_, w.machines[i].seen = named(id)
	}
}

// yields is what the controller does with the lock in a wait or after a refusal.
func (c *checker) yields(w *world, i uint8, k work, v verdict, held bool) step {
	m := &w.machines[i]
	known := w.serves()
	ours := known && m.node && m.ours
	var s step
	switch {
	case v.forward:
	case k == removing && v.kind == wait:
		if disturbed := ours || (!known && m.recorded != 0 && !w.teardown); !disturbed {
			s = letGo
		}
	case k == removing:
		s = letGo
		if m.recorded != 0 || ours {
			s = stepAside
		}
	case v.kind == refuse && (ours || !known), v.parked:
		s = stepAside
	case v.kind == refuse, v.nodeUnknown && ((known && !ours) || (!known && !held)):
		s = letGo
	}
	if w.lock.irreversible {
		return 0 // Nothing is undone past the point of no return.
	}
	return s
}

// lookToLetGo is the finalizer's pass: the machine was removed, was never approved, or is given up.
func (c *checker) lookToLetGo(w world, r, i uint8) {
	m := &w.machines[i]
	n := w
	p := pass{machine: i + 1, work: callingOff, step: drop}
	held := w.lock.holder == i+1
	switch {
	case m.completed, !m.approved, m.accepted:
		if held {
			n.lock = lease{}
		}
	case m.recorded == 0 && !held && !m.ours:
	case c.judge.rules.broken == callsOffTooLate:
		p.step = stepAside
	case held && w.lock.irreversible, m.resetNoted, m.recorded != 0 && !w.serves(), c.judge.ask(&w, i, callingOff).kind == refuse:
		return // Too late, or the Kubernetes API does not answer; the text says so.
	case m.recorded == 0 && !m.ours:
		p.step = letGo
	default:
		p.step = stepAside
	}
	if held && p.step != drop {
		n.lock.session, n.lock.expired = r+1, false // Taken over, so that whoever is in the middle of a pass may do nothing more.
	}
	n.passes[r] = p
	c.acting = true
	c.emit(n, action{verb: looks, replica: r, machine: i, step: p.step}, product, violation{})
}

// goOn takes a pass one effect further.
func (c *checker) goOn(w world, r uint8) {
	p := w.passes[r]
	i := p.machine - 1
	did := action{verb: does, replica: r, machine: i, step: p.step}
	n := w
	n.passes[r] = pass{}
	switch p.step {
	case stepAside:
		if !w.serves() {
			c.emit(n, did.failing(), product, violation{})
			return
		}
		if c.judge.rules.broken != leavesItCordoned {
			n.machines[i].ours = false
		}
		p.step = letGo
		n.passes[r] = p
	case letGo:
		if w.lock.holder == i+1 && w.lock.irreversible && c.judge.rules.broken != callsOffTooLate {
			c.emit(n, did.failing(), product, violation{})
			return
		}
		n.unlock(i)
		if p.work == callingOff {
			p.step = drop
			n.passes[r] = p
		}
	case unlock:
		if w.lock.session == r+1 {
			n.unlock(i)
		}
	case drop:
		m := &n.machines[i]
		broken := w.checkDrop(i)
		m.declared, m.approved, m.deleting = false, false, false
		c.emit(n, did, product, broken)
		return
	default:
		c.carryOut(w, r)
		return
	}
	c.emit(n, did, product, violation{})
}

func (w *world) unlock(i uint8) {
	if w.lock.holder == i+1 {
		w.lock = lease{}
	}
}

// irreversible tells whether a step is marked in the lock before it is taken.
func (s step) irreversible() bool { return s == leaveEtcd || s == removeMember || s == reset }

// proves tells whether the machine must prove its UUID before a step.
func (s step) proves() bool {
	return slices.Contains([]step{moveLeadership, moveForChange, leaveEtcd, reset, stage, reboot}, s)
}

// carryOut is what act does: permit, proof, mark, lock read again, and then the one call.
func (c *checker) carryOut(w world, r uint8) {
	p, broken := w.passes[r], c.judge.rules.broken
	i := p.machine - 1
	m := &w.machines[i]
	did := action{verb: does, replica: r, machine: i, step: p.step}
	failed := w
	failed.passes[r] = pass{}

	if !p.marked {
		permitted := !p.stale || broken == trustsOldPermits
		proved := !p.step.proves() || (m.answers() && !m.blank) || (broken == forgetsToProve && w.target(i) >= 0)
		if !permitted || !proved {
			c.emit(failed, did.failing(), product, violation{})
			return
		}
		if p.step.irreversible() && broken != forgetsToMark {
			c.mark(w, r, i)
			return
		}
	}
	rereads := broken != forgetsToReread && (broken != retriesBlindly || !p.marked)
	if rereads && !w.holds(r, i) {
		c.emit(failed, did.failing(), product, violation{})
		return
	}
	c.call(w, r, p)
}

func (c *checker) mark(w world, r, i uint8) {
	did := action{verb: marks, replica: r, machine: i, step: w.passes[r].step}
	n := w
	if w.lock.holder != i+1 || w.lock.session != r+1 {
		n.passes[r] = pass{}
		did = did.failing()
	} else {
		n.lock.irreversible, n.lock.expired = true, false
		n.passes[r].marked = true
	}
	if c.judge.rules.broken == forgetsToReread { // It takes its mark for held.
		n.passes[r] = w.passes[r]
		n.passes[r].marked = true
	}
	c.emit(n, did, product, violation{})
}

// target is the machine that a call to the address of machine i reaches, or -1.
func (w *world) target(i uint8) int {
	m := &w.machines[i]
	k := int(i)
	if t, twin := m.twin(); twin {
		k = t
	} else if m.at == stranger {
		return -1
	}
	if t := &w.machines[k]; !t.up || !t.heard || t.blank {
		return -1
	}
	return k
}

// call gives one step its effect, and judges it.
func (c *checker) call(w world, r uint8, p pass) {
	i := p.machine - 1
	did := action{verb: does, replica: r, machine: i, step: p.step}
	broken := w.checkCall(r, p)
	n := w
	n.passes[r] = pass{}
	m := &n.machines[i]
	switch p.step {
	case record:
		m.recorded, m.resetNoted = p.member+1, p.reset
		n.lock.irreversible = n.lock.irreversible || (p.reset && c.judge.rules.broken != forgetsToMark)
	case release:
		m.completed = true
		n.passes[r] = pass{machine: i + 1, work: removing, step: unlock}
	case cordon, cordonForChange, drain, drainForChange, deleteNode, uncordonAfterwards:
		if w.serves() {
			n.onNode(i, p.step)
		}
	case moveLeadership, moveForChange:
		if next := w.candidate(w.upVoters() &^ bit(i)); next != 0 && w.leader == i+1 {
			n.leader = next
		}
	case stage:
		m.config = staged
	default:
		c.destroy(w, n, r, p, did, broken)
		return
	}
	c.emit(n, did, product, broken)
}

func (w *world) onNode(i uint8, s step) {
	m := &w.machines[i]
	switch s {
	case cordon, cordonForChange:
		m.ours = m.node
	case drain, drainForChange:
		m.pods = false
	case deleteNode:
		m.node, m.ours, m.pods = false, false, false
	default:
		m.ours = false
	}
}

// destroy is a call that cannot be taken back, or a reboot.
func (c *checker) destroy(w, n world, r uint8, p pass, did action, broken violation) {
	k := w.target(p.machine - 1)
	switch p.step {
	case removeMember:
		if w.serves() && w.upVoters()&^bit(p.machine-1) != 0 {
			n.remove(p.owner, p.member)
			c.lags(n, did, broken, p.owner, p.member)
		}
	case leaveEtcd:
		if k >= 0 {
			n.machines[k].leaving, n.leaveUp = r+1, p.up
		}
	case reset:
		if k >= 0 {
			n.machines[k].resetting = true
		}
	default:
		if k >= 0 {
			n.machines[k].up = false
		}
	}
	c.emit(n, did, product, broken)
	if c.judge.rules.broken == retriesBlindly && p.step.irreversible() {
		n.passes[r] = p // The answer was lost: it sends the same again.
		c.emit(n, did.failing(), product, broken)
	}
}

// lags is the same move, and one voter that does not know of it yet: for each one that there is.
func (c *checker) lags(n world, did action, broken violation, owner, member uint8) {
	if n.faults == 0 || n.lagger != 0 {
		return
	}
	for k := range uint8(maxMachines) {
		if m := &n.machines[k]; k != owner && m.runs() && m.isVoter() {
			late := n
			late.faults--
			late.lagger, late.laggedOf, late.lagged = k+1, owner, member
			did.late = true
			c.emit(late, did, fault, broken)
		}
	}
}
