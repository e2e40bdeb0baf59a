package faulttest

import (
	"flag"
	"slices"
	"testing"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
)

// A stage is one fault that a machine meets on its way out. It ends only after the next one has begun, so that the removal
// cannot slip through between the two.
type stage struct {
	fault string
	// long ones are left out of a short run.
	long  bool
	begin func(*world)
	// until, if set, waits until the fault has had its effect: where the stage before it told the same.
	until func(*world)
	// reason of the condition Removal while the fault lasts, and words of its text, which is in testdata/told.txt.
	reason xpv2.ConditionReason
	words  string
	// then, if set, looks at what else must be true while the fault lasts.
	then func(*world)
	end  func(*world)
}

func on(machine string, faults ...string) func(*world) {
	return func(w *world) { w.fault(machine, true, faults...) }
}

func off(machine string, faults ...string) func(*world) {
	return func(w *world) { w.fault(machine, false, faults...) }
}

// endure takes a machine through stages. Its removal must have been asked for by the end of the first one's begin.
func (w *world) endure(machine string, stages []stage) {
	w.t.Helper()
	stages = slices.DeleteFunc(stages, func(s stage) bool { return s.long && !all() })
	for i, s := range stages {
		s.begin(w)
		if i > 0 {
			stages[i-1].end(w)
		}
		if s.until != nil {
			s.until(w)
		}
		w.removalTells(s.fault, machine, s.reason, s.words)
		if s.then != nil {
			s.then(w)
		}
	}
	stages[len(stages)-1].end(w)
}

var faultsAll = flag.Bool("faults.all", false, "go through the whole catalogue, and not only what fits into every test run")

// all tells whether the whole catalogue is asked for, which takes eight minutes. The texts are written down as a whole only.
func all() bool { return *faultsAll || *rewrite }

// TestFaults has one cluster go through the catalogue. The parts need each other in this order.
func TestFaults(t *testing.T) {
	w := newWorld(t)
	w.declareCluster(declared)
	birth(w)
	w.watchEtcd()
	for _, part := range []struct {
		name string
		run  func(*world)
		long bool
	}{
		{name: "Joining", run: joining, long: true},
		{name: "Twins", run: twins, long: true},
		{name: "Reboot", run: reboots},
		{name: "Worker", run: worker},
		{name: "Learner", run: learner, long: true},
		{name: "Gate", run: etcdGate, long: true},
		{name: "Leave", run: leave},
		{name: "LeaveLate", run: leaveLate, long: true},
		{name: "Dead", run: dead, long: true},
	} {
		if part.long && !all() {
			continue
		}
		ok := t.Run(part.name, func(t *testing.T) {
			w.t = t
			w.told.t = t
			part.run(w)
			w.promisesWereKept()
		})
		if !ok {
			t.FailNow()
		}
	}
	w.t, w.told.t = t, t
}
