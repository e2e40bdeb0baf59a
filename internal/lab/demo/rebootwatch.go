package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/lab"
)

// A rebootWatch looks at machines, their Nodes and the cluster's lock, again and again, while machines are rebooted.
type rebootWatch struct {
	cancel context.CancelFunc
	done   chan struct{}
	look   func(ctx context.Context) (sample, error)
	// node tells whether a Node is cordoned and empty.
	node func(ctx context.Context, name string) (bool, error)

	// boots are the boot IDs in the beginning, and uids the objects, by the name of the TalosMachine.
	boots map[string]string
	uids  map[string]types.UID

	order []reboot
	mu    sync.Mutex
	wrong error
}

// A reboot that was seen.
type reboot struct {
	machine string
	// emptied is true once its Node was seen to be cordoned and empty while the machine was down or just back.
	emptied bool
	began   time.Time
	took    time.Duration
}

// A sample is what is seen at one time.
type sample struct {
	at       time.Time
	machines map[string]lab.Machine
	// holder of the cluster's lock, as in the Lease; empty if nobody holds it.
	holder string
}

func (d *Demo) watchReboots(ctx context.Context, names []string) (*rebootWatch, error) {
	kube, err := d.workload(ctx)
	if err != nil {
		return nil, err
	}
	w := &rebootWatch{boots: map[string]string{}, uids: map[string]types.UID{}, done: make(chan struct{})}
	addresses := map[string]string{}
	for _, name := range names {
		m, err := d.machine(ctx, name)
		if err != nil {
			return nil, err
		}
		seen, err := d.seen(ctx, name)
		if err != nil {
			return nil, err
		}
		w.boots[name], w.uids[name], addresses[seen.Address] = seen.BootID, m.GetUID(), name
	}
	w.look = func(ctx context.Context) (sample, error) { return d.sample(ctx, addresses) }
	w.node = func(ctx context.Context, name string) (bool, error) { return emptied(ctx, kube, name) }
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.cancel = cancel
	go w.run(watching)
	return w, nil
}

// sample looks at the machines first and at the lock after them: whoever is down has to hold it until long after it is back.
func (d *Demo) sample(ctx context.Context, addresses map[string]string) (sample, error) {
	s := sample{at: time.Now(), machines: map[string]lab.Machine{}}
	all, err := d.lab.Fleet.Machines(ctx)
	if err != nil {
		return s, err
	}
	for _, m := range all {
		if name, ok := addresses[m.Address]; ok {
			s.machines[name] = m
		}
	}
	locks := &coordinationv1.LeaseList{}
	err = d.kube.List(ctx, locks, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelCluster: clusterName})
	if err != nil || len(locks.Items) != 1 {
		return s, errors.Join(err, fmt.Errorf("the cluster has %d locks", len(locks.Items)))
	}
	if holder := locks.Items[0].Spec.HolderIdentity; holder != nil {
		s.holder = *holder
	}
	return s, nil
}

func (w *rebootWatch) run(ctx context.Context) {
	defer close(w.done)
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		// What cannot be looked at now is looked at again; a reboot that was never looked at is an error in the end.
		if s, err := w.look(ctx); err == nil {
			w.note(ctx, s)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// note compares a sample to those before it.
func (w *rebootWatch) note(ctx context.Context, s sample) {
	var down []string
	names := slices.Sorted(maps.Keys(s.machines))
	for _, name := range names {
		if m := s.machines[name]; !inService(m) {
			down = append(down, name)
		}
	}
	if len(down) > 1 {
		w.fail(fmt.Errorf("%d machines were down at once: %s", len(down), strings.Join(down, ", ")))
	}
	for _, name := range names {
		if m := s.machines[name]; m.BootID != w.boots[name] || m.Stage != stageRunning {
			w.disturbed(ctx, s, name)
		}
	}
}

func inService(m lab.Machine) bool { return m.Stage == stageRunning && m.Ready }

// disturbed is a machine that goes down, is down or has been. It has to hold the lock until it is ready, and must not have
// gone down before it was empty. Once it is ready its Node may have been given back, so that only tells nothing.
func (w *rebootWatch) disturbed(ctx context.Context, s sample, name string) {
	m, i := s.machines[name], w.find(name)
	if i < 0 {
		w.order, i = append(w.order, reboot{machine: name, began: s.at}), len(w.order)
	}
	r := &w.order[i]
	holds := s.holder == v1alpha1.TalosMachineKind+"/"+string(w.uids[name])
	if !inService(m) && !holds {
		w.fail(fmt.Errorf("%s was down in stage %q while the lock was held by %q", name, m.Stage, s.holder))
	}
	if inService(m) && r.took == 0 {
		r.took = s.at.Sub(r.began)
	}
	if r.emptied || !holds {
		return
	}
	empty, err := w.node(ctx, m.Hostname)
	if err == nil && !empty && !inService(m) {
		w.fail(fmt.Errorf("%s went down before its Node was cordoned and empty", name))
	}
	r.emptied = err == nil && empty
}

func (w *rebootWatch) find(name string) int {
	for i := range w.order {
		if w.order[i].machine == name {
			return i
		}
	}
	return -1
}

func (w *rebootWatch) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrong == nil {
		w.wrong = err
	}
}

// broken is what was seen that must not be, so far.
func (w *rebootWatch) broken() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wrong
}

// stop ends the watch. Stopping twice does no harm.
func (w *rebootWatch) stop() {
	w.cancel()
	<-w.done
}

// verdict is an error unless so many machines were rebooted, each as it should be. The watch has to be stopped.
func (w *rebootWatch) verdict(want int) error {
	if w.wrong != nil {
		return w.wrong
	}
	if len(w.order) != want {
		return fmt.Errorf("%d machines were seen to be rebooted, want %d", len(w.order), want)
	}
	for _, r := range w.order {
		if !r.emptied {
			return errors.New("the Node of " + r.machine + " was never seen to be cordoned and empty")
		}
	}
	return nil
}
