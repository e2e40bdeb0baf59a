// Package disruption is the one way to the lock of a cluster for whatever disturbs it. It must never disturb anything
// itself. An even number of approved control planes is a change half done, with no more tolerance than the odd number
// below it: all disruptive work but what ends it is parked before it takes the lock, so that it never blocks its cure.
package disruption

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/internal/clusterlock"
	"github.com/maesh/provider-ichor/internal/decide/quorum"
	"github.com/maesh/provider-ichor/internal/survey"
)

// A TransitioningError says that a disruption is parked because the number of approved control planes is even. Nothing
// is held meanwhile.
type TransitioningError struct {
	Cluster  string
	Approved int
}

func (e *TransitioningError) Error() string {
	return fmt.Sprintf("cluster %q has an even number of approved control planes (%d); this waits until the number is odd again "+
		"and goes on by itself then. %s", e.Cluster, e.Approved, quorum.WayToOdd(e.Approved))
}

// An IrreversibleError says that a disruption is past the point of no return, so that its lock cannot be given back.
type IrreversibleError struct {
	Holder clusterlock.Holder
}

func (e *IrreversibleError) Error() string {
	return fmt.Sprintf("the %s of %s %q is past the point of no return: it can only go on to its end", e.Holder.Purpose, e.Holder.Kind, e.Holder.Name)
}

// Locks are the locks of clusters. *clusterlock.Locks satisfies it.
type Locks interface {
	Acquire(ctx context.Context, key types.NamespacedName, h clusterlock.Holder) (*clusterlock.Held, error)
	Peek(ctx context.Context, key types.NamespacedName) (*clusterlock.Info, error)
}

// A Gate lets one disruption of a cluster through at a time.
type Gate struct {
	locks  Locks
	reader client.Reader
}

// NewGate returns a gate. The reader must be uncached: a stale count can only err toward more control planes, which is
// the dangerous side.
func NewGate(locks Locks, uncached client.Reader) *Gate {
	return &Gate{locks: locks, reader: uncached}
}

// AcquireDisruptiveLock takes the lock of a cluster for h, or renews it if h holds it. It is the only caller of Acquire.
// Unless the disruption completes the transition, it is refused with *TransitioningError while the number of approved
// control planes is even, before the lock is touched. Another holder is a *clusterlock.HeldError. Both are waits.
func (g *Gate) AcquireDisruptiveLock(ctx context.Context, cluster types.NamespacedName, h clusterlock.Holder, completesTransition bool) (*clusterlock.Held, error) {
	if !completesTransition {
		n, err := survey.CountApprovedControlPlanes(ctx, g.reader, cluster.Namespace, cluster.Name)
		if err != nil {
			return nil, fmt.Errorf("cannot count the approved control planes of cluster %q: %w", cluster.Name, err)
		}
		if n > 0 && n%2 == 0 {
			return nil, &TransitioningError{Cluster: cluster.Name, Approved: n}
		}
	}
	return g.locks.Acquire(ctx, key(cluster), h)
}

// Peek tells who holds the lock of a cluster; nil if nobody does.
func (g *Gate) Peek(ctx context.Context, cluster types.NamespacedName) (*clusterlock.Info, error) {
	return g.locks.Peek(ctx, key(cluster))
}

// HeldBy tells whether h holds the lock of a cluster now, and whether it is past the point of no return. A lock that
// has expired still counts: nobody else has taken it.
func (g *Gate) HeldBy(ctx context.Context, cluster types.NamespacedName, h clusterlock.Holder) (held, irreversible bool, err error) {
	info, err := g.locks.Peek(ctx, key(cluster))
	if err != nil {
		return false, false, fmt.Errorf("cannot read the lock of cluster %q: %w", cluster.Name, err)
	}
	if info == nil || !info.Holder.Is(h) {
		return false, false, nil
	}
	return true, info.Irreversible, nil
}

// ReleaseIfReversible gives the lock back if h holds it. Past the point of no return it returns *IrreversibleError: a
// half-done disruption must be finished before another one begins.
func (g *Gate) ReleaseIfReversible(ctx context.Context, cluster types.NamespacedName, h clusterlock.Holder) error {
	held, irreversible, err := g.HeldBy(ctx, cluster, h)
	if err != nil || !held {
		return err
	}
	if irreversible {
		return &IrreversibleError{Holder: h}
	}
	return g.Release(ctx, cluster, h)
}

// Release gives the lock back if h holds it, at the end of a finished disruption.
func (g *Gate) Release(ctx context.Context, cluster types.NamespacedName, h clusterlock.Holder) error {
	held, _, err := g.HeldBy(ctx, cluster, h)
	if err != nil || !held {
		return err
	}
	lock, err := g.AcquireDisruptiveLock(ctx, cluster, h, true)
	if err != nil {
		return fmt.Errorf("cannot release the lock of cluster %q: %w", cluster.Name, err)
	}
	if err := lock.Release(ctx); err != nil {
		return fmt.Errorf("cannot release the lock of cluster %q: %w", cluster.Name, err)
	}
	return nil
}

func key(cluster types.NamespacedName) types.NamespacedName {
	return types.NamespacedName{Namespace: cluster.Namespace, Name: clusterlock.LeaseName(cluster.Name)}
}
