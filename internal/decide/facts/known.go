package facts

// A Known is a value together with whether it is known at all. The zero Known is unknown. Unknown is never the same as
// the zero value: what is not known refuses, and says why it is not known.
type Known[T any] struct {
	value T
	known bool
	why   string
}

// Of returns a value that is known.
func Of[T any](v T) Known[T] { return Known[T]{value: v, known: true} }

// Unknown returns a value that is not known, and why.
func Unknown[T any](why string) Known[T] { return Known[T]{why: why} }

// Get returns the value and whether it is known.
func (k Known[T]) Get() (T, bool) { return k.value, k.known }

// IsKnown tells whether the value is known.
func (k Known[T]) IsKnown() bool { return k.known }

// Why tells why the value is not known; empty if it is known.
func (k Known[T]) Why() string {
	if !k.known && k.why == "" {
		return "never looked at"
	}
	return k.why
}

// Is tells whether b is known to be v. Both "known to differ" and "unknown" are false.
func Is[T comparable](k Known[T], v T) bool { return k.known && k.value == v }
