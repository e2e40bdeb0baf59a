package clusterlock

import (
	"context"
	"fmt"
	"sync"
)

// A Held is a lock that was taken. It may have been lost since: what it returns is an error of type *LostError then.
// It is safe for concurrent use.
type Held struct {
	locks   *Locks
	session *session
	holder  Holder
}

// Holder is what the lock was taken for.
func (h *Held) Holder() Holder { return h.holder }

// Check reads the Lease afresh and returns an error unless the lock is held now and for another minute. It belongs right
// before each call that cannot be taken back; a call that takes longer belongs into RenewWhile.
func (h *Held) Check(ctx context.Context) error {
	h.session.mu.Lock()
	defer h.session.mu.Unlock()
	return h.session.check(ctx, h.locks)
}

// Renew says that the work goes on.
func (h *Held) Renew(ctx context.Context) error {
	h.session.mu.Lock()
	defer h.session.mu.Unlock()
	return h.session.rewrite(ctx, h.locks)
}

// MarkIrreversible renews the lock and writes down that the work can only go on from here: from then on nobody takes the
// lock, expired or not, while the object that is worked on exists.
func (h *Held) MarkIrreversible(ctx context.Context) error {
	s := h.session
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.record.Irreversible
	s.record.Irreversible = true
	if err := s.rewrite(ctx, h.locks); err != nil {
		// Whoever gets an error does not act.
		s.record.Irreversible = before
		return err
	}
	return nil
}

// Release gives the lock up. It does nothing to a Lease that is another holder's by now.
func (h *Held) Release(ctx context.Context) error {
	s, l := h.session, h.locks
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.release(ctx, l); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sessions[s.key] == s {
		delete(l.sessions, s.key)
		delete(l.seen, s.key)
	}
	return nil
}

// RenewWhile renews the lock while fn runs. It cancels fn's context as soon as the lock is known to be lost, and at the
// latest when it could not be renewed for four minutes. If so the error is a *LostError, besides that of fn.
func (h *Held) RenewWhile(ctx context.Context, fn func(ctx context.Context) error) error {
	if err := h.Renew(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var watchers sync.WaitGroup
	watchers.Go(func() { h.keep(ctx, cancel) })
	watchers.Go(func() { h.expire(ctx, cancel) })
	err := fn(ctx)
	lost, isLost := context.Cause(ctx).(*LostError) //nolint:errorlint // It is never wrapped.
	cancel(nil)
	watchers.Wait()
	switch {
	case isLost && err != nil:
		return fmt.Errorf("%w (%w)", err, lost)
	case isLost:
		return lost
	}
	return err
}

// keep renews the lock until ctx is done.
func (h *Held) keep(ctx context.Context, cancel context.CancelCauseFunc) {
	tick := h.locks.clock.NewTicker(retryEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
		if err := h.renewIfDue(ctx); err != nil {
			cancel(err)
			return
		}
	}
}

// renewIfDue renews the lock if the last renewal is old. Only a lock that is lost is an error; other errors pass, and if
// they do not, the deadline comes. A renewal that comes after the deadline does not count, as after a process was paused:
// the lock may have had another holder meanwhile.
func (h *Held) renewIfDue(ctx context.Context) error {
	s := h.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left(h.locks) <= 0 {
		return overdue(s.key, h.holder)
	}
	if s.left(h.locks) > renewDeadline-renewEvery {
		return nil
	}
	if lost, ok := s.rewrite(ctx, h.locks).(*LostError); ok { //nolint:errorlint // It is never wrapped.
		return lost
	}
	return nil
}

// expire cancels the work when the deadline has come, whatever a renewal is doing.
func (h *Held) expire(ctx context.Context, cancel context.CancelCauseFunc) {
	s := h.session
	for left := s.left(h.locks); left > 0; left = s.left(h.locks) {
		timer := h.locks.clock.NewTimer(left)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
	cancel(overdue(s.key, h.holder))
}
