package clusterlock

import (
	"context"
	"errors"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

// However two processes with three pieces of work take turns, and whatever their clocks show, at no time may two of them
// act, and nobody may act on a lock past whose point of no return somebody else is.
func TestNeverTwo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx, a := context.Background(), newAPI()
		clocks := []*testclock.FakeClock{fakeClock(), fakeClock()}
		clocks[1].SetTime(clocks[1].Now().Add(time.Duration(rapid.IntRange(-7200, 7200).Draw(t, "skew")) * time.Second))
		processes := []*Locks{a.process(clocks[0]), a.process(clocks[1])}
		work := []Holder{alice, bob, {Kind: "Machine", Name: "c", UID: "uid-c", Purpose: "removal"}}
		type handle struct {
			process int
			holder  Holder
		}
		handles := map[handle]*Held{}
		halfDone := ""

		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				h := handle{rapid.IntRange(0, 1).Draw(t, "process"), rapid.SampledFrom(work).Draw(t, "work")}
				held, err := processes[h.process].Acquire(ctx, key, h.holder)
				var he *HeldError
				switch {
				case errors.As(err, &he):
					return
				case err != nil:
					t.Fatal(err)
				case halfDone != "" && halfDone != h.holder.Name:
					t.Fatalf("%s took the lock while the work of %s is half done", h.holder.Name, halfDone)
				}
				handles[h] = held
			},
			"renew": func(t *rapid.T) {
				for h, held := range handles {
					if h.process == rapid.IntRange(0, 1).Draw(t, "process") {
						_ = held.Renew(ctx)
					}
				}
			},
			"mark": func(t *rapid.T) {
				h := handle{rapid.IntRange(0, 1).Draw(t, "process"), rapid.SampledFrom(work).Draw(t, "work")}
				if held := handles[h]; held != nil && held.MarkIrreversible(ctx) == nil {
					halfDone = h.holder.Name
				}
			},
			"release": func(t *rapid.T) {
				h := handle{rapid.IntRange(0, 1).Draw(t, "process"), rapid.SampledFrom(work).Draw(t, "work")}
				held := handles[h]
				if held == nil {
					return
				}
				if held.Check(ctx) == nil && halfDone == h.holder.Name {
					halfDone = ""
				}
				if halfDone != h.holder.Name {
					_ = held.Release(ctx)
				}
			},
			"wait": func(t *rapid.T) {
				d := time.Duration(rapid.IntRange(1, 400).Draw(t, "seconds")) * time.Second
				for _, c := range clocks {
					c.Step(d)
				}
			},
			"": func(t *rapid.T) {
				var able []handle
				for h, held := range handles {
					if held.Check(ctx) == nil {
						able = append(able, h)
					}
				}
				if len(able) > 1 {
					t.Fatalf("all of these may act: %v", able)
				}
			},
		})
	})
}
