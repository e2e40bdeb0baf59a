package talosmachine

import (
	"slices"
	"strings"
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// TestOutageMidRemoval has the management cluster down for so long that the lock of a removal, which has cordoned its
// machine and drained it, expires. Whoever comes first when it is back must not disturb a second control plane.
func TestOutageMidRemoval(t *testing.T) {
	b := newBench(t, 3, []string{"cp-1", "cp-2", "cp-3", "cp-4", "cp-5"}, nil)
	hold := v1alpha1.AnnotationHoldPrefix + "storage"
	b.annotate("cp-4", hold, "replicas move")
	b.remove("cp-4")
	b.passUntil("cp-4", func() bool { return b.removalReason("cp-4") == v1alpha1.ReasonHeld })
	b.remove("cp-5")
	b.pass("cp-5") // It has seen the lock, which has not expired before it was seen for five minutes.
	b.wantWaiter("cp-5", v1alpha1.ReasonOtherMachineCordoned, "cp-4")

	b.clock.Step(10 * time.Minute)
	for range 4 {
		b.pass("cp-5")
	}
	if got := b.cordoned(); !slices.Equal(got, []string{"cp-4"}) {
		b.violatedf("I3: cordoned are %q", got)
	}
	b.wantWaiter("cp-5", v1alpha1.ReasonOtherMachineCordoned, "cp-4")

	b.change("cp-4", func(m *v1alpha1.TalosMachine) { delete(m.Annotations, hold) })
	for range maxPasses {
		for _, name := range []string{"cp-5", "cp-4"} {
			if b.get(name) != nil {
				b.pass(name)
			}
		}
	}
	b.allRemoved("cp-4", "cp-5")
}

// wantWaiter expects a removal to say what it waits for, and who is in its way.
func (b *bench) wantWaiter(name string, reason xpv2.ConditionReason, names string) {
	b.t.Helper()
	c := b.get(name).GetCondition(v1alpha1.TypeRemoval)
	if c.Reason != reason || !strings.Contains(c.Message, names) {
		b.t.Errorf("the removal of %s says %s: %s; want %v and %s", name, c.Reason, c.Message, reason, names)
	}
}

// TestWaitersAllGetTheirTurn has one waiter always come last. Nobody queues for the lock, so it must be given back as soon
// as a removal is done, and each waiter names another machine than itself.
func TestWaitersAllGetTheirTurn(t *testing.T) {
	workers := []string{"w-1", "w-2", "w-3"}
	b := newBench(t, 3, four[:3], workers)
	for _, name := range workers {
		b.remove(name)
	}
	waited := map[string]bool{}
	for range 3 * maxPasses {
		for _, name := range workers {
			if b.get(name) == nil {
				continue
			}
			b.pass(name)
			if m := b.get(name); m != nil && m.GetCondition(v1alpha1.TypeRemoval).Reason == v1alpha1.ReasonWaitingForLock {
				waited[name] = true
				if said := m.GetCondition(v1alpha1.TypeRemoval).Message; !strings.Contains(said, `TalosMachine "w-`) || strings.Contains(said, name) {
					t.Errorf("%s does not say for whom it waits: %s", name, said)
				}
			}
		}
	}
	if !waited["w-2"] || !waited["w-3"] {
		t.Errorf("only these have waited: %v", waited)
	}
	b.allRemoved(workers...)
}

func (b *bench) allRemoved(names ...string) {
	b.t.Helper()
	for _, name := range names {
		if m := b.get(name); m != nil {
			b.t.Fatalf("the removal of %s did not end: %+v", name, m.GetCondition(v1alpha1.TypeRemoval))
		}
		b.removed(name)
	}
}
