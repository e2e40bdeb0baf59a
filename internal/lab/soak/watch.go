package soak

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/maesh/provider-ichor/internal/lab"
)

// A Watch is what judges campaigns, for others who disturb a cluster and want it judged the same: it looks at etcd and at the
// calls that machines get until it is stopped.
type Watch struct{ monitor *monitor }

// NewWatch begins to look at a cluster that serves. All machines of the lab may be sent changes; none is broken on purpose.
func NewWatch(ctx context.Context, l *lab.Lab, pki, connection *corev1.Secret) (*Watch, error) {
	machines, err := l.Fleet.Machines(ctx)
	if err != nil {
		return nil, err
	}
	j := newJudge()
	j.patience = hindsight
	for _, m := range machines {
		j.approved[m.Name] = true
	}
	m, err := watch(ctx, l, j, pki, connection, func(string, ...any) {})
	if err != nil {
		return nil, err
	}
	return &Watch{monitor: m}, nil
}

// Broken are the rules that were broken so far, in order.
func (w *Watch) Broken() []string {
	var out []string
	for _, v := range w.monitor.broken() {
		out = append(out, v.String())
	}
	return out
}

// Looks is how often etcd was looked at.
func (w *Watch) Looks() int {
	w.monitor.mu.Lock()
	defer w.monitor.mu.Unlock()
	return w.monitor.looks
}

// Stop ends it. An error means that something may have been missed.
func (w *Watch) Stop() error { return w.monitor.stop() }
