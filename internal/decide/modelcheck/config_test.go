package modelcheck

import "fmt"

// A config is one small cluster to be explored whole.
type config struct {
	name string
	// voters are control planes of a cluster that works; spares are declared besides, blank and not approved.
	voters, spares, declared, replicas uint8
	// How often what may happen: faults, deletions, and other requests.
	faults, deletes, edits uint8
	// Which faults and requests, besides those that are always possible.
	deaths, swaps, wipes, tampers, alarms bool
	// skewed lets every clock that judges whether the lock has expired be wrong by any amount.
	skewed                                        bool
	unasked, changes, callsOff, counts, teardowns bool
}

func (c config) size() uint8 { return c.voters + c.spares }

// A checker moves the worlds of one config under some rules.
type checker struct {
	cfg   config
	judge *judge

	// What the world that is looked at now does: its moves are given to each.
	each    func(move[world])
	acting  bool // The product has something to do.
	quiet   bool // Nothing happens by itself.
	excused bool // It says that only a restore helps.
}

func newChecker(cfg config, r rules) *checker { return &checker{cfg: cfg, judge: newJudge(r)} }

// begin is a cluster that works and of which nothing is asked.
func (c *checker) begin() world {
	w := world{declared: c.cfg.declared, faults: c.cfg.faults, deletes: c.cfg.deletes, edits: c.cfg.edits, leader: 1}
	for i := range uint8(maxMachines) {
		m := &w.machines[i]
		switch {
		case i < c.cfg.voters:
			*m = machine{declared: true, approved: true, up: true, heard: true, etcd: true, data: 1, born: 1, seen: 1, voters: bit(1), node: true, pods: true}
		case i < c.cfg.size():
			*m = machine{declared: true, up: true, heard: true, blank: true}
		default:
			m.dead = true
		}
	}
	return w
}

func (c *checker) canon(w world) world { return canon(w) }

// moves are all moves of a world: what the product does, what settles by itself, what is repaired, what a person does who
// was told to, and, within the budgets, faults and requests.
func (c *checker) moves(w world, f func(move[world])) bool {
	c.each, c.acting, c.quiet, c.excused = f, false, true, false
	for r := range c.cfg.replicas {
		c.replica(w, r)
	}
	c.settle(w)
	c.heal(w)
	if c.quiet && !c.acting {
		c.help(w)
	}
	if w.faults > 0 {
		c.fail(w)
	}
	c.request(w)
	// A person who took the lock away by hand answers for what it kept apart.
	return c.excused || w.tampered || w.over()
}

func (c *checker) emit(to world, did action, k class, broken violation) {
	if (k == settle && did.verb != expires) || k == heal {
		c.quiet = false
	}
	if to.leader == 0 || to.upVoters()&bit(to.leader-1) == 0 || !to.serves() {
		to.elect()
	}
	if broken.rule == "" {
		broken = c.judge.wrong
	}
	c.each(move[world]{to: to, did: did, class: k, broken: broken})
}

func (c *checker) why(w world) []string {
	var lines []string
	for i := range c.cfg.size() {
		for _, k := range []work{removing, rebooting} {
			if w.due(0, i, k) {
				v := c.judge.ask(&w, i, k)
				lines = append(lines, fmt.Sprintf("(cp-%d is told: %s%s)", i+1, v.reason, map[bool]string{true: v.step.String()}[v.kind == act]))
			}
		}
	}
	return append(lines, w.String())
}
