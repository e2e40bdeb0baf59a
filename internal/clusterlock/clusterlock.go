package clusterlock

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// leaseDuration is how long a Lease must stay unchanged before another holder may take it.
	leaseDuration = 5 * time.Minute
	// renewDeadline is how long after its last renewal a holder may still act. What is left of leaseDuration is the
	// margin for clocks that run at different speeds and for a call that was sent at the last moment.
	renewDeadline = 4 * time.Minute
	// renewEvery is how old the last renewal gets while work goes on.
	renewEvery = time.Minute
	// retryEvery is how soon a renewal that failed is tried again.
	retryEvery = 10 * time.Second
	// requestTimeout bounds one request to the API server, so that one that hangs leaves time for others.
	requestTimeout = 10 * time.Second
	// maxRaces is how often a taking is tried again after another write came in between.
	maxRaces = 3
)

const leaseSuffix = "-disruption"

// LeaseName is the name of the Lease for the cluster of this name.
func LeaseName(cluster string) string { return cluster + leaseSuffix }

// ClusterName is the name of the cluster whose Lease has this name.
func ClusterName(lease string) string { return strings.TrimSuffix(lease, leaseSuffix) }

// A Holder is the work that a lock is held for. Two holders are the same if kind and UID are.
type Holder struct {
	// Kind, Name and UID of the object that is worked on, in the namespace of the Lease.
	Kind, Name string
	UID        types.UID
	// Purpose of the work, for people.
	Purpose string
}

// Is tells whether both are the same work's holder, whatever they are called now.
func (h Holder) Is(other Holder) bool { return h.Kind == other.Kind && h.UID == other.UID }

// work is what a holder does, as part of a sentence.
func (h Holder) work() string {
	return fmt.Sprintf("%s of %s %q", cmp.Or(h.Purpose, "work"), h.Kind, h.Name)
}

// Info is what a Lease tells about who holds it.
type Info struct {
	Holder Holder
	// Since is when the holder took the lock, by its own clock.
	Since time.Time
	// Irreversible is true once the holder has said that its work can only go on.
	Irreversible bool
}

// Locks are the locks in one API server. They are safe for concurrent use.
type Locks struct {
	client client.Client
	reader client.Reader
	clock  clock.WithTicker
	gone   func(ctx context.Context, namespace string, h Holder) (bool, error)
	labels func(key types.NamespacedName) map[string]string

	mu       sync.Mutex
	sessions map[types.NamespacedName]*session
	seen     map[types.NamespacedName]sighting
}

// An Option changes how Locks work.
type Option func(*Locks)

// WithHolderGone says how to find out whether the object of a holder is gone for good. It is asked before an expired
// lock is taken whose holder is past the point of no return; without it such a lock stays with its holder.
func WithHolderGone(gone func(ctx context.Context, namespace string, h Holder) (bool, error)) Option {
	return func(l *Locks) { l.gone = gone }
}

// WithLabels says which labels a Lease gets. The key is that of the Lease.
func WithLabels(labels func(key types.NamespacedName) map[string]string) Option {
	return func(l *Locks) { l.labels = labels }
}

// New returns the locks that c writes. The reader must be uncached: a lock that is read from a cache excludes nobody.
func New(c client.Client, uncached client.Reader, clk clock.WithTicker, opts ...Option) *Locks {
	l := &Locks{
		client:   c,
		reader:   uncached,
		clock:    clk,
		sessions: map[types.NamespacedName]*session{},
		seen:     map[types.NamespacedName]sighting{},
	}
	for _, o := range opts {
		o(l)
	}
	return l
}

// Peek tells who holds a lock, expired or not. It is nil if nobody does.
func (l *Locks) Peek(ctx context.Context, key types.NamespacedName) (*Info, error) {
	lease, err := l.read(ctx, key)
	if lease == nil || err != nil {
		return nil, err
	}
	r := decode(lease)
	if r.free {
		return nil, nil
	}
	return &r.Info, nil
}
