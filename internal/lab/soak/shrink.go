package soak

import "slices"

// Shrink takes events out of a plan that fails, as long as it still fails without them and tries are left: first the half,
// then smaller parts, from the end on, since what came last did the least to what came before. It returns the shortest plan
// that was seen to fail.
func Shrink(p Plan, tries int, fails func(Plan) bool) Plan {
	for part := (len(p.Events) + 1) / 2; part > 0 && len(p.Events) > 0; {
		shrunk := false
		for end := len(p.Events); end > 0 && tries > 0; end -= part {
			less := p
			less.Events = slices.Delete(slices.Clone(p.Events), max(0, end-part), end)
			tries--
			if fails(less) {
				p, shrunk = less, true
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
