package soak

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestStruck has the lives of a lock and of the providers, and when a fault was there.
func TestStruck(t *testing.T) {
	const s = time.Second
	mine := machineHolder + "1"
	held := tenure{holder: mine, from: after(10 * s), to: after(20 * s), renewed: after(10 * s)}
	forever := tenure{holder: mine, from: after(10 * s), renewed: after(10 * s)}
	cases := map[string]struct {
		reason   string
		tenure   tenure
		absent   []period
		from, to time.Duration
		want     bool
	}{
		"Amid":            {"The job was in flight.", held, nil, 15 * s, 15 * s, true},
		"Before":          {"No job had begun.", held, nil, 9 * s, 9 * s, false},
		"After":           {"It had ended.", held, nil, 20 * s, 20 * s, false},
		"CameToIt":        {"It began while the fault was there.", held, nil, 5 * s, 12 * s, true},
		"OverByThen":      {"The fault had passed.", held, nil, 2 * s, 9 * s, false},
		"NotYetOver":      {"It goes on.", forever, nil, 60 * s, 60 * s, true},
		"Expired":         {"Nobody renews it any more.", forever, nil, lifetime + 11*s, lifetime + 12*s, false},
		"ByAThief":        {"A thief does nothing.", tenure{holder: thief, from: after(10 * s), renewed: after(10 * s)}, nil, 15 * s, 15 * s, false},
		"NobodyThere":     {"No provider was there to do the job.", held, []period{{after(12 * s), after(30 * s)}}, 15 * s, 16 * s, false},
		"SomebodyCame":    {"A provider came back to the job.", held, []period{{after(12 * s), after(16 * s)}}, 15 * s, 17 * s, true},
		"StoppedByItself": {"It was there until the fault came.", held, []period{{after(15*s + 1), after(30 * s)}}, 15 * s, 15 * s, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			j := newJudge()
			j.tenures, j.absent = []tenure{tc.tenure}, tc.absent
			if got := j.struck(after(tc.from), after(tc.to)); got != tc.want {
				t.Errorf("\n%s\nstruck: %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}

// TestAbsent holds that nobody is there only while neither provider is.
func TestAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJudge()
		there := func(want bool) {
			t.Helper()
			j.tenures = []tenure{{holder: machineHolder + "1", from: time.Now(), renewed: time.Now()}}
			if _, got := j.inFlight(time.Now()); got != want {
				t.Errorf("somebody is there: %t, want %t", got, want)
			}
			<-time.After(time.Minute) // Of a clock that is not real.
		}
		there(true)
		j.goes()
		there(false)
		j.comes()
		there(true)
		j.comes()
		j.goes()
		there(true)
		j.goes()
		there(false)
		j.comes()
		there(true)
	})
}

// TestLieInWait holds that what lies in wait strikes when the job has gone on for long enough, or when none came for long.
func TestLieInWait(t *testing.T) {
	for name, tc := range map[string]struct {
		takes, leaves time.Duration // when the job takes the lock and gives it up again; negative for never
		after         time.Duration
		ends          time.Duration // when everything ends
		want          time.Duration
		where         string
		baits, ok     bool
	}{
		"AtOnce":     {takes: 0, leaves: -1, after: 0, ends: time.Hour, want: 0, where: "into the job of m1", ok: true},
		"LaterOn":    {takes: 5 * time.Second, leaves: -1, after: 3 * time.Second, ends: time.Hour, want: 8 * time.Second, where: "3s into the job of m1", ok: true},
		"TooShort":   {takes: 5 * time.Second, leaves: 7 * time.Second, after: 3 * time.Second, ends: time.Hour, want: lurk, where: "no job came", baits: true, ok: true},
		"NeverComes": {takes: -1, leaves: -1, ends: time.Hour, want: lurk, where: "no job came", baits: true, ok: true},
		"Baited":     {takes: patient + 2*time.Second, leaves: -1, after: time.Second, ends: time.Hour, want: patient + 3*time.Second, where: "1s into the job of m1", baits: true, ok: true},
		"AllEnds":    {takes: -1, leaves: -1, ends: 9 * time.Second, want: 9 * time.Second, where: "no job came"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJudge()
				j.owners[machineHolder+"1"] = "m1"
				c := &campaign{judge: j, watch: &monitor{judge: j}, ended: make(chan struct{})}
				at := func(when time.Duration, do func()) {
					if when >= 0 {
						timer := time.AfterFunc(when, do)
						t.Cleanup(func() { timer.Stop() })
					}
				}
				write := func(holder string) func() {
					return func() { c.watch.note(func(j *judge) { j.held(time.Now(), holder) }) }
				}
				at(tc.takes, write(machineHolder+"1"))
				at(tc.leaves, write(""))
				at(tc.ends, func() { close(c.ended) })
				begun, baits := time.Now(), 0
				where, ok := c.lieInWait(t.Context(), Event{After: tc.after}, func(context.Context, Event) { baits++ })
				if want := tc.baits; baits > 1 || (baits == 1) != want {
					t.Errorf("it baited %d times, want it to: %t", baits, want)
				}
				if took := time.Since(begun); took < tc.want || took > tc.want+2*blink || ok != tc.ok || !strings.Contains(where, tc.where) {
					t.Errorf("after %s: %q, %t; want %q, %t after %s", took, where, ok, tc.where, tc.ok, tc.want)
				}
			})
		})
	}
}

// TestLinger holds that what is short comes to its end before everything is mended, and that what is long is not waited for, nor
// anything once a rule is broken.
func TestLinger(t *testing.T) {
	for name, tc := range map[string]struct {
		lasts, broken, want time.Duration
	}{
		"Short":  {lasts: 20 * time.Second, want: 20 * time.Second},
		"Long":   {lasts: time.Hour, want: lurk + brief.most},
		"Broken": {lasts: time.Hour, broken: 5 * time.Second, want: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJudge()
				c := &campaign{judge: j, watch: &monitor{judge: j}, ended: make(chan struct{}), out: io.Discard}
				c.lasting.Go(func() { c.until(t.Context(), tc.lasts) })
				if tc.broken > 0 {
					time.AfterFunc(tc.broken, func() { c.watch.note(func(j *judge) { j.breakf(time.Now(), "I1", "it broke") }) })
				}
				begun := time.Now()
				c.linger(t.Context())
				if took := time.Since(begun); took < tc.want || took > tc.want+2*lookInterval {
					t.Errorf("it took %s, want %s", took, tc.want)
				}
				c.mend()
			})
		})
	}
}
