// Package permit holds the proof that every guard passed, for one machine, one step and one survey. It must never be
// granted anywhere but in the decide packages: act carries out nothing without one.
package permit

import (
	"fmt"
	"time"

	"github.com/maesh/provider-ichor/internal/decide/facts"
)

// MaxAge is how old the survey behind a permit may be when the step is carried out. Longer than a survey and one call
// take, shorter than it takes for another disruption to be let through.
const MaxAge = 90 * time.Second

// A Permit says that every guard passed, for one machine, one step and one survey. The zero Permit permits nothing.
type Permit struct {
	target   facts.MachineID
	step     string
	surveyed time.Time
}

// Grant makes a permit. Only decide packages may call it.
func Grant(target facts.MachineID, step string, surveyed time.Time) Permit {
	return Permit{target: target, step: step, surveyed: surveyed}
}

// Check returns an error unless the permit is for this machine and this step, and its survey is recent at time now.
func (p Permit) Check(target facts.MachineID, step string, now time.Time) error {
	switch {
	case p.target == "" || p.step == "" || p.surveyed.IsZero():
		return fmt.Errorf("no permit to %s", step)
	case p.target != target:
		return fmt.Errorf("the permit is for machine %q, not for %q", p.target, target)
	case p.step != step:
		return fmt.Errorf("the permit is to %s, not to %s", p.step, step)
	case now.Sub(p.surveyed) > MaxAge:
		return fmt.Errorf("the survey behind the permit is %s old, more than %s", now.Sub(p.surveyed).Round(time.Second), MaxAge)
	case p.surveyed.After(now):
		return fmt.Errorf("the survey behind the permit was taken after now")
	}
	return nil
}
