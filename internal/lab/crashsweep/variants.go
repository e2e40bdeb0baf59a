package crashsweep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// staleFor is how long a cache stays behind: the new provider has gone through everything a few times by then.
const staleFor = 10 * time.Second

// The names of variants.
const (
	// Plain is a kill, and nothing else.
	Plain = "plain"
	// Stale has the cache of the new provider begin before the last write.
	Stale = "stale"
	// StatusLost has every status be gone, as in a management cluster that was restored from a backup without them.
	StatusLost = "status-lost"
	// Second has another provider run all the time.
	Second = "second"
)

// Variants are the names of all variants.
func Variants() []string { return []string{Plain, Stale, StatusLost, Second} }

// A variant is what happens besides a kill. What is nil does not.
type variant struct {
	// begin and end are once, before and after all points.
	begin func(context.Context, *sweep) error
	end   func(*sweep) error
	// killed is after the kill and before a new provider starts.
	killed func(context.Context, *sweep) error
	// started is after that.
	started func(context.Context, *sweep) error
}

func variants() map[string]variant {
	return map[string]variant{
		Plain: {},
		Stale: {
			killed: func(_ context.Context, s *sweep) error { s.past.show(staleFor); return nil },
			started: func(ctx context.Context, s *sweep) error {
				return s.await(ctx, "a cache is behind", func(context.Context) error {
					if s.past.answered() == 0 {
						return errors.New("none has asked")
					}
					return nil
				})
			},
		},
		StatusLost: {killed: func(ctx context.Context, s *sweep) error { return s.loseStatus(ctx) }},
		Second: {
			begin: func(ctx context.Context, s *sweep) error { return s.lab.StartSecondProvider(ctx) },
			end:   func(s *sweep) error { return s.lab.StopSecondProvider() },
		},
	}
}

// loseStatus empties the status of everything that has one.
func (s *sweep) loseStatus(ctx context.Context) error {
	machines, err := s.machines(ctx)
	if err != nil {
		return err
	}
	clusters := &v1alpha1.TalosClusterList{}
	if err := s.kube.List(ctx, clusters, client.InNamespace(namespace)); err != nil {
		return err
	}
	var errs []error
	for i := range machines {
		m := &machines[i]
		errs = append(errs, s.empty(ctx, m, func() { m.Status = v1alpha1.TalosMachineStatus{} }))
	}
	for i := range clusters.Items {
		c := &clusters.Items[i]
		errs = append(errs, s.empty(ctx, c, func() { c.Status = v1alpha1.TalosClusterStatus{} }))
	}
	return errors.Join(errs...)
}

// empty a status, once what the dead one has still sent has arrived.
func (s *sweep) empty(ctx context.Context, o client.Object, empty func()) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := s.kube.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		empty()
		return s.kube.Status().Update(ctx, o)
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot empty the status of %s: %w", o.GetName(), err)
	}
	return nil
}
