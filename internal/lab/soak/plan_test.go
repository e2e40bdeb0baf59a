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
	seen := map[int]bool{}
	for seed := range uint64(20) {
		seen[NewPlan(seed, time.Minute).Size] = true
	}
	if len(seen) != len(sizes) {
		t.Errorf("20 seeds have sizes %v", seen)
	}
}

// TestEachKindComes holds that a few campaigns have every kind of event and of fault, and something that outlives the lock.
func TestEachKindComes(t *testing.T) {
	for seed := range uint64(20) {
		done, broken, long := map[Action]bool{}, map[string]bool{}, 0
		for _, e := range NewPlan(seed, 40*time.Minute).Events {
			done[e.Do], broken[e.Fault] = true, true
			if e.For > lifetime {
				long++
			}
		}
		if len(done) != len(verbs) || len(broken) != len(faults)+1 || long == 0 {
			t.Errorf("seed %d has the actions %v, the faults %v and %d that outlive the lock", seed, done, broken, long)
		}
	}
}

// TestStrikesMidway holds that every campaign has what is to strike a job, and every other one a provider that sleeps for longer
// than the lock lives and wakes up before the campaign ends.
func TestStrikesMidway(t *testing.T) {
	slept := 0
	for seed := range uint64(50) {
		strikes, sleeps := 0, false
		for _, e := range NewPlan(seed, 10*time.Minute).Events {
			switch {
			case e.Do >= Break && e.Midway:
				strikes++
			case e.Midway:
				t.Errorf("seed %d: what is asked for lies in wait: %s", seed, e)
			}
			sleeps = sleeps || e.Do == Pause && e.For > lifetime && e.At+lurk+e.For < 10*time.Minute
		}
		if strikes == 0 {
			t.Errorf("seed %d strikes no job", seed)
		}
		if sleeps {
			slept++
		}
	}
	if slept < 22 || slept > 25 {
		t.Errorf("in %d of 50 campaigns a provider sleeps for long and wakes up", slept)
	}
}

// TestOnly holds that what is left of a plan stays as it was, but for the time in which nothing happens any more.
func TestOnly(t *testing.T) {
	p := NewPlan(7, 10*time.Minute)
	last := len(p.Events)
	got := p.Only([]int{2, 3, last})
	if len(got.Events) != 3 || len(p.Events) != last {
		t.Fatalf("%d events of %d", len(got.Events), last)
	}
	a, b, c := got.Events[0], got.Events[1], got.Events[2]
	if b.At-a.At != p.Events[2].At-p.Events[1].At || c.At-b.At != longestGap {
		t.Errorf("events at %s, %s and %s", a.At, b.At, c.At)
	}
	c.At = p.Events[last-1].At
	if diff := cmp.Diff(p.Events[last-1], c); diff != "" {
		t.Errorf("the last event is another one: %s", diff)
	}
}

// TestDraw holds that a choice stays when others come or go, so that a plan does the same after it was shrunk.
func TestDraw(t *testing.T) {
	all := []string{"cp-1", "cp-2", "cp-3", "cp-e4", "worker-1"}
	is := func(name string) string { return name }
	chosen := map[string]bool{}
	for pick := range uint64(100) {
		got := draw(all, pick, is)
		chosen[got] = true
		for _, gone := range all {
			left := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == gone })
			if now := draw(left, pick, is); gone != got && now != got {
				t.Fatalf("without %s, %d chooses %s instead of %s", gone, pick, now, got)
			}
		}
	}
	if len(chosen) != len(all) {
		t.Errorf("chosen were %v", chosen)
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
	small := Shrink(p, 1000, nil, fails)
	var got []int
	for _, e := range small.Events {
		got = append(got, e.Number)
	}
	if diff := cmp.Diff([]int{a, b}, got); diff != "" {
		t.Errorf("after %d tries: -want, +got:\n%s", tries, diff)
	}
	tries = 0
	if small := Shrink(p, 5, nil, fails); tries != 5 || !fails(small) {
		t.Errorf("%d tries of 5, and what is left fails: %t", tries, fails(small))
	}
	if got := Shrink(p, 1000, nil, func(Plan) bool { return false }); len(got.Events) != len(p.Events) {
		t.Error("a plan was shrunk to one that does not fail")
	}
}

// TestShrinkWastesNothing holds that no try is made with nothing left as long as more than one event is.
func TestShrinkWastesNothing(t *testing.T) {
	p := NewPlan(7, 10*time.Minute)
	p.Events = p.Events[:9]
	small := Shrink(p, 1000, nil, func(less Plan) bool {
		if len(less.Events) == 0 {
			t.Error("a try with nothing left")
		}
		return len(less.Events) >= 4 && less.Events[len(less.Events)-4].Number == 6
	})
	if len(small.Events) != 4 {
		t.Errorf("%d events are left, want 4", len(small.Events))
	}
}

// TestGuesses holds that what nothing came of goes first, then what goes wrong, each in one try, and comes back if it was needed.
func TestGuesses(t *testing.T) {
	r := Report{Plan: NewPlan(7, 10*time.Minute), Came: map[int]Outcome{}}
	for _, e := range r.Plan.Events {
		r.Came[e.Number] = Done
		if e.Number%2 == 0 {
			r.Came[e.Number] = NotNow
		}
	}
	for name, tc := range map[string]struct {
		needed func(Event) bool
		tries  int
		want   func(Event) bool
	}{
		"Neither": {func(Event) bool { return false }, 2, func(e Event) bool { return e.Number%2 == 1 && e.Do < Break }},
		"Faults":  {func(e Event) bool { return e.Number%2 == 1 && e.Do >= Break }, 2, func(e Event) bool { return e.Number%2 == 1 }},
		"All":     {func(Event) bool { return true }, 2, func(Event) bool { return true }},
		"OneTry":  {func(Event) bool { return false }, 1, func(e Event) bool { return e.Number%2 == 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			var all, want, got []int
			for _, e := range r.Plan.Events {
				if tc.needed(e) {
					all = append(all, e.Number)
				}
				if tc.want(e) {
					want = append(want, e.Number)
				}
			}
			small := Shrink(r.Plan, tc.tries, r.Guesses(), func(p Plan) bool {
				n := 0
				for _, e := range p.Events {
					if tc.needed(e) {
						n++
					}
				}
				return n == len(all)
			})
			for _, e := range small.Events {
				got = append(got, e.Number)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}
