package clusterlock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A session is one taking of a lock by this process. All that holds the lock for the same work shares it, so that a pass
// that takes the lock again does not put out the work that an earlier pass has started.
type session struct {
	key types.NamespacedName

	// mu is held through the requests of a session: its writes must know of each other.
	mu     sync.Mutex
	record record
	// lease as it was last written or read by this session.
	lease *coordinationv1.Lease
	// renewed is when the last write that succeeded was sent. It was not answered earlier, so whoever counts from the
	// answer, or from reading it, counts from later.
	// It is read without mu, so that a request that hangs cannot hide that the deadline has come.
	renewed atomic.Pointer[time.Time]
	// unsure is true while a write may have succeeded without an answer.
	unsure bool
}

// is tells whether a Lease is that of this session.
func (s *session) is(lease *coordinationv1.Lease, r record) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.matches(lease, r)
}

func (s *session) matches(lease *coordinationv1.Lease, r record) bool {
	return s.lease != nil && lease.GetUID() == s.lease.GetUID() && !r.free && r.Holder.Is(s.record.Holder) && r.session == s.record.session
}

// rename notes what the holder is called, and what it does, from the next write on.
func (s *session) rename(h Holder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.Holder = h
}

// write puts the record into a Lease, which is created if it has no version yet. The error is errRace if the Lease has
// been written, created or deleted since it was read.
func (s *session) write(ctx context.Context, l *Locks, lease *coordinationv1.Lease) error {
	var labels map[string]string
	if l.labels != nil {
		labels = l.labels(s.key)
	}
	sent := l.clock.Now()
	lease = lease.DeepCopy()
	encode(lease, s.record, labels, sent)
	if err := s.send(ctx, l, lease); err != nil {
		return err
	}
	s.lease, s.unsure = lease, false
	s.renewed.Store(&sent)
	return nil
}

func (s *session) send(ctx context.Context, l *Locks, lease *coordinationv1.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var err error
	if lease.GetResourceVersion() == "" {
		if err = l.client.Create(ctx, lease); kerrors.IsAlreadyExists(err) {
			return errRace
		}
	} else if err = l.client.Update(ctx, lease); kerrors.IsConflict(err) || kerrors.IsNotFound(err) {
		return errRace
	}
	if err != nil {
		s.unsure = true
		return fmt.Errorf("cannot write Lease %q: %w", s.key.Name, err)
	}
	return nil
}

// rewrite puts the record into the Lease of this session, whatever else was changed in it, unless it is lost.
func (s *session) rewrite(ctx context.Context, l *Locks) error {
	for range maxRaces {
		if err := s.write(ctx, l, s.lease); err != errRace { //nolint:errorlint // It is never wrapped.
			return err
		}
		lease, err := s.reread(ctx, l)
		if err != nil {
			return err
		}
		s.lease = lease
	}
	return fmt.Errorf("cannot write Lease %q: %w", s.key.Name, errRace)
}

// reread reads the Lease of this session afresh. The error is a *LostError if it is not that of this session any more.
func (s *session) reread(ctx context.Context, l *Locks) (*coordinationv1.Lease, error) {
	lease, err := l.read(ctx, s.key)
	if err != nil {
		return nil, err
	}
	if lease == nil {
		return nil, s.lost("its Lease was deleted")
	}
	if lease.GetDeletionTimestamp() != nil {
		return nil, s.lost("its Lease is being deleted")
	}
	r := decode(lease)
	switch {
	case s.matches(lease, r):
		return lease, nil
	case r.free:
		return nil, s.lost("its Lease was cleared")
	case r.Holder.Is(s.record.Holder):
		return nil, s.elsewhere()
	}
	return nil, s.lost("it is held for the " + r.Holder.work())
}

// check returns an error unless the lock is surely held now.
func (s *session) check(ctx context.Context, l *Locks) error {
	lease, err := s.reread(ctx, l)
	if err != nil {
		return err
	}
	if lease.GetResourceVersion() != s.lease.GetResourceVersion() && !s.unsure {
		return s.lost("its Lease was changed by somebody else")
	}
	// Last, since the reading may have taken long.
	if s.left(l) <= 0 {
		return overdue(s.key, s.record.Holder)
	}
	return nil
}

// left is for how long the holder may still act without another renewal, by the monotonic clock.
func (s *session) left(l *Locks) time.Duration {
	return renewDeadline - l.clock.Since(*s.renewed.Load())
}

// overdue is the error of a lock that was not renewed in time.
func overdue(key types.NamespacedName, h Holder) *LostError {
	return &LostError{Key: key, Holder: h, Why: fmt.Sprintf("it was not renewed for %s", renewDeadline)}
}

// release deletes the Lease if it is still that of this session.
func (s *session) release(ctx context.Context, l *Locks) error {
	for range maxRaces {
		lease, err := l.read(ctx, s.key)
		if err != nil {
			return err
		}
		if lease == nil {
			return nil
		}
		r := decode(lease)
		if !s.matches(lease, r) {
			if !r.free && r.Holder.Is(s.record.Holder) {
				return s.elsewhere()
			}
			return nil
		}
		if err := s.delete(ctx, l, lease); !kerrors.IsConflict(err) {
			return err
		}
	}
	return fmt.Errorf("cannot delete Lease %q: %w", s.key.Name, errRace)
}

// delete this very version of the Lease and no other.
func (s *session) delete(ctx context.Context, l *Locks, lease *coordinationv1.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := l.client.Delete(ctx, lease, client.Preconditions(metav1.Preconditions{
		UID:             ptr.To(lease.GetUID()),
		ResourceVersion: ptr.To(lease.GetResourceVersion()),
	}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot delete Lease %q: %w", s.key.Name, err)
	}
	return nil
}

func (s *session) lost(why string) *LostError {
	return &LostError{Key: s.key, Holder: s.record.Holder, Why: why}
}

func (s *session) elsewhere() *LostError {
	err := s.lost("another process goes on with this work")
	err.Elsewhere = true
	return err
}
