package permit

import (
	"testing"
	"time"

	"github.com/maesh/provider-ichor/internal/decide/facts"
)

func TestCheck(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		reason string
		p      Permit
		target string
		step   string
		at     time.Time
		ok     bool
	}{
		"Good":         {reason: "A permit for this machine, step and moment.", p: Grant("a", "Reset", now), target: "a", step: "Reset", at: now, ok: true},
		"Zero":         {reason: "The zero permit permits nothing.", target: "a", step: "Reset", at: now},
		"NoTarget":     {reason: "A permit for nobody permits nothing.", p: Grant("", "Reset", now), step: "Reset", at: now},
		"NoStep":       {reason: "A permit for no step permits nothing.", p: Grant("a", "", now), target: "a", at: now},
		"NoSurvey":     {reason: "A permit from no survey permits nothing.", p: Grant("a", "Reset", time.Time{}), target: "a", step: "Reset", at: now},
		"OtherMachine": {reason: "A permit is for one machine.", p: Grant("a", "Reset", now), target: "b", step: "Reset", at: now},
		"OtherStep":    {reason: "A permit is for one step.", p: Grant("a", "Drain", now), target: "a", step: "Reset", at: now},
		"Oldest":       {reason: "A survey is good for a while.", p: Grant("a", "Reset", now), target: "a", step: "Reset", at: now.Add(MaxAge), ok: true},
		"TooOld":       {reason: "An old survey permits nothing.", p: Grant("a", "Reset", now), target: "a", step: "Reset", at: now.Add(MaxAge + 1)},
		"Future":       {reason: "A survey of the future is a clock gone wrong.", p: Grant("a", "Reset", now), target: "a", step: "Reset", at: now.Add(-1)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := tc.p.Check(facts.MachineID(tc.target), tc.step, tc.at)
			if (err == nil) != tc.ok {
				t.Errorf("\n%s\nCheck() = %v, want ok %t", tc.reason, err, tc.ok)
			}
		})
	}
}
