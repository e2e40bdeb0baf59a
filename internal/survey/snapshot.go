package survey

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/types"

	"github.com/maesh/provider-ichor/internal/decide/facts"
)

// snapshotBudget bounds one survey that is made for all who want a snapshot of the cluster.
const snapshotBudget = 50 * time.Second

// snapshots are the last surveys of clusters. The zero value is ready for use.
type snapshots struct {
	flight singleflight.Group
	mu     sync.Mutex
	last   map[types.NamespacedName]facts.Cluster
}

// Snapshot is a survey that is at most some seconds old and shared by all machines of a cluster, so that n machines do not
// ask each other n times. It is for status only and must never be decided on: it carries no pods and no volumes, and the
// world may have changed since. Callers must not change it.
func (s *Surveyor) Snapshot(ctx context.Context, cluster types.NamespacedName) (facts.Cluster, error) {
	if f, ok := s.snapshots.get(cluster, s.clock.Now()); ok {
		return f, nil
	}
	// The survey goes on when the caller that happened to be first gives up: the others still want it.
	shared := context.WithoutCancel(ctx)
	done := s.snapshots.flight.DoChan(cluster.String(), func() (any, error) {
		ctx, cancel := context.WithTimeout(shared, snapshotBudget)
		defer cancel()
		f, err := s.Cluster(ctx, cluster, "")
		if err == nil {
			s.snapshots.put(cluster, f, s.clock.Now())
		}
		return f, err
	})
	select {
	case <-ctx.Done():
		return facts.Cluster{}, ctx.Err()
	case r := <-done:
		f, _ := r.Val.(facts.Cluster)
		return f, r.Err
	}
}

func (s *snapshots) get(cluster types.NamespacedName, now time.Time) (facts.Cluster, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.last[cluster]
	return f, ok && fresh(f, now)
}

// put keeps a survey and forgets those that are too old, so that clusters that are gone take no room.
func (s *snapshots) put(cluster types.NamespacedName, f facts.Cluster, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		s.last = map[types.NamespacedName]facts.Cluster{}
	}
	for k, old := range s.last {
		if !fresh(old, now) {
			delete(s.last, k)
		}
	}
	s.last[cluster] = f
}

func fresh(f facts.Cluster, now time.Time) bool { return now.Sub(f.TakenAt) <= maxAge }
