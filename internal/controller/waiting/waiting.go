// Package waiting makes reconcilers wait at a fixed pace and say each thing once. It must never know what is waited for:
// it only bends what crossplane-runtime's managed reconciler does with a pass that ended in a wait.
//
// The managed reconciler has no "ask again in 15 s". While an object is being deleted, every pass ends in an exponential
// backoff of up to a minute and in an event that claims that a deletion was requested. A removal has a dozen steps, each
// of which would wait out a longer backoff than the one before.
package waiting

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Interval is how long a pass that waits is put off by default: short enough for a removal of a dozen steps, long enough
// for a pass of a few calls to each control plane.
const Interval = 15 * time.Second

// Soon is how long a pass is put off that did its one thing and has the next one to do: long enough for the written object
// to reach the cache, so that the next pass does not work on the one before.
const Soon = time.Second

// Hints are the objects whose current pass ended in a wait. An external client gives a hint, the wrapped reconciler takes
// it at the end of the same pass. Hints may be used by many goroutines.
type Hints struct {
	interval time.Duration

	mu  sync.Mutex
	set map[types.NamespacedName]time.Duration
}

// NewHints returns no hints yet. A pass with a hint is put off for interval; Interval if it is not positive.
func NewHints(interval time.Duration) *Hints {
	if interval <= 0 {
		interval = Interval
	}
	return &Hints{interval: interval, set: map[types.NamespacedName]time.Duration{}}
}

// Give a hint that the current pass of the named object ends in a wait.
func (h *Hints) Give(nn types.NamespacedName) { h.give(nn, h.interval) }

// GiveSoon gives a hint that the current pass of the named object did one thing, and that there is a next one to do.
func (h *Hints) GiveSoon(nn types.NamespacedName) { h.give(nn, min(Soon, h.interval)) }

// TakeBack takes the hint of the current pass of the named object back: it is repeated after its backoff.
func (h *Hints) TakeBack(nn types.NamespacedName) { h.take(nn) }

func (h *Hints) give(nn types.NamespacedName, after time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.set[nn] = after
}

// take returns how long the named object is to be put off, if there was a hint, and forgets it.
func (h *Hints) take(nn types.NamespacedName) (time.Duration, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	after, ok := h.set[nn]
	delete(h.set, nn)
	return after, ok
}

// Wrap returns a reconciler that puts off a pass with a hint for the interval of the hints, no matter whether the inner
// reconciler asked for its backoff or for its poll interval. A pass that failed, that needs no further pass, or that is
// to be repeated sooner is left alone.
func Wrap(inner reconcile.Reconciler, hints *Hints) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		// A pass that panicked may have left its hint; it says nothing of this pass.
		hints.take(req.NamespacedName)

		res, err := inner.Reconcile(ctx, req)
		after, hinted := hints.take(req.NamespacedName)
		if !hinted || err != nil {
			return res, err
		}
		backoff := res.Requeue //nolint:staticcheck // The managed reconciler asks for its backoff in no other way.
		if backoff || res.RequeueAfter > after {
			return reconcile.Result{RequeueAfter: after}, nil
		}
		return res, nil
	})
}
