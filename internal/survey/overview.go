package survey

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/maesh/provider-ichor/internal/decide/facts"
)

const (
	// freshFor is how long an overview may be used without reading anything anew.
	freshFor = 10 * time.Second

	// overviewBudget bounds one overview that is made for all who want one.
	overviewBudget = 50 * time.Second

	// keptFor is how long the overview of a cluster is kept that nobody asks for any more.
	keptFor = 10 * time.Minute
)

const whyNotAsked = "the machine is not asked for an overview of its cluster"

// Overview tells what concerns a cluster as a whole: its objects, what its control planes say, and its Nodes. It is shared
// by all machines of the cluster, so that n machines do not ask each other n times, and it is for status only: it must
// never be decided on. Workers that are known by their UUID are not asked and have an unknown Live. Callers must not change
// what they get.
//
// Objects are at most ten seconds old. So is what control planes and Nodes tell, unless the cluster is at rest: then it may
// be as old as rest says, so that a poll of all machines asks for it once. At rest means that every control plane runs, is
// ready and is a healthy voter, and that nothing is cordoned or on its way out. A survey for a decision ends the rest.
func (s *Surveyor) Overview(ctx context.Context, cluster types.NamespacedName, rest time.Duration) (facts.Cluster, error) {
	v, err := s.overview(ctx, cluster, rest)
	return v.facts, err
}

// Snapshot is an overview that is at most ten seconds old, with what the target itself says: to find out whether it is
// worth to ask for a lock. It must never be decided on.
func (s *Surveyor) Snapshot(ctx context.Context, cluster types.NamespacedName, target facts.MachineID) (facts.Cluster, error) {
	v, err := s.overview(ctx, cluster, 0)
	if err != nil || v.answers == nil {
		return v.facts, err
	}
	f := v.facts
	i := slices.IndexFunc(f.Machines, func(m facts.Machine) bool { return m.ID == target })
	if i < 0 || inOverview(f.Machines[i]) {
		return f, nil
	}
	f.Machines = slices.Clone(f.Machines)
	f.Machines[i].Live = askOne(ctx, v.access, f.Machines[i]).live
	return f, nil
}

// inOverview tells whether a machine is asked for an overview: control planes, who speak for the cluster, and machines
// that are not known by a UUID yet, which may turn out to be declared twice.
func inOverview(m facts.Machine) bool { return m.Role == facts.ControlPlane || m.UUID == "" }

// overview returns the last overview of a cluster if it is fresh, else a new one, made once for all who want one.
func (s *Surveyor) overview(ctx context.Context, cluster types.NamespacedName, rest time.Duration) (overview, error) {
	kept := s.overviews.of(cluster)
	if v := kept.get(); v.fresh(s.clock.Now(), rest) {
		return v, nil
	}
	// The survey goes on when the caller that happened to be first gives up: the others still want it.
	shared := context.WithoutCancel(ctx)
	done := s.overviews.flight.DoChan(fmt.Sprintf("%s %s", cluster, rest), func() (any, error) {
		ctx, cancel := context.WithTimeout(shared, overviewBudget)
		defer cancel()
		last := kept.get()
		if last.fresh(s.clock.Now(), rest) {
			return last, nil // Another one has ended since this was found to be needed.
		}
		v, err := s.look(ctx, cluster, last.answers, rest)
		if err == nil {
			kept.put(v)
			s.overviews.sweep(s.clock.Now())
		}
		return v, err
	})
	select {
	case <-ctx.Done():
		return overview{}, ctx.Err()
	case r := <-done:
		v, _ := r.Val.(overview)
		return v, r.Err
	}
}

// look makes an overview, from what was answered last if that is fresh and the same machines would be asked again.
func (s *Surveyor) look(ctx context.Context, cluster types.NamespacedName, last *answers, rest time.Duration) (overview, error) {
	now := s.clock.Now()
	o, err := s.objectsBy(ctx, s.cached, cluster)
	if err != nil {
		return overview{}, err
	}
	access, why := s.access(ctx, o)
	if access == nil {
		o.unknown(why)
		return overview{made: now, facts: o.facts()}, nil
	}
	var asked []facts.Machine
	for _, m := range o.machines {
		if inOverview(m) {
			asked = append(asked, m)
		}
	}
	a := last
	if a == nil || !a.fresh(now, rest) || !a.of(asked) {
		a = askAll(ctx, access, asked, now)
	}
	return overview{made: now, facts: a.facts(ctx, o), answers: a, access: access}, nil
}
