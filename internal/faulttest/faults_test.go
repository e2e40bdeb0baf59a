package faulttest

import (
	"testing"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// A stage is one fault that a machine meets on its way out. It ends only after the next one has begun, so that the removal
// cannot slip through between the two.
type stage struct {
	fault string
	begin func(*world)
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
	for i, s := range stages {
		s.begin(w)
		if i > 0 {
			stages[i-1].end(w)
		}
		w.removalTells(s.fault, machine, s.reason, s.words)
		if s.then != nil {
			s.then(w)
		}
	}
	stages[len(stages)-1].end(w)
}

// TestFaults has one cluster go through the catalogue. The parts need each other in this order.
func TestFaults(t *testing.T) {
	w := newWorld(t)
	w.declareCluster(declared)
	controlPlanes := []string{"cp-1", "cp-2", "cp-3"}
	for _, name := range controlPlanes {
		w.declare(name, v1alpha1.RoleControlPlane)
	}
	w.declare("w-1", v1alpha1.RoleWorker)
	w.ready(append(controlPlanes, "w-1")...)
	w.watchEtcd()
	for _, part := range []struct {
		name string
		run  func(*world)
	}{
		{"Joining", joining},
		{"Worker", worker},
		{"Learner", learner},
		{"Gate", etcdGate},
		{"Leave", leave},
		{"LeaveLate", leaveLate},
		{"Dead", dead},
	} {
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
