package modelcheck

import (
	"cmp"
	"slices"
)

// rank orders machines by everything that is true of them, but for their place. Two machines of the same rank can be
// exchanged and nobody could tell.
func (w *world) rank(i uint8) uint64 {
	m := &w.machines[i]
	var p packer
	p.flags(m.declared, m.approved, m.deleting, m.allowed, m.orphaned, m.policy, m.accepted, m.completed, m.resetNoted,
		m.blank, m.up, m.heard, m.dead, m.resetting, m.etcd, m.node, m.ours, m.pods)
	p.put(m.recorded, 3)
	p.put(m.seen, 2)
	p.put(m.config, 2)
	p.put(min(m.at, twins), 2)
	p.put(m.leaving, 2)
	p.put(m.data, 2)
	p.put(m.born, 2)
	p.put(m.voters>>1, 3)
	p.put(m.learner>>1, 3)
	p.flags(m.byHand)
	isTwin := slices.ContainsFunc(w.machines[:], func(o machine) bool { k, ok := o.twin(); return ok && k == int(i) })
	p.flags(isTwin, w.leader == i+1, w.lock.holder == i+1, w.lagger == i+1, w.lagged != 0 && w.laggedOf == i,
		w.passes[0].machine == i+1, w.passes[1].machine == i+1, w.names(0, i), w.names(1, i),
		w.passes[0].up&bit(i) != 0, w.passes[1].up&bit(i) != 0, w.passes[0].heard&bit(i) != 0, w.passes[1].heard&bit(i) != 0, w.leaveUp&bit(i) != 0)
	return p.word
}

// names tells whether a pass of replica r names a member of machine i.
func (w *world) names(r int, i uint8) bool { return w.passes[r].member != 0 && w.passes[r].owner == i }

// A packer puts small values into one word.
type packer struct{ word uint64 }

func (p *packer) put(v uint8, width uint) { p.word = p.word<<width | uint64(v) }

func (p *packer) flags(flags ...bool) {
	for _, f := range flags {
		p.word <<= 1
		if f {
			p.word |= 1
		}
	}
}

// canon is the one of all worlds that differ only in the order of machines and in the names of the two replicas. It is
// sound because nothing in the product depends on either but the choice among machines of which the same is true
// (TestSymmetry holds the product against that).
func canon(w world) world {
	if a, b := w.passes[0].machine != 0, w.passes[1].machine != 0; !a && (b || w.lock.session == 2) {
		w = w.swapped()
	}
	var order [maxMachines]uint8
	var ranks [maxMachines]uint64
	for i := range uint8(maxMachines) {
		order[i], ranks[i] = i, w.rank(i)
	}
	slices.SortStableFunc(order[:], func(a, b uint8) int { return cmp.Compare(ranks[b], ranks[a]) })
	return w.permuted(order)
}

// swapped is the same world with the replicas' names exchanged.
func (w world) swapped() world {
	other := [4]uint8{0, 2, 1, elsewhere}
	w.passes[0], w.passes[1] = w.passes[1], w.passes[0]
	w.lock.session = other[w.lock.session]
	for i := range w.machines {
		w.machines[i].leaving = other[w.machines[i].leaving]
	}
	return w
}

// permuted is the same world with its machines in another order: at place i is the one that was at order[i].
func (w world) permuted(order [maxMachines]uint8) world {
	var place [maxMachines]uint8
	for i, o := range order {
		place[o] = uint8(i)
	}
	one := func(i uint8) uint8 { // Counted from one.
		if i == 0 {
			return 0
		}
		return place[i-1] + 1
	}
	set := func(s uint8) (t uint8) {
		for i := range uint8(maxMachines) {
			if s&bit(i) != 0 {
				t |= bit(place[i])
			}
		}
		return t
	}
	v := w
	for i, o := range order {
		m := w.machines[o]
		if k, ok := m.twin(); ok {
			m.at = twins + place[k]
		}
		v.machines[i] = m
	}
	for r := range v.passes {
		p := &v.passes[r]
		p.machine, p.up, p.heard = one(p.machine), set(p.up), set(p.heard)
		if p.member != 0 {
			p.owner = place[p.owner]
		}
	}
	v.lock.holder, v.leader, v.lagger, v.leaveUp = one(w.lock.holder), one(w.leader), one(w.lagger), set(w.leaveUp)
	if w.lagged != 0 {
		v.laggedOf = place[w.laggedOf]
	}
	return v
}
