package talosmachine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// walkDown passes over all machines of a cluster that is being deleted until all are removed.
func (b *bench) walkDown() {
	b.t.Helper()
	all, workers := make([]string, 0, len(b.boxes)), []string(nil)
	for _, x := range b.boxes {
		all = append(all, x.name)
		if !x.controlPlane {
			workers = append(workers, x.name)
		}
	}
	remains := func(name string) bool { return !b.isRemoved(name) }
	for range maxPasses {
		for _, name := range all {
			b.pass(name)
			if b.dead {
				b.start()
			}
			if x := b.box(name); x.controlPlane && x.stage != "running" && slices.ContainsFunc(workers, remains) {
				b.violatedf("control plane %s was reset before the workers were gone", name)
			}
		}
		if !slices.ContainsFunc(all, remains) && b.lockHolder() == nil {
			break
		}
	}
	for _, name := range all {
		if !b.isRemoved(name) || b.box(name).stage != "maintenance" {
			b.t.Fatalf("%s was not removed: %+v; sent %q", name, b.get(name).Status, b.sent())
		}
	}
	if h := b.lockHolder(); h != nil {
		b.t.Fatalf("the lock is still held by %+v", h)
	}
}

func TestTeardown(t *testing.T) {
	b := newBench(t, 3, four[:3], []string{"w-1", "w-2"})
	b.tearDown()
	b.walkDown()
	if n := count(b.sent(), "LeaveEtcd"); n != 2 {
		t.Errorf("%d machines left etcd, want 2: the last one is reset as it is", n)
	}
	for _, s := range b.sent() {
		if strings.HasPrefix(s, "kubernetes: patch nodes") || strings.Contains(s, "eviction") {
			t.Errorf("a teardown cordons and drains nothing: %q", b.sent())
		}
	}

	// Removed for good: never configured again, and its object goes without another call.
	b.forget()
	b.pass("w-1")
	b.must(b.mgmt.Delete(context.Background(), b.get("w-1")))
	b.pass("w-1")
	if b.get("w-1") != nil || len(b.sent()) > 0 {
		t.Errorf("a removed machine was touched again: %q", b.sent())
	}
}

// TestTeardownSurvivesCrashes ends the process after each write of a teardown.
func TestTeardownSurvivesCrashes(t *testing.T) {
	b := newBench(t, 1, four[:2], []string{"w-1"})
	b.tearDown()
	b.walkDown()
	for k := 1; k <= len(b.written()); k++ {
		for how, damage := range damages {
			t.Run(fmt.Sprintf("%sAfterWrite%d", how, k), func(t *testing.T) {
				c := newBench(t, 1, four[:2], []string{"w-1"})
				c.tearDown()
				c.dieAt, c.onDeath = k, func() { damage(c, "cp-1") }
				c.walkDown()
			})
		}
	}
}

func TestTeardownLeavesAloneWhatIsToBeLeftAlone(t *testing.T) {
	b := newBench(t, 1, four[:1], []string{"w-1"})
	b.callOff("w-1")
	b.tearDown()
	for range 3 {
		b.pass("w-1")
	}
	if sent := b.sent(); len(sent) > 0 {
		t.Errorf("a machine without Delete in its policies was touched: %q", sent)
	}
}
