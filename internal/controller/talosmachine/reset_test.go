package talosmachine

import (
	"strings"
	"testing"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/controller/waiting"
)

// TestResetThatDoesNotBegin has Talos answer OK to every reset and refuse it: a person is told so and what to do, and the
// machine is not asked again each second.
func TestResetThatDoesNotBegin(t *testing.T) {
	const told = "did not begin"
	b := newBench(t, 3, four, nil)
	b.box("cp-1").fault = func(op string) (bool, error) { return op != "Reset", nil }
	b.remove("cp-1")
	b.passUntil("cp-1", func() bool { return count(b.sent(), "Reset") == 1 })
	if c := b.condition("cp-1", v1alpha1.TypeRemoval); strings.Contains(c.Message, told) {
		t.Errorf("the first reset has only just been sent, and it says %q", c.Message)
	}
	result := b.pass("cp-1")
	if c := b.condition("cp-1", v1alpha1.TypeRemoval); c.Reason != v1alpha1.ReasonStepReset || !strings.Contains(c.Message, told) || !strings.Contains(c.Message, "power-cycle") {
		t.Errorf("the second reset did not begin either, and it says %s: %q", c.Reason, c.Message)
	}
	if result.RequeueAfter != waiting.Interval {
		t.Errorf("it is asked again after %s, want %s", result.RequeueAfter, waiting.Interval)
	}
	b.box("cp-1").fault = nil
	b.walk("cp-1")
	b.removed("cp-1")
}

// TestResetThatEndsInAReboot has each reset end in a reboot that wipes nothing. It did begin, and what is told is the same in
// each pass.
func TestResetThatEndsInAReboot(t *testing.T) {
	b := newBench(t, 3, four, nil)
	b.box("cp-1").fault = func(op string) (bool, error) {
		if op == "Reset" {
			b.box("cp-1").boots++
		}
		return op != "Reset", nil
	}
	b.remove("cp-1")
	b.passUntil("cp-1", func() bool { return count(b.sent(), "Reset") == 1 })
	for range 3 {
		b.pass("cp-1")
		if c := b.condition("cp-1", v1alpha1.TypeRemoval); !strings.Contains(c.Message, "again: it has rebooted") || strings.Contains(c.Message, "did not begin") {
			t.Errorf("it has rebooted, and it says %q", c.Message)
		}
	}
}
