package modelcheck

// help is what a person does who reads why nothing moves any more, and does what the text says and nothing else. It is
// asked for only where nothing moves by itself, so a world that needs it and has no text that helps is a dead end.
func (c *checker) help(w world) {
	for i := range c.cfg.size() {
		m := w.machines[i]
		if !m.present() || !m.approved || (!m.deleting && !w.teardown) {
			continue
		}
		if m.orphaned {
			// The finalizer's refusal names both.
			c.helps(w, i, true, putsDeleteBack, func(t *machine) { t.orphaned = false })
			c.helps(w, i, !m.accepted, accepts, func(t *machine) { t.accepted = true })
			continue
		}
		v := c.judge.ask(&w, i, removing)
		if v.kind != wait && v.kind != refuse {
			continue
		}
		if v.ways&wayRestore != 0 {
			c.excused = true // A restore is a person's decision that this model does not play.
		}
		c.helpMachine(w, i, v.ways)
		c.helpCluster(w, i, v.ways)
	}
}

func (c *checker) helpMachine(w world, i uint8, named ways) {
	m := w.machines[i]
	c.helps(w, i, named&wayAllow != 0 && !m.allowed, allows, func(t *machine) { t.allowed = true })
	c.helps(w, i, named&wayPolicy != 0 && !m.policy, setsPolicy, func(t *machine) { t.policy = true })
	c.helps(w, i, named&wayAccept != 0 && !m.accepted, accepts, func(t *machine) { t.accepted = true })
	c.helps(w, i, named&wayOrphan != 0, isGivenUp, func(t *machine) { t.orphaned = true })
}

func (c *checker) helpCluster(w world, i uint8, named ways) {
	for k := range c.cfg.size() {
		m := w.machines[k]
		c.helps(w, k, named&wayApprove != 0 && m.present() && !m.approved && m.blank, isApproved, func(t *machine) { t.approved = true })
		for g := uint8(1); g <= m.born; g++ {
			gone := !m.runs() || m.data != g || !m.declared
			if named&wayRemoveMember == 0 || !gone || (m.voters|m.learner)&bit(g) == 0 || !w.serves() {
				continue
			}
			n := w
			n.remove(k, g)
			n.machines[k].byHand = true
			c.emit(n, action{verb: removesByHand, machine: k}, help, violation{})
		}
		c.helps(w, k, named&wayUncordon != 0 && k != i && m.ours, uncordons, func(t *machine) { t.ours = false })
		c.helps(w, k, named&wayRemoveMachine != 0 && m.present() && !m.deleting && m.learner != 0, isDeleted, func(t *machine) { t.deleting, t.allowed = true, true })
		again := named&wayDeclare != 0 && !m.declared && m.isMember() && w.lock.holder != k+1 && w.passes == [2]pass{}
		c.helps(w, k, again, isDeclared, func(t *machine) {
			*t = machine{
				declared: true, approved: true, seen: m.data, up: m.up, heard: m.heard, dead: m.dead, at: m.at, etcd: m.etcd, data: m.data,
				born: m.born, voters: m.voters, learner: m.learner, node: m.node, pods: m.pods,
			}
		})
	}
	if n := w; named&wayDisarm != 0 && w.alarm == raised {
		n.alarm = noAlarm
		c.emit(n, action{verb: disarms}, help, violation{})
	}
	if n := w; named&wayCount != 0 && w.declared > 1 {
		n.declared -= 2
		c.emit(n, action{verb: setsCount, machine: n.declared}, help, violation{})
	}
	if n := w; named&wayTeardown != 0 && !w.teardown {
		n.teardown = true
		c.emit(n, action{verb: takesDown}, help, violation{})
	}
}

func (c *checker) helps(w world, i uint8, can bool, v verb, how func(*machine)) {
	if !can {
		return
	}
	n := w
	how(&n.machines[i])
	c.emit(n, action{verb: v, machine: i}, help, violation{})
}

// over tells whether nothing is under way and nothing is asked for any more.
func (w *world) over() bool {
	forTheTaking := w.lock.holder == 0 || (w.lock.expired && !w.lock.irreversible)
	if w.passes != [2]pass{} || !forTheTaking {
		return false
	}
	for i := range w.machines {
		m := &w.machines[i]
		asked := m.deleting || (w.teardown && m.declared && m.approved && !m.orphaned)
		if (m.declared && asked) || m.leaving != 0 || m.resetting || (m.declared && !m.dead && m.node && m.ours && w.serves()) {
			return false
		}
	}
	return true
}
