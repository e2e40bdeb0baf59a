package modelcheck

import (
	"math/bits"

	"github.com/maesh/provider-ichor/internal/decide/quorum"
)

// checkCall judges a call of a pass before its effect, by what is true and not by what anybody knows.
func (w *world) checkCall(r uint8, p pass) violation {
	i := p.machine - 1
	if p.step != record && p.step != uncordonAfterwards && (w.lock.holder != i+1 || w.lock.session != r+1) {
		return violation{"I7", "a call without the lock"}
	}
	if p.step != record && p.step != release && p.step != deleteNode && p.step != uncordonAfterwards && p.step != stage && !w.teardown && !w.tampered && !w.machines[i].byHand {
		for k := range w.machines {
			o := &w.machines[k]
			givenUp := o.orphaned && o.accepted
			if k != int(i) && o.present() && !givenUp && ((o.node && o.ours) || o.left()) {
				return violation{"I3", "two control planes are past cordon"}
			}
		}
	}
	switch p.step {
	case record:
		if p.member != 0 && p.owner != i {
			return violation{"I1", "the member of another machine is written down"}
		}
	case removeMember:
		return w.checkRemoval(i, p)
	case reset:
		return w.checkReset(i, p)
	case reboot:
		return w.checkReboot(i, p)
	case release:
		return w.checkGone(i)
	default: // Nothing is lost by the others.
	}
	return violation{}
}

// checkLoss judges that a voter goes for good. A voter that was up when that was decided counts as up: what fails within
// the seconds between look and call is not our act.
func (w *world) checkLoss(owner, member, upAtLook uint8) violation {
	if w.teardown || !w.serves() || w.machines[owner].voters&bit(member) == 0 {
		return violation{}
	}
	after := *w
	after.remove(owner, member)
	up := bits.OnesCount8(after.upVoters() | upAtLook&^bit(owner))
	if !quorum.Holds(up, after.voters()) {
		return violation{"I1", "too few voters are left up"}
	}
	return violation{}
}

func (w *world) checkRemoval(i uint8, p pass) violation {
	m := &w.machines[p.owner]
	listed := (m.voters|m.learner)&bit(p.member) != 0
	if p.owner != i && listed {
		running := m.runs() && m.data == p.member
		givenUp := m.accepted || m.policy
		if !w.teardown || (running && !givenUp) {
			return violation{"I1", "the member of another machine is removed"}
		}
	}
	if p.owner == i && listed && m.recorded != p.member+1 {
		return violation{"4.4", "a member is removed that was not written down"}
	}
	return w.checkLoss(p.owner, p.member, p.up)
}

// checkReset judges a reset by what the machine that it reaches is to etcd.
func (w *world) checkReset(i uint8, p pass) violation {
	k := w.target(i)
	if k < 0 {
		return violation{}
	}
	if k != int(i) {
		return violation{"I2", "another machine is reset"}
	}
	m := &w.machines[i]
	if !m.resetNoted {
		return violation{"4.4", "a reset that was not written down"}
	}
	if w.teardown {
		return w.checkLastReset(i, p)
	}
	for v := range uint8(maxMachines) {
		if v == i || w.heardVoters()&p.heard&bit(v) == 0 {
			continue // Who did not answer at the look, and does now, could not be asked.
		}
		for _, e := range w.listOf(v) {
			if owner, _ := named(e.ID); owner == i {
				return violation{"I2", "a voter that answers lists a member of the machine that is reset"}
			}
		}
	}
	if m.isVoter() && p.up&bit(i) != 0 && w.serves() {
		return violation{"I2", "a voter is reset"}
	}
	return violation{}
}

// checkLastReset is for a teardown: a member is reset only if it is the last, or if etcd does not serve any more.
func (w *world) checkLastReset(i uint8, p pass) violation {
	others := w.upVoters() & p.heard &^ bit(i) // Who did not answer at the look, and does now, could not be asked.
	for k := range w.machines {
		if o := &w.machines[k]; others&bit(uint8(k)) != 0 && (!o.present() || !o.approved || !o.heard || o.at != itself) {
			others &^= bit(uint8(k)) // Nobody's, or nobody who answers.
		}
	}
	served := quorum.Holds(bits.OnesCount8(p.up), w.voters()) // At the look: what comes back right after it is not our act.
	if w.machines[i].isVoter() && w.serves() && served && others != 0 {
		return violation{"I2", "a voter is reset while others serve"}
	}
	return violation{}
}

func (w *world) checkReboot(i uint8, p pass) violation {
	k := w.target(i)
	if k < 0 || !w.serves() {
		return violation{}
	}
	if k != int(i) {
		return violation{"I1", "another machine is rebooted"}
	}
	up := (w.upVoters() | p.up) &^ bit(i)
	if !quorum.Holds(bits.OnesCount8(up), w.voters()) {
		return violation{"I1", "too few voters stay up during a reboot"}
	}
	return violation{}
}

// checkGone judges that a removal is said to be done: the machine is blank and no member, or a person accepted its disk.
func (w *world) checkGone(i uint8) violation {
	m := &w.machines[i]
	if !m.blank && !m.accepted {
		return violation{"I4", "removed and not wiped"}
	}
	if m.voters|m.learner != 0 && !w.teardown && w.serves() {
		return violation{"I4", "removed and still a member of etcd"}
	}
	return violation{}
}

// checkDrop judges that an object goes.
func (w *world) checkDrop(i uint8) violation {
	m := &w.machines[i]
	switch {
	case m.completed && !m.accepted && !m.blank:
		return violation{"I4", "the finalizer goes and the machine is not wiped"}
	case m.completed || m.accepted || !m.approved:
	case m.leaving != 0 || m.resetting || (m.gone() && !m.byHand):
		return violation{"I4", "called off past the point of no return"}
	case m.node && m.ours:
		return violation{"I6", "called off and still cordoned by us"}
	}
	return violation{}
}

// checkLook judges what is decided, by what is true at the look.
func (w *world) checkLook(i uint8, p pass) violation {
	if p.step == reboot && w.approved()%2 == 0 {
		return violation{"4.2", "a reboot while the number of control planes is even"}
	}
	if p.step == reboot && w.alarm != noAlarm {
		return violation{"4.3", "a reboot while etcd has an alarm, or may have"}
	}
	if w.teardown || p.work != removing || p.step == 0 || p.step > release {
		return violation{}
	}
	m := &w.machines[i]
	switch p.step {
	case cordon, drain:
		if m.gone() && m.data == 0 && w.lagger == 0 {
			return violation{"4.4", "a drain after the leave"}
		}
	case leaveEtcd, removeMember:
		return w.checkLeave(i, p)
	default: // Nothing more is asked of the others.
	}
	if !m.allowed && !m.left() {
		return violation{"4.1", "a removal that nobody allowed"}
	}
	return violation{}
}

// checkLeave judges the point of no return against what design.md 4.1, 4.3 and 4.4 ask for, one by one.
func (w *world) checkLeave(i uint8, p pass) violation {
	m := &w.machines[i]
	serving := m.runs() && m.isVoter() && m.data == p.member
	switch {
	case !m.allowed:
		return violation{"4.1", "a removal that nobody allowed"}
	case w.alarm != noAlarm:
		return violation{"4.3", "a member goes while etcd has an alarm, or may have"}
	case w.approved()-1 < int(w.declared), serving && w.voters()-1 < int(w.declared):
		return violation{"4.1", "fewer control planes than declared are left"}
	case w.serves() && m.node && (!m.ours || m.pods) && m.up && !m.blank:
		return violation{"4.4", "a leave before the drain"}
	case p.step == leaveEtcd && w.leader == i+1:
		return violation{"4.4", "the leader leaves"}
	}
	for k := range uint8(maxMachines) {
		o := &w.machines[k]
		if k == i {
			continue
		}
		switch {
		case o.learner != 0:
			return violation{"4.3", "a voter goes while another is a learner"}
		case o.voters != 0 && (!o.present() || !o.approved):
			return violation{"4.3", "a voter goes while nobody knows who another is"}
		case serving && o.voters != 0 && w.heardVoters()&bit(k) == 0:
			return violation{"4.3", "a healthy voter goes while another is not known to be healthy"}
		}
	}
	return violation{}
}
