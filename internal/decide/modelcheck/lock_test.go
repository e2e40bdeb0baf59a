package modelcheck

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/maesh/provider-ichor/internal/clusterlock"
)

// lockLife is how long a lock lives that nobody renews.
const lockLife = 5 * time.Minute

// A taking is what becomes of the lock when replica 0 asks for it on behalf of machine 0.
type taking struct {
	// Held tells whether the process that had the lock could still act with it before.
	Held, Taken bool
	// Holder, Ours and Irreversible are what the lock says afterwards: for which machine, whether it is replica 0 that may act.
	Holder       uint8
	Ours         bool
	Irreversible bool
}

// TestLock holds the rule of the lock that the model plays by against the one of clusterlock, in every state of a lock. What
// else the model says of the lock follows from these.
func TestLock(t *testing.T) {
	asked := 0
	for holder := range uint8(3) { // Nobody, machine 0 and machine 1.
		for session := range uint8(3) { // A process that has died, and both replicas.
			for _, irreversible := range []bool{false, true} {
				for _, expired := range []bool{false, true} {
					for _, gone := range []bool{false, true} {
						if holder == 0 && (session > 0 || irreversible || expired || gone) || holder == 1 && gone {
							continue
						}
						asked++
						l := lease{holder: holder, session: session, irreversible: irreversible, expired: expired}
						if diff := cmp.Diff(realLock(t, l, gone), modelLock(l, gone)); diff != "" {
							t.Errorf("%+v, whose holder is gone: %t: -clusterlock, +model:\n%s", l, gone, diff)
						}
					}
				}
			}
		}
	}
	t.Logf("asked of %d states", asked)
}

func modelLock(l lease, gone bool) taking {
	c := newChecker(config{voters: 2, declared: 1, replicas: 2}, rules{})
	w := c.begin()
	w.lock = l
	w.machines[1].declared = !gone
	k := taking{Held: l.holder != 0 && (l.session == 0 && !l.expired || l.session != 0 && w.holds(l.session-1, l.holder-1))}
	k.Taken = c.acquire(&w, 0, 0)
	k.Holder, k.Irreversible, k.Ours = w.lock.holder, w.lock.irreversible, w.holds(0, 0)
	return k
}

func realLock(t *testing.T, l lease, gone bool) taking {
	t.Helper()
	ctx, key := t.Context(), types.NamespacedName{Namespace: "ns", Name: clusterlock.LeaseName("prod")}
	api := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build()
	clock := testclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	of := func(machine uint8) clusterlock.Holder {
		return clusterlock.Holder{Kind: "Machine", Name: names[machine], UID: types.UID(fmt.Sprint(machine + 1)), Purpose: "removal"}
	}
	var processes [3]*clusterlock.Locks // By session: the dead one, and both replicas.
	for i := range processes {
		processes[i] = clusterlock.New(api, api, clock, clusterlock.WithHolderGone(func(context.Context, string, clusterlock.Holder) (bool, error) { return gone, nil }))
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	var k taking
	if l.holder != 0 {
		held, err := processes[l.session].Acquire(ctx, key, of(l.holder-1))
		must(err)
		if l.irreversible {
			must(held.MarkIrreversible(ctx))
		}
		_, err = processes[1].Peek(ctx, key) // It has seen it: it does not expire before.
		must(err)
		if l.expired {
			clock.Step(lockLife)
		}
		k.Held = held.Check(ctx) == nil
	}
	mine, err := processes[1].Acquire(ctx, key, of(0))
	var he *clusterlock.HeldError
	if err != nil && !errors.As(err, &he) {
		t.Fatal(err)
	}
	k.Taken = err == nil
	k.Ours = k.Taken && mine.Check(ctx) == nil
	info, err := processes[0].Peek(ctx, key)
	must(err)
	k.Holder, k.Irreversible = 1, info.Irreversible
	if info.Holder.UID != "1" {
		k.Holder = 2
	}
	return k
}
