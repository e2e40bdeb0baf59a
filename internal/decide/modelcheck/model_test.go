package modelcheck

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	depth = flag.String("model.depth", "short", `how much is explored: "short", under a minute, or "full", some minutes and 4 GiB`)
	out   = flag.String("model.out", "", "file to write the result to, as JSON; none if empty")
)

// rulesChecked are what every move is held against.
var rulesChecked = []string{"I1", "I2", "I3", "I4", "I5", "I6", "I7", "I9", "I12", "2", "4.1", "4.2", "4.3", "4.4", "progress"}

// short are explored in every test run: one fault at any moment of everything that a cluster is asked for.
var short = []config{
	{name: "1, anything asked", voters: 1, declared: 1, replicas: 2, faults: 1, deletes: 1, edits: 1, deaths: true, callsOff: true, changes: true, teardowns: true, unasked: true},
	{name: "2, one dies", voters: 2, declared: 1, replicas: 1, faults: 1, deletes: 2, deaths: true},
	{name: "3, two faults", voters: 3, declared: 1, replicas: 1, faults: 2, deletes: 1, deaths: true},
	{name: "3, two deleted", voters: 3, declared: 1, replicas: 1, faults: 1, deletes: 2},
	{name: "3, two replicas, clocks that are wrong", voters: 3, declared: 1, replicas: 2, deletes: 2, skewed: true},
	{name: "3, anything asked", voters: 3, declared: 1, replicas: 1, deletes: 1, edits: 1, callsOff: true, changes: true, counts: true, teardowns: true, unasked: true},
	{name: "3, addresses given away", voters: 3, declared: 1, replicas: 1, faults: 2, deletes: 1, swaps: true},
	{name: "3, disks wiped by hand", voters: 3, declared: 1, replicas: 1, faults: 2, deletes: 1, wipes: true},
	{name: "3, lock deleted by hand", voters: 3, declared: 1, replicas: 1, faults: 1, deletes: 2, tampers: true},
	{name: "3, alarms of etcd", voters: 3, declared: 1, replicas: 1, faults: 1, deletes: 1, edits: 1, changes: true, alarms: true},
	{name: "3 and 1 that replaces", voters: 3, spares: 1, declared: 3, replicas: 1, faults: 1, deletes: 1, edits: 1},
	{name: "4, one fault", voters: 4, declared: 3, replicas: 1, faults: 1, deletes: 2},
	{name: "5, one fault", voters: 5, declared: 3, replicas: 1, faults: 1, deletes: 2},
}

// full are explored before a release: more of everything at once.
var full = []config{
	{name: "1, two faults, anything asked", voters: 1, declared: 1, replicas: 2, faults: 2, deletes: 1, edits: 2, deaths: true, wipes: true, callsOff: true, changes: true, teardowns: true, unasked: true},
	{name: "2, two faults, two replicas", voters: 2, declared: 1, replicas: 2, faults: 2, deletes: 1, deaths: true},
	{name: "3, three faults", voters: 3, declared: 1, replicas: 1, faults: 3, deletes: 1, deaths: true},
	{name: "3, two deleted, two die", voters: 3, declared: 1, replicas: 1, faults: 2, deletes: 2, deaths: true},
	{name: "3, two deleted, two replicas", voters: 3, declared: 1, replicas: 2, faults: 1, deletes: 2},
	{name: "3, two replicas, clocks that are wrong", voters: 3, declared: 1, replicas: 2, faults: 1, deletes: 1, edits: 1, changes: true, skewed: true},
	{name: "3, one fault, anything asked", voters: 3, declared: 1, replicas: 1, faults: 1, deletes: 1, edits: 1, callsOff: true, changes: true, counts: true, teardowns: true, unasked: true},
	{name: "3, two deleted, anything asked", voters: 3, declared: 1, replicas: 1, deletes: 2, edits: 1, callsOff: true, changes: true, counts: true, teardowns: true, unasked: true},
	{name: "3, anything asked twice", voters: 3, declared: 3, replicas: 1, deletes: 2, edits: 2, callsOff: true, changes: true, counts: true, teardowns: true},
	{name: "3, addresses given away, two deleted", voters: 3, declared: 1, replicas: 1, faults: 2, deletes: 2, swaps: true},
	{name: "3, addresses given away, machines die", voters: 3, declared: 1, replicas: 1, faults: 3, deletes: 1, swaps: true, deaths: true},
	{name: "3, three faults, disks wiped by hand", voters: 3, declared: 1, replicas: 1, faults: 3, deletes: 1, wipes: true, deaths: true},
	{name: "3, lock deleted by hand", voters: 3, declared: 1, replicas: 2, faults: 1, deletes: 2, tampers: true},
	{name: "3, alarms of etcd, two faults", voters: 3, declared: 1, replicas: 1, faults: 2, deletes: 1, edits: 1, changes: true, alarms: true},
	{name: "3 and 1 that replaces, two deleted", voters: 3, spares: 1, declared: 3, replicas: 1, faults: 1, deletes: 2, edits: 1, changes: true},
	{name: "3 and 1 that replaces, two faults", voters: 3, spares: 1, declared: 3, replicas: 1, faults: 2, deletes: 1, edits: 1},
	{name: "4, two faults, anything asked", voters: 4, declared: 3, replicas: 1, faults: 2, deletes: 1, edits: 1, callsOff: true, counts: true, deaths: true},
	{name: "5, three faults", voters: 5, declared: 3, replicas: 1, faults: 3, deletes: 1, deaths: true},
	{name: "5, two deleted, two faults", voters: 5, declared: 3, replicas: 1, faults: 2, deletes: 2, deaths: true},
	{name: "5, one that reboots, two faults", voters: 5, declared: 3, replicas: 1, faults: 2, deletes: 1, edits: 1, changes: true},
	{name: "5 and 1 that replaces", voters: 5, spares: 1, declared: 5, replicas: 1, faults: 1, deletes: 1, edits: 1},
}

// TestModel explores every config with the rules as the product keeps them, and every rule broken. All of it is printed.
func TestModel(t *testing.T) {
	configs, dawnFaults := short, uint8(2)
	switch *depth {
	case "short":
	case "full":
		configs, dawnFaults = full, 3
	default:
		t.Fatalf("-model.depth is %q; it may be short or full", *depth)
	}
	r := Result{Rules: rulesChecked}
	for _, c := range configs {
		r.Rows = append(r.Rows, explored(t, c.name, newChecker(c, rules{})))
	}
	r.Rows = append(r.Rows, explored(t, "3 that wait for their etcd", dawns{faults: dawnFaults}))
	for _, m := range mutants() {
		r.Mutants = append(r.Mutants, m.hunt())
	}
	for _, m := range r.Mutants {
		t.Logf("%s: %s\n\t%s", m.Name, m.Rule, strings.Join(m.Story, "\n\t"))
		if m.Rule == "" {
			t.Errorf("mutant %q was not found", m.Name)
		}
	}
	t.Logf("\n%s", r.Table())
	if err := write(r); err != nil {
		t.Fatal(err)
	}
}

// explored is one row, and fails the test with a story if a rule is broken.
func explored[S comparable](t *testing.T, name string, s system[S]) Row {
	t.Helper()
	begun := time.Now()
	x := explore(s)
	row := Row{Config: name, States: len(x.hashes), Transitions: x.transitions, Seconds: time.Since(begun).Seconds()}
	if c, ok := s.(any).(*checker); ok {
		row.Questions = len(c.judge.known)
	}
	if x.found != nil {
		row.Violation = x.found.rule
		t.Errorf("%s: %s", name, x.found)
	}
	return row
}

func write(r Result) error {
	if *out == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot encode the result: %w", err)
	}
	return os.WriteFile(*out, text, 0o600)
}

// TestSymmetry holds canon against what it says: a world and one that differs from it in the order of machines only have the
// same moves, up to that order. It asks that of every world of some configs, in which most things happen.
func TestSymmetry(t *testing.T) {
	asked := 0
	for _, cfg := range []config{
		{voters: 3, declared: 1, replicas: 2, faults: 1, deletes: 1, edits: 1, changes: true, teardowns: true},
		{voters: 3, declared: 1, replicas: 1, faults: 1, deletes: 1, swaps: true, wipes: true},
		{voters: 3, spares: 1, declared: 3, replicas: 1, deletes: 1, edits: 1},
	} {
		c := newChecker(cfg, rules{})
		seen := map[world]bool{}
		todo := []world{canon(c.begin())}
		for len(todo) > 0 && len(seen) < 3000 {
			w := todo[0]
			todo = todo[1:]
			if seen[w] {
				continue
			}
			seen[w] = true
			want := c.next(w)
			todo = slices.AppendSeq(todo, maps.Keys(want))
			for _, order := range [][maxMachines]uint8{{1, 0, 2, 3, 4, 5}, {2, 1, 0, 3, 4, 5}, {1, 2, 0, 3, 4, 5}} {
				asked++
				if got := c.next(w.permuted(order)); !maps.Equal(got, want) {
					t.Fatalf("in order %v, %d worlds follow and %d in the first order, or others, from %s", order, len(got), len(want), w)
				}
			}
		}
	}
	t.Logf("asked of %d worlds in another order", asked)
}

// next are the worlds that follow on a world.
func (c *checker) next(w world) map[world]bool {
	all := map[world]bool{}
	c.moves(w, func(m move[world]) { all[canon(m.to)] = true })
	return all
}
