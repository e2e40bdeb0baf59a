package modelcheck

import "slices"

// replica is what one replica of the provider does next: look, go on with its pass, or be killed.
func (c *checker) replica(w world, r uint8) {
	p := w.passes[r]
	if p.machine != 0 {
		c.quiet = false
		c.goOn(w, r)
	} else {
		for i := range c.cfg.size() {
			for _, k := range []work{removing, rebooting, callingOff} {
				if w.due(r, i, k) {
					c.look(w, r, i, k)
				}
			}
		}
	}
	n := w
	n.passes[r] = pass{}
	if n.lock.session == r+1 {
		n.lock.session = 0
	}
	for i := range n.machines {
		if n.machines[i].leaving == r+1 {
			n.machines[i].leaving = elsewhere
		}
	}
	if n != w {
		c.emit(n, action{verb: crashes, replica: r}, fault, violation{})
	}
}

// settle is what happens by itself.
func (c *checker) settle(w world) {
	for i := range c.cfg.size() {
		c.settleMachine(w, i)
	}
	if w.lagger != 0 {
		n := w
		n.lagger, n.laggedOf, n.lagged = 0, 0, 0
		c.emit(n, action{verb: catchesUp, machine: w.lagger - 1}, settle, violation{})
	}
	if w.lock.holder != 0 && !w.lock.expired {
		n := w
		n.lock.expired = true
		n.slow()
		why := settle
		if w.busy(w.lock.holder) {
			why = fault // It takes a process that is paused.
		}
		c.emit(n, action{verb: expires}, why, violation{})
	}
}

// busy tells whether anybody renews the lock for a machine.
func (w *world) busy(holder uint8) bool {
	l := w.machines[holder-1].leaving
	return w.passes[0].machine == holder || w.passes[1].machine == holder || l == 1 || l == 2
}

func (c *checker) settleMachine(w world, i uint8) {
	m := w.machines[i]
	n := w
	t := &n.machines[i]
	did := action{machine: i}
	switch {
	case m.leaving != 0:
		t.leaving = 0
		if did.verb = leaveEnds; m.runs() && m.isVoter() && w.serves() {
			did.verb = leaves
			broken := w.checkLoss(i, m.data, w.leaveUp)
			n.remove(i, m.data)
			t.data, t.etcd = 0, false
			if !n.isLeaving() {
				n.leaveUp = 0
			}
			c.lags(n, did, broken, i, m.data)
			c.emit(n, did, settle, broken)
			return
		}
	case w.calling() || !m.up: // What follows takes longer than a call.
		return
	case m.resetting:
		did.verb = isWiped
		t.resetting, t.blank, t.etcd, t.data, t.config = false, true, false, 0, inSync
	case m.blank && w.configurable(i):
		did.verb = isConfigured
		t.blank, t.etcd, t.node, t.pods = false, true, true, true
	case m.etcd && m.data == 0 && m.born < maxGeneration && w.serves() && w.learners() == 0:
		did.verb = joins
		// Talos takes out what has the same name, on its own.
		t.born++
		t.data, t.voters, t.learner = t.born, 0, bit(t.born)
	case m.runs() && m.learner&bit(m.data) != 0 && w.serves():
		did.verb = isPromoted
		t.voters, t.learner = t.voters|bit(m.data), t.learner&^bit(m.data)
		n.leaveUp |= bit(i) // It is up now; if it fails before a leave is done, that is not the leave's fault.
		if m.declared && m.answers() {
			t.seen = m.data
		}
	default:
		return
	}
	if did.verb != leaveEnds {
		n.slow()
	}
	if !n.isLeaving() {
		n.leaveUp = 0
	}
	c.emit(n, did, settle, violation{})
}

// isLeaving tells whether a leave is under way anywhere.
func (w *world) isLeaving() bool {
	return slices.ContainsFunc(w.machines[:], func(m machine) bool { return m.leaving != 0 })
}

// configurable tells whether the controller's Create gives a blank machine its configuration.
func (w *world) configurable(i uint8) bool {
	m := &w.machines[i]
	ghost := m.seen != 0 && (m.voters|m.learner)&bit(m.seen) != 0
	return m.present() && m.approved && !m.deleting && !w.teardown && m.answers() && !ghost
}

// heal is what is repaired without anybody's decision.
func (c *checker) heal(w world) {
	if w.calling() {
		return
	}
	for i := range c.cfg.size() {
		m := w.machines[i]
		n := w
		t := &n.machines[i]
		did := action{machine: i}
		switch {
		case m.dead:
			continue
		case !m.up:
			did.verb = boots
			t.up, t.etcd = true, !m.blank
			if m.config == staged {
				t.config = inSync
			}
			n.slow()
		case m.data != 0 && !m.etcd && !m.resetting:
			did.verb, t.etcd = etcdStarts, true
		case !m.heard:
			did.verb, t.heard = isHeard, true
		case m.at != itself:
			did.verb, t.at = getsItsAddress, itself
		default:
			continue
		}
		c.emit(n, did, heal, violation{})
	}
	if n := w; w.alarm == untold {
		n.alarm = noAlarm
		c.emit(n, action{verb: tellsAlarms}, heal, violation{})
	}
}

// fail is what goes wrong, each at the price of one fault.
func (c *checker) fail(w world) {
	for i := range c.cfg.size() {
		m := w.machines[i]
		if m.born == 0 && m.blank && !m.approved {
			continue // Nobody cares yet.
		}
		c.failing(w, i, m.up && !m.dead, goesDown, func(t *machine) { t.up, t.resetting = false, false })
		c.failing(w, i, !m.dead && c.cfg.deaths, dies, func(t *machine) { t.up, t.dead, t.resetting = false, true, false })
		c.failing(w, i, m.dead, comesBack, func(t *machine) { t.dead = false })
		c.failing(w, i, m.runs(), etcdStops, func(t *machine) { t.etcd = false })
		c.failing(w, i, m.up && m.heard, isUnheard, func(t *machine) { t.heard = false })
		c.failing(w, i, m.seen != 0, losesStatus, func(t *machine) { t.seen = 0 })
		c.failing(w, i, m.leaving != 0, leaveFails, func(t *machine) { t.leaving = 0 })
		c.failing(w, i, m.resetting, isLocked, func(t *machine) { t.resetting = false })
		c.failing(w, i, m.resetting && !w.calling(), rebootsUnwiped, func(t *machine) { t.resetting, t.etcd = false, true })
		c.failing(w, i, !m.blank && !w.calling() && c.cfg.wipes, isWipedByHand, func(t *machine) { t.blank, t.etcd, t.data, t.resetting = true, false, 0, false })
		if w.calling() || m.at != itself || !c.cfg.swaps {
			continue
		}
		c.failing(w, i, true, losesAddress, func(t *machine) { t.at = stranger })
		for k := range c.cfg.size() {
			c.failing(w, i, k != i && w.machines[k].at == itself && w.machines[k].born > 0, givesAddress, func(t *machine) { t.at = twins + k })
		}
	}
	if n := w; w.alarm == noAlarm && c.cfg.alarms {
		n.faults--
		n.alarm = raised
		c.emit(n, action{verb: raisesAlarm}, fault, violation{})
		n.alarm = untold
		c.emit(n, action{verb: hidesAlarms}, fault, violation{})
	}
	if n := w; w.lock.holder != 0 && c.cfg.tampers {
		n.lock, n.tampered = lease{}, true
		n.faults--
		c.emit(n, action{verb: deletesLease}, fault, violation{})
	}
}

func (c *checker) failing(w world, i uint8, can bool, v verb, how func(*machine)) {
	if !can {
		return
	}
	n := w
	n.faults--
	how(&n.machines[i])
	if v == rebootsUnwiped || v == isWipedByHand {
		n.slow()
	}
	c.emit(n, action{verb: v, machine: i}, fault, violation{})
}

// request is what people and GitOps ask for.
func (c *checker) request(w world) {
	for i := range c.cfg.size() {
		m := w.machines[i]
		if !m.present() {
			continue
		}
		if w.deletes > 0 && !m.deleting && m.approved {
			n := w
			n.deletes--
			n.machines[i].deleting, n.machines[i].allowed = true, true
			c.emit(n, action{verb: isDeleted, machine: i}, ask, violation{})
			if c.cfg.unasked {
				n.machines[i].allowed = false
				c.emit(n, action{verb: isPruned, machine: i}, ask, violation{})
			}
		}
		c.asking(w, i, m.approved && !m.deleting && m.config == inSync && !m.blank && c.cfg.changes, isChanged, func(t *machine) { t.config = needsReboot })
		c.asking(w, i, !m.approved && !m.deleting, isApproved, func(t *machine) { t.approved = true })
		c.asking(w, i, m.deleting && !m.orphaned && c.cfg.callsOff, isGivenUp, func(t *machine) { t.orphaned = true })
	}
	for _, d := range []uint8{1, 3, 5} {
		if n := w; w.edits > 0 && d != w.declared && c.cfg.counts {
			n.edits--
			n.declared = d
			c.emit(n, action{verb: setsCount, machine: d}, ask, violation{})
		}
	}
	if n := w; w.edits > 0 && !w.teardown && c.cfg.teardowns {
		n.edits--
		n.teardown = true
		c.emit(n, action{verb: takesDown}, ask, violation{})
	}
}

func (c *checker) asking(w world, i uint8, can bool, v verb, how func(*machine)) {
	if !can || w.edits == 0 {
		return
	}
	n := w
	n.edits--
	how(&n.machines[i])
	c.emit(n, action{verb: v, machine: i}, ask, violation{})
}
