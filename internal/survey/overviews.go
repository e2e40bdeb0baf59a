package survey

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/facts"
)

// An overview is what is known of a cluster as a whole.
type overview struct {
	made  time.Time
	facts facts.Cluster
	// answers and access are nil if the cluster could not be opened.
	answers *answers
	access  Access
}

// fresh tells whether an overview is young enough.
func (v overview) fresh(now time.Time, rest time.Duration) bool {
	return !v.made.IsZero() && now.Sub(v.made) <= freshFor && (v.answers == nil || v.answers.fresh(now, rest))
}

// answers are what machines and the Kubernetes API of a cluster told. They never change.
type answers struct {
	at time.Time
	// asked are the machines that were asked, as they were declared, and seen what each of them answered.
	asked  []facts.Machine
	seen   []sight
	nodes  nodeReader
	atRest bool
}

func (a *answers) fresh(now time.Time, rest time.Duration) bool {
	limit := freshFor
	if a.atRest {
		limit = max(limit, rest)
	}
	return now.Sub(a.at) <= limit
}

// of tells whether these are the answers of just these machines, as they are declared now.
func (a *answers) of(machines []facts.Machine) bool {
	return slices.EqualFunc(a.asked, machines, func(a, b facts.Machine) bool {
		return a.ID == b.ID && a.Address == b.Address && a.Role == b.Role && a.UUID == b.UUID &&
			a.Approved == b.Approved && a.Deleting == b.Deleting && a.Removed == b.Removed
	})
}

// askAll asks machines and the Kubernetes API at the same time.
func askAll(ctx context.Context, access Access, machines []facts.Machine, now time.Time) *answers {
	a := &answers{at: now, asked: machines}
	var g errgroup.Group
	g.Go(func() error { a.seen = ask(ctx, access, machines); return nil })
	g.Go(func() error { a.nodes = readNodes(ctx, access); return nil })
	_ = g.Wait() // Neither of the two fails: what they could not read is unknown.
	a.atRest = a.rests()
	return a
}

// rests tells whether nothing is going on in the cluster, as far as was asked.
func (a *answers) rests() bool {
	if a.nodes.why != "" || len(a.asked) == 0 {
		return false
	}
	for i, m := range a.asked {
		if m.Approved && !m.Removed && !rests(m, a.seen[i]) {
			return false
		}
	}
	return !slices.ContainsFunc(a.nodes.nodes, func(n corev1.Node) bool {
		return n.GetAnnotations()[v1alpha1.AnnotationCordonedBy] != ""
	})
}

func rests(m facts.Machine, s sight) bool {
	live, answered := s.live.Get()
	if m.Deleting || m.Record != nil || !answered || live.Mode != facts.Configured || live.Stage != stageRunning || !live.Ready {
		return false
	}
	if m.Role != facts.ControlPlane {
		return true
	}
	v, ok := viewOf(m, s)
	alarms, told := s.alarms.Get()
	return ok && facts.Is(v.Healthy, true) && !v.Learner && v.Members.IsKnown() && told && len(alarms) == 0
}

// facts puts the answers together with what is declared.
func (a *answers) facts(ctx context.Context, o *objects) facts.Cluster {
	seen := make([]sight, len(o.machines))
	next := 0
	for i := range o.machines {
		seen[i] = sight{live: facts.Unknown[facts.Live](whyNotAsked)}
		if next < len(a.asked) && a.asked[next].ID == o.machines[i].ID {
			seen[i], next = a.seen[next], next+1
		}
		o.machines[i].Live = seen[i].live
	}
	o.matchNodes(ctx, a.nodes, "")
	f := o.facts()
	f.TakenAt = a.at
	f.Etcd = etcdOf(o.machines, seen)
	return f
}

// overviews are the last overviews of clusters. The zero value is ready for use.
type overviews struct {
	flight singleflight.Group

	mu   sync.Mutex
	last map[types.NamespacedName]*keptOverview
}

// of returns the place of a cluster's overview.
func (o *overviews) of(cluster types.NamespacedName) *keptOverview {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == nil {
		o.last = map[types.NamespacedName]*keptOverview{}
	}
	if o.last[cluster] == nil {
		o.last[cluster] = &keptOverview{}
	}
	return o.last[cluster]
}

// forget drops the overview of a cluster, also one that is being made: its place is not looked at any more.
func (o *overviews) forget(cluster types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.last, cluster)
}

// sweep drops overviews that nobody asks for any more, so that clusters that are gone take no room.
func (o *overviews) sweep(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for cluster, kept := range o.last {
		if v := kept.get(); !v.made.IsZero() && now.Sub(v.made) > keptFor {
			delete(o.last, cluster)
		}
	}
}

// A keptOverview is the place of one cluster's overview.
type keptOverview struct {
	mu sync.Mutex
	v  overview
}

func (k *keptOverview) get() overview {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.v
}

func (k *keptOverview) put(v overview) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.v = v
}
