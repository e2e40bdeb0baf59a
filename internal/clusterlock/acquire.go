package clusterlock

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// errRace says that another write came between reading a Lease and writing it.
var errRace = errors.New("it was written by somebody else at the same time")

// Acquire takes the lock of this Lease for h, or renews it if h holds it, be it from before a restart. If another holds
// it, the error is a *HeldError, and nothing was written.
func (l *Locks) Acquire(ctx context.Context, key types.NamespacedName, h Holder) (*Held, error) {
	if h.Kind == "" || h.UID == "" {
		return nil, fmt.Errorf("cannot take lock %q: holder %q has no kind or no UID", key.Name, h.Name)
	}
	var err error
	for range maxRaces {
		var held *Held
		if held, err = l.acquire(ctx, key, h); !errors.Is(err, errRace) {
			return held, err
		}
	}
	return nil, fmt.Errorf("cannot take lock %q: %w", key.Name, err)
}

func (l *Locks) acquire(ctx context.Context, key types.NamespacedName, h Holder) (*Held, error) {
	lease, err := l.read(ctx, key)
	if err != nil {
		return nil, err
	}
	if lease == nil {
		return l.take(ctx, key, h, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}, record{free: true})
	}
	if lease.GetDeletionTimestamp() != nil {
		return nil, fmt.Errorf("cannot take lock %q: its Lease is being deleted and finalizers %q keep it", key.Name, lease.GetFinalizers())
	}
	r := decode(lease)
	switch {
	case r.free:
		return l.take(ctx, key, h, lease, r)
	case r.Holder.Is(h):
		return l.reenter(ctx, key, h, lease, r)
	}
	if err := l.takeable(ctx, key, lease, r); err != nil {
		return nil, err
	}
	return l.take(ctx, key, h, lease, r)
}

// takeable returns an error unless the lock of another holder may be taken.
func (l *Locks) takeable(ctx context.Context, key types.NamespacedName, lease *coordinationv1.Lease, r record) error {
	if !l.expired(key, lease, r) {
		return &HeldError{Info: r.Info}
	}
	if !r.Irreversible {
		return nil
	}
	if l.gone == nil {
		return &HeldError{Info: r.Info, Expired: true}
	}
	gone, err := l.gone(ctx, key.Namespace, r.Holder)
	if err != nil {
		return fmt.Errorf("cannot find out whether %s %q, which holds lock %q, is gone: %w", r.Holder.Kind, r.Holder.Name, key.Name, err)
	}
	if !gone {
		return &HeldError{Info: r.Info, Expired: true}
	}
	return nil
}

// reenter goes on with a lock that h holds already: in the session of this process if it has one, else in a new one, so
// that the process before this one, should it still live, finds out.
func (l *Locks) reenter(ctx context.Context, key types.NamespacedName, h Holder, lease *coordinationv1.Lease, r record) (*Held, error) {
	l.mu.Lock()
	s := l.sessions[key]
	l.mu.Unlock()
	if s == nil || !s.is(lease, r) {
		return l.take(ctx, key, h, lease, r)
	}
	held := &Held{locks: l, session: s, holder: h}
	s.rename(h)
	var lost *LostError
	if err := held.Renew(ctx); errors.As(err, &lost) {
		return nil, errRace
	} else if err != nil {
		return nil, err
	}
	return held, nil
}

// take writes h into a Lease, which is created if it has no version yet.
func (l *Locks) take(ctx context.Context, key types.NamespacedName, h Holder, lease *coordinationv1.Lease, before record) (*Held, error) {
	now := l.clock.Now()
	r := record{Info: Info{Holder: h, Since: now}, session: string(uuid.NewUUID())}
	if !before.free && before.Holder.Is(h) {
		r.Since, r.Irreversible = before.Since, before.Irreversible
	}
	s := &session{key: key, record: r}
	if err := s.write(ctx, l, lease); err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.sessions[key] = s
	l.mu.Unlock()
	return &Held{locks: l, session: s, holder: h}, nil
}
