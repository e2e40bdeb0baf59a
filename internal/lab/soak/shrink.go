package soak

import "slices"

// Shrink takes events out of a plan that fails, as long as it still fails without them and tries are left: first those of each
// guess at once, then the half, then smaller parts, from the beginning on, since what came last is what broke it. It returns
// the shortest plan that was seen to fail.
func Shrink(p Plan, tries int, guesses []func(Event) bool, fails func(Plan) bool) Plan {
	for _, needless := range guesses {
		less := p
		less.Events = slices.DeleteFunc(slices.Clone(p.Events), needless)
		if tries <= 0 || len(less.Events) == len(p.Events) {
			continue
		}
		tries--
		if less = less.tight(); fails(less) {
			p = less
		}
	}
	for part := (len(p.Events) + 1) / 2; part > 0 && len(p.Events) > 0; {
		shrunk := false
		for from := 0; from < len(p.Events) && tries > 0; {
			less := p
			less.Events = slices.Delete(slices.Clone(p.Events), from, min(from+part, len(p.Events)))
			less = less.tight()
			tries--
			if fails(less) {
				p, shrunk = less, true
				part = max(1, min(part, (len(p.Events)+1)/2)) // Else the next try could be one with nothing left.
			} else {
				from += part
			}
		}
		switch {
		case tries <= 0:
			return p
		case part > 1:
			part = (part + 1) / 2
		case !shrunk:
			return p
		}
	}
	return p
}

// Guesses are which events of the campaign the broken rule does perhaps not need: those that nothing came of, and then
// everything that goes wrong, since most of what breaks needs only the one or the other.
func (r Report) Guesses() []func(Event) bool {
	return []func(Event) bool{
		func(e Event) bool { came, known := r.Came[e.Number]; return known && came != Done }, // What goes on may be what broke it.
		func(e Event) bool { return e.Do >= Break },
	}
}
