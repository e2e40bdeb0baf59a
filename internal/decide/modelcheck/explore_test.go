package modelcheck

import (
	"fmt"
	"hash/maphash"
	"slices"
)

// A class says whose move it is.
type class uint8

const (
	product class = 1 + iota
	settle
	heal
	help
	fault
	ask
)

// progress tells whether a move counts once faults have stopped and nobody asks for more.
func (c class) progress() bool { return c <= help }

// A violation is an invariant of design.md 7, or a rule of another section, and how a move breaks it; empty if none.
type violation struct{ rule, how string }

// A move leads from one world to the next.
type move[S comparable] struct {
	to     S
	did    action
	class  class
	broken violation
}

// A system is what can be explored: where it begins, and what can happen next.
type system[S comparable] interface {
	begin() S
	// canon is the one world that stands for all that differ from s in nothing that matters.
	canon(s S) S
	// moves gives each move of a world to f. It tells whether the world is an end: nothing is under way or asked for.
	moves(s S, f func(move[S])) bool
	// why tells what everybody waits for in a world, one line each.
	why(s S) []string
}

// A finding is a broken rule and the shortest story that leads to it.
type finding struct {
	violation
	story []string
}

// A space is every world that a system can get into. Worlds are kept as hashes of 64 bits, whose seed is new in every run:
// that two of ten million are the same has a chance of one in a hundred thousand.
type space[S comparable] struct {
	system system[S]
	seed   maphash.Seed

	number map[uint64]uint32
	hashes []uint64
	parent []uint32
	// ends are the targets of progress moves; those of world n are ends[from[n]:from[n+1]].
	ends, from []uint32
	isEnd      []bool

	transitions int
	found       *finding
}

// explore visits every world that can be reached, the nearest first, and stops at the first broken rule.
func explore[S comparable](s system[S]) *space[S] {
	x := &space[S]{system: s, seed: maphash.MakeSeed(), number: map[uint64]uint32{}}
	frontier := []S{s.canon(s.begin())}
	x.add(frontier[0], 0)
	for len(frontier) > 0 {
		var next []S
		for _, w := range frontier {
			if next = x.visit(w, next); x.found != nil {
				return x
			}
		}
		frontier = next
	}
	x.from = append(x.from, uint32(len(x.ends)))
	x.progress()
	return x
}

// visit makes every move of a world. Worlds are visited in the order of their numbers.
func (x *space[S]) visit(w S, next []S) []S {
	self := uint32(len(x.from))
	x.from = append(x.from, uint32(len(x.ends)))
	x.isEnd[self] = x.system.moves(w, func(m move[S]) {
		x.transitions++
		if m.broken.rule != "" {
			x.find(self, m)
			return
		}
		to := x.system.canon(m.to)
		n, fresh := x.add(to, self)
		if fresh {
			next = append(next, to)
		}
		if m.class.progress() {
			x.ends = append(x.ends, n)
		}
	})
	return next
}

func (x *space[S]) add(w S, parent uint32) (uint32, bool) {
	h := maphash.Comparable(x.seed, w)
	if n, ok := x.number[h]; ok {
		return n, false
	}
	n := uint32(len(x.hashes))
	x.number[h] = n
	x.hashes, x.parent, x.isEnd = append(x.hashes, h), append(x.parent, parent), append(x.isEnd, false)
	return n, true
}

func (x *space[S]) find(at uint32, broken move[S]) {
	if x.found != nil {
		return
	}
	x.found = &finding{violation: broken.broken} // From here on nothing is looked for any more.
	story, w := x.story(at)
	last := broken.did
	x.system.moves(w, func(m move[S]) {
		if m.broken == broken.broken && m.did.verb == broken.did.verb && m.did.step == broken.did.step {
			last = m.did // Under the name that its machine has in this story.
		}
	})
	x.found.story = append(story, last.String())
}

// story tells how a world is reached, with every machine keeping its name, and returns that world.
func (x *space[S]) story(at uint32) ([]string, S) {
	var path []uint32
	for n := at; n != 0; n = x.parent[n] {
		path = append(path, n)
	}
	w := x.system.canon(x.system.begin())
	var lines []string
	for _, n := range slices.Backward(path) {
		var taken *move[S]
		x.system.moves(w, func(m move[S]) {
			if taken == nil && maphash.Comparable(x.seed, x.system.canon(m.to)) == x.hashes[n] {
				taken = &m
			}
		})
		if taken == nil {
			return append(lines, "the rest cannot be told: worlds that were taken to be alike are not"), w
		}
		w = taken.to
		lines = append(lines, taken.did.String())
	}
	return lines, w
}

// progress holds that from every world an end can be reached by moves that are nobody's fault: backwards from the ends.
func (x *space[S]) progress() {
	ends, from := x.reversed()
	reached := slices.Clone(x.isEnd)
	var todo []uint32
	for n, is := range reached {
		if is {
			todo = append(todo, uint32(n))
		}
	}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, p := range ends[from[n]:from[n+1]] {
			if !reached[p] {
				reached[p] = true
				todo = append(todo, p)
			}
		}
	}
	if n := slices.Index(reached, false); n >= 0 {
		story, w := x.story(uint32(n))
		x.found = &finding{violation: violation{"progress", "no way leads to an end"}, story: append(story, x.system.why(w)...)}
	}
}

// reversed are the progress moves backwards, in the same form.
func (x *space[S]) reversed() (ends, from []uint32) {
	ends, from = make([]uint32, len(x.ends)), make([]uint32, len(x.hashes)+1)
	for _, e := range x.ends {
		from[e+1]++
	}
	for n := range x.hashes {
		from[n+1] += from[n]
	}
	at := slices.Clone(from)
	for n := range x.hashes {
		for _, e := range x.ends[x.from[n]:x.from[n+1]] {
			ends[at[e]] = uint32(n)
			at[e]++
		}
	}
	return ends, from
}

// String is a finding as a story.
func (f *finding) String() string {
	s := fmt.Sprintf("%s: %s", f.rule, f.how)
	for i, line := range f.story {
		s += fmt.Sprintf("\n  %2d. %s", i+1, line)
	}
	return s
}
