package soak

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestPlanReplays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		short, long := NewPlan(seed, 5*time.Minute), NewPlan(seed, 10*time.Minute)
		if diff := cmp.Diff(short, NewPlan(seed, 5*time.Minute)); diff != "" {
			t.Fatalf("the same seed made another plan: %s", diff)
		}
		if len(long.Events) <= len(short.Events) || !slices.Equal(short.Events, long.Events[:len(short.Events)]) {
			t.Fatal("the longer plan does not begin with the shorter one")
		}
		if !slices.Contains(sizes, short.Size) {
			t.Fatalf("%d control planes", short.Size)
		}
		for _, e := range long.Events {
			if verbs[e.Do] == "" || e.At > 10*time.Minute {
				t.Fatalf("event %+v", e)
			}
		}
	})
}

func TestSeedsDiffer(t *testing.T) {
	seen, done := map[int]bool{}, map[Action]bool{}
	for seed := range uint64(20) {
		p := NewPlan(seed, 10*time.Minute)
		seen[p.Size] = true
		for _, e := range p.Events {
			done[e.Do] = true
		}
	}
	if len(seen) != len(sizes) || len(done) != len(verbs) {
		t.Errorf("20 seeds have sizes %v and actions %v", seen, done)
	}
}

// TestShrink looks for two events that fail together only, as most failures do.
func TestShrink(t *testing.T) {
	p := NewPlan(7, 10*time.Minute)
	a, b := p.Events[3].Number, p.Events[len(p.Events)-9].Number
	tries := 0
	fails := func(p Plan) bool {
		tries++
		has := func(n int) bool { return slices.ContainsFunc(p.Events, func(e Event) bool { return e.Number == n }) }
		return has(a) && has(b)
	}
	small := Shrink(p, 1000, fails)
	var got []int
	for _, e := range small.Events {
		got = append(got, e.Number)
	}
	if diff := cmp.Diff([]int{a, b}, got); diff != "" {
		t.Errorf("after %d tries: -want, +got:\n%s", tries, diff)
	}
	tries = 0
	if small := Shrink(p, 5, fails); tries != 5 || !fails(small) {
		t.Errorf("%d tries of 5, and what is left fails: %t", tries, fails(small))
	}
	if got := Shrink(p, 1000, func(Plan) bool { return false }); len(got.Events) != len(p.Events) {
		t.Error("a plan was shrunk to one that does not fail")
	}
}
