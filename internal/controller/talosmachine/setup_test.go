package talosmachine

import (
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// TestPollInterval: a machine on its way is looked at soon, since a person watches, and those of a large fleet that are up are not
// all asked at once.
func TestPollInterval(t *testing.T) {
	mg := &v1alpha1.TalosMachine{}
	for poll, want := range map[time.Duration]time.Duration{time.Hour: 15 * time.Second, time.Second: time.Second} {
		if got := pollInterval(mg, poll); got != want {
			t.Errorf("one that is not ready is looked at again after %s of %s, want %s", got, poll, want)
		}
	}
	mg.SetConditions(xpv2.Available())
	seen := map[bool]int{}
	for range 1000 {
		got := pollInterval(mg, time.Hour)
		if got < 54*time.Minute || got > 66*time.Minute {
			t.Fatalf("one that is ready is looked at again after %s of an hour", got)
		}
		seen[got < time.Hour]++
	}
	if seen[true] < 300 || seen[false] < 300 {
		t.Errorf("of 1000 looks %d came early and %d late: they come together", seen[true], seen[false])
	}
}

// TestMachinesAreNotPolledAtOnePace holds that the controller asks after each pass when the next one is due.
func TestMachinesAreNotPolledAtOnePace(t *testing.T) {
	b := newBench(t, 3, four[:3], nil)
	b.change("cp-1", func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.Approved = false })
	if after := b.pass("cp-1").RequeueAfter; after != unreadyPoll {
		t.Errorf("a machine that a person has yet to approve is looked at again after %s, want %s", after, unreadyPoll)
	}
}
