package topology

import (
	"fmt"
	"slices"
	"strings"

	topology "github.com/maesh/provider-ichor/apis/topology/v1alpha1"
	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// A Plan is what is desired of the machines.
type Plan struct {
	// Machines that are desired, in the order of their names.
	Machines []Planned
	// Kept names those of them that are not listed and that nobody asked to remove.
	Kept []string
	// Removal is what becomes of the machines whose removal was asked for.
	Removal Removal
}

// Planned is a machine that is desired: as it is listed, or as it is.
type Planned struct {
	Name   string
	Listed *Listed
	// Seen is the TalosMachine, if there is one.
	Seen *Machine
	// Allow is true if the machine is to carry the permission to be deleted.
	Allow bool
}

// Ready tells whether the machine says of itself that it is ready.
func (p Planned) Ready() bool { return p.Seen != nil && p.Seen.Ready.True() }

// Role of the machine.
func (p Planned) Role() v1alpha1.MachineRole {
	if p.Listed != nil {
		return p.Listed.Role
	}
	return p.Seen.Role
}

// A Step is what is done about a removal in one pass.
type Step int

// Steps of a removal.
const (
	// Nothing is done: there is no removal, or it waits.
	Nothing Step = 1 + iota
	// Allow writes the permission to the machine.
	Allow
	// Drop takes the machine out of the desired state, so that Crossplane deletes it.
	Drop
	// Watch is for a machine that was dropped and is not gone.
	Watch
)

// Removal is what becomes of the machines whose removal was asked for: at most one of them moves.
type Removal struct {
	// Machine that moves; empty if none does.
	Machine string
	Step    Step
	// Reason and Message say what is done, or what is waited for.
	Reason, Message string
}

// Decide what is desired. It is pure: the same facts give the same plan.
func Decide(f Facts) Plan {
	plan := Plan{Removal: decideRemoval(f)}
	for i := range f.Listed {
		l := &f.Listed[i]
		m, there := f.machine(l.Name)
		if f.asked(l.Name) && (!there || f.going(m)) {
			continue // Removed, or on its way out: it would be created again.
		}
		p := Planned{Name: l.Name, Listed: l}
		if there {
			p.Seen = &m
		}
		plan.Machines = append(plan.Machines, p)
	}
	for _, m := range f.Machines {
		// What is being deleted already is not protected by desiring it, but would be created again when it is gone.
		if f.listed(m.Name) || f.going(m) {
			continue
		}
		plan.Machines = append(plan.Machines, Planned{Name: m.Name, Seen: &m})
		if !f.asked(m.Name) {
			plan.Kept = append(plan.Kept, m.Name)
		}
	}
	switch plan.Removal.Step {
	case Allow:
		for i := range plan.Machines {
			plan.Machines[i].Allow = plan.Machines[i].Name == plan.Removal.Machine
		}
	case Drop:
		plan.Machines = slices.DeleteFunc(plan.Machines, func(p Planned) bool { return p.Name == plan.Removal.Machine })
	case Nothing, Watch:
	}
	slices.SortFunc(plan.Machines, func(a, b Planned) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(plan.Kept)
	return plan
}

// decideRemoval finds the one machine that moves, if any does, and says why not if none does.
func decideRemoval(f Facts) Removal {
	var going, gone []string
	var candidates []Machine
	for _, m := range f.Machines {
		if f.going(m) {
			going = append(going, goingAs(m))
		}
	}
	for _, name := range f.Spec.Removals {
		switch m, there := f.machine(name); {
		case !there:
			gone = append(gone, name)
		case !f.going(m):
			candidates = append(candidates, m)
		}
	}
	switch {
	case len(going) > 0:
		return Removal{Step: Watch, Machine: firstGoing(f), Reason: topology.ReasonRemoving, Message: "Being removed: " + strings.Join(going, "; ") + alsoWaiting(candidates)}
	case len(candidates) == 0 && len(gone) > 0:
		return Removal{Step: Nothing, Reason: topology.ReasonNothingToRemove, Message: "Gone, or never there: " + strings.Join(gone, ", ") + ". Take them out of spec.removals"}
	case len(candidates) == 0:
		return Removal{Step: Nothing, Reason: topology.ReasonNothingToRemove, Message: "No removal is asked for"}
	}
	return choose(f, candidates)
}

// choose lets one candidate through: one that carries the permission already before the others, then in the order in which
// they were asked for. One that waits does not hold up one that does not: the sick go first.
func choose(f Facts, candidates []Machine) Removal {
	var waits []string
	reason := ""
	slices.SortStableFunc(candidates, func(a, b Machine) int { return before(a.Allowed, b.Allowed) })
	for _, m := range candidates {
		w := gate(f, m)
		if w == nil {
			return let(m)
		}
		if reason == "" {
			reason = w.reason
		}
		waits = append(waits, fmt.Sprintf("%s: %s", m.Name, w.message))
	}
	return Removal{Step: Nothing, Reason: reason, Message: "Waiting to remove " + strings.Join(waits, "; ")}
}

// let a machine go: its permission is written first, and it is dropped once the provider has seen that.
func let(m Machine) Removal {
	if m.Allowed && m.Referenced && m.Removable.True() {
		return Removal{Step: Drop, Machine: m.Name, Reason: topology.ReasonRemoving, Message: fmt.Sprintf("Removing %s", m.Name)}
	}
	return Removal{Step: Allow, Machine: m.Name, Reason: topology.ReasonAllowing, Message: fmt.Sprintf("Allowing the deletion of TalosMachine %s", m.Name)}
}

// goingAs says where the removal of a machine is, in the provider's own words.
func goingAs(m Machine) string {
	if m.Removal.Message == "" {
		return m.Name
	}
	return fmt.Sprintf("%s (%s: %s)", m.Name, m.Removal.Reason, m.Removal.Message)
}

func firstGoing(f Facts) string {
	return f.Machines[slices.IndexFunc(f.Machines, f.going)].Name
}

func alsoWaiting(candidates []Machine) string {
	if len(candidates) == 0 {
		return ""
	}
	names := make([]string, 0, len(candidates))
	for _, m := range candidates {
		names = append(names, m.Name)
	}
	return ". Waiting, as one goes at a time: " + strings.Join(names, ", ")
}

// before orders what is true before what is false.
func before(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
