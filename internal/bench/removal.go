package bench

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// A removal is how long it took from the delete of a machine to the end of its finalizer.
type removal struct {
	what  string
	total time.Duration
	steps []step
}

// A step is what the status of a machine said, and for how long: an act, or what it waited for.
type step struct {
	name string
	took time.Duration
}

// measureRemovals removes a worker, and a control plane after another one has taken its place.
func (b *bench) measureRemovals(ctx context.Context) error {
	worker := fmt.Sprintf("worker-%d", b.workers)
	b.progressf("removing %s", worker)
	if err := b.remove(ctx, worker, "worker"); err != nil {
		return err
	}
	b.workers--
	b.progressf("a fourth control plane is coming up, to take the place of cp-2")
	if err := b.declareControlPlane(ctx, "cp-4"); err != nil {
		return err
	}
	if err := b.allReady(ctx, controlPlanes+1+b.workers); err != nil {
		return err
	}
	b.progressf("removing cp-2")
	return b.remove(ctx, "cp-2", "control plane")
}

// remove a machine and watch what its status says.
func (b *bench) remove(ctx context.Context, name, what string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	watcher, err := client.NewWithWatch(b.lab.Config(), client.Options{Scheme: b.kube.Scheme()})
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	w, err := watcher.Watch(ctx, &v1alpha1.TalosMachineList{}, client.InNamespace(namespace), client.MatchingFields{"metadata.name": name})
	if err != nil {
		return fmt.Errorf("cannot watch machine %q: %w", name, err)
	}
	defer w.Stop()
	began := time.Now()
	kubectl := exec.CommandContext(ctx, b.lab.Kubectl, "--kubeconfig", b.lab.Kubeconfig, "delete", "talosmachine", name, "--wait=false")
	if text, err := kubectl.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot delete machine %q: %w: %s", name, err, text)
	}
	r := removal{what: what}
	since, current := began, "(begins)"
	for e := range w.ResultChan() {
		m, ok := e.Object.(*v1alpha1.TalosMachine)
		if !ok {
			continue
		}
		now := time.Now()
		next := stepOf(m)
		if e.Type == watch.Deleted || next != "" && next != current {
			r.steps = append(r.steps, step{name: current, took: now.Sub(since)})
			since, current = now, next
		}
		if e.Type == watch.Deleted {
			r.total = now.Sub(began)
			b.removals = append(b.removals, r)
			return nil
		}
	}
	return fmt.Errorf("machine %q was not removed in %s: it is at step %q", name, patience, current)
}

func stepOf(m *v1alpha1.TalosMachine) string {
	if m.GetDeletionTimestamp() == nil || m.Status.AtProvider.Removal == nil {
		return ""
	}
	return m.Status.AtProvider.Removal.Step
}
