package clusterlock

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A HeldError says that another holder has the lock.
type HeldError struct {
	Info
	// Expired is true if the holder no longer renews the lock, and keeps it only because its work is half done.
	Expired bool
}

func (e *HeldError) Error() string {
	s := "the lock is held for the " + e.Holder.work()
	if !e.Since.IsZero() {
		s += " since " + e.Since.UTC().Format(time.RFC3339)
	}
	switch {
	case e.Expired:
		return s + "; that is past the point of no return and must be finished before anything else begins"
	case e.Irreversible:
		return s + "; that is past the point of no return. If that object is gone, the lock can be taken five minutes after it was last renewed"
	}
	return s
}

// A LostError says that a lock is held no longer, or not surely. Whoever sees it must not act.
type LostError struct {
	Key    types.NamespacedName
	Holder Holder
	// Why it is lost, as the end of a sentence.
	Why string
	// Elsewhere is true if another process goes on with the same work.
	Elsewhere bool
}

func (e *LostError) Error() string {
	return fmt.Sprintf("the lock %q is no longer held for the %s: %s", e.Key.Name, e.Holder.work(), e.Why)
}
