package soak

import (
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// TestLastWord holds what counts as rest: the same reason, told for long enough, and not merely silence.
func TestLastWord(t *testing.T) {
	cases := map[string]struct {
		reason string
		is     xpv2.Condition
		before words
		rests  bool
	}{
		"SaidLongAgo": {
			reason: "It waits, and says for what.",
			is:     xpv2.Condition{Status: corev1.ConditionFalse, Reason: "Held", Message: "by storage"},
			before: words{text: "Removal: Held: by storage", since: time.Now().Add(-2 * standstill)}, rests: true,
		},
		"SaidJustNow": {
			reason: "It may go on.",
			is:     xpv2.Condition{Status: corev1.ConditionFalse, Reason: "Held", Message: "by storage"},
		},
		"SaysSomethingElse": {
			reason: "It has gone on.",
			is:     xpv2.Condition{Status: corev1.ConditionFalse, Reason: "Held", Message: "by storage"},
			before: words{text: "Removal: Held: by others", since: time.Now().Add(-2 * standstill)},
		},
		"GoesOn": {
			reason: "A step that never ends is no rest.",
			is:     xpv2.Condition{Status: corev1.ConditionTrue, Reason: "Reset", Message: "resetting"},
			before: words{text: "Removal: Reset: resetting", since: time.Now().Add(-2 * standstill)},
		},
		"SaysNothing": {
			reason: "Silence tells nobody what to do.",
			is:     xpv2.Condition{Status: corev1.ConditionFalse},
			before: words{text: "Removal: : ", since: time.Now().Add(-2 * standstill)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := &v1alpha1.TalosMachine{}
			m.SetName("cp-1")
			tc.is.Type = v1alpha1.TypeRemoval
			m.SetConditions(tc.is)
			err := stuck(m, map[string]words{"cp-1": tc.before})
			if rests := err == nil; rests != tc.rests {
				t.Errorf("\n%s\nat rest: %t (%v), want %t", tc.reason, rests, err, tc.rests)
			}
		})
	}
}
