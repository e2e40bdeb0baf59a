package soak

import "slices"

// Shrink takes events out of a plan that fails, as long as it still fails without them and tries are left: first the half,
// then smaller parts, from the beginning on, since what came last is what broke it. It returns the shortest plan that was
// seen to fail.
func Shrink(p Plan, tries int, fails func(Plan) bool) Plan {
	for part := (len(p.Events) + 1) / 2; part > 0 && len(p.Events) > 0; {
		shrunk := false
		for from := 0; from < len(p.Events) && tries > 0; {
			less := p
			less.Events = slices.Delete(slices.Clone(p.Events), from, min(from+part, len(p.Events)))
			less = less.tight()
			tries--
			if fails(less) {
				p, shrunk = less, true
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
