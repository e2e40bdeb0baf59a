package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/procfs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/lab"
)

// A sample is what the provider cost in one window, at rest.
type sample struct {
	machines int
	window   time.Duration
	// resident memory at the end, in bytes, and CPU time used, in seconds.
	resident int
	cpu      float64
	// reads and writes of objects of the provider's own group at the management API, by anybody; events are writes of
	// Events. A write that changes nothing is answered and not stored: changes are those that were.
	reads, writes, events float64
	changes               int
	rpcs                  rpcs
}

// rpcs are the calls that reached machines.
type rpcs struct {
	controlPlanes, workers int // calls
	mutating               int
	// passes are those in which the configuration of a machine was read: each Observe does it once.
	controlPlanePasses, workerPasses int
	// overviews is how often a control plane was asked for the members of etcd, which only surveys of the cluster do.
	overviews int
	// connections is the largest number of connections that one machine saw.
	connections int
}

// A mark is where counters stood.
type mark struct {
	at                    time.Time
	seq                   uint64
	cpu                   float64
	reads, writes, events float64
}

// measure one window.
func (b *bench) measure(ctx context.Context, n int) (sample, error) {
	before, _, err := b.mark(ctx)
	if err != nil {
		return sample{}, err
	}
	calls, err := b.lab.Fleet.RPCs(ctx, 0)
	if err != nil {
		return sample{}, err
	}
	if len(calls) > 0 {
		before.seq = calls[len(calls)-1].Seq
	}
	changes, err := b.countChanges(ctx)
	if err != nil {
		return sample{}, err
	}
	after, resident, err := b.mark(ctx)
	if err != nil {
		return sample{}, err
	}
	if calls, err = b.lab.Fleet.RPCs(ctx, before.seq); err != nil {
		return sample{}, err
	}
	return sample{
		machines: n, window: after.at.Sub(before.at), resident: resident, cpu: after.cpu - before.cpu,
		reads: after.reads - before.reads, writes: after.writes - before.writes, events: after.events - before.events,
		changes: changes, rpcs: count(calls, b.isControlPlane),
	}, nil
}

// countChanges waits one window and counts how often an object of the provider was changed in it.
func (b *bench) countChanges(ctx context.Context) (int, error) {
	watcher, err := client.NewWithWatch(b.lab.Config(), client.Options{Scheme: b.kube.Scheme()})
	if err != nil {
		return 0, fmt.Errorf("cannot make a client: %w", err)
	}
	changes := 0
	var watches []watch.Interface
	for _, l := range []client.ObjectList{&v1alpha1.TalosMachineList{}, &v1alpha1.TalosClusterList{}} {
		// A watch from nowhere begins with what is there: it must begin with what comes.
		if err := watcher.List(ctx, l, client.InNamespace(namespace)); err != nil {
			return 0, fmt.Errorf("cannot list objects: %w", err)
		}
		w, err := watcher.Watch(ctx, l, client.InNamespace(namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: l.GetResourceVersion()}})
		if err != nil {
			return 0, fmt.Errorf("cannot watch objects: %w", err)
		}
		defer w.Stop()
		watches = append(watches, w)
	}
	end := time.NewTimer(b.o.Window)
	defer end.Stop()
	for {
		select {
		case e, open := <-watches[0].ResultChan():
			if !open {
				return 0, errors.New("the watch of machines was broken off")
			}
			changes += one(e.Type == watch.Modified)
		case e, open := <-watches[1].ResultChan():
			if !open {
				return 0, errors.New("the watch of clusters was broken off")
			}
			changes += one(e.Type == watch.Modified)
		case <-end.C:
			return changes, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (b *bench) mark(ctx context.Context) (mark, int, error) {
	p, err := procfs.NewProc(b.lab.ProviderPID())
	if err != nil {
		return mark{}, 0, fmt.Errorf("cannot look at the process of the provider: %w", err)
	}
	st, err := p.Stat()
	if err != nil {
		return mark{}, 0, fmt.Errorf("cannot look at the process of the provider: %w", err)
	}
	m := mark{at: time.Now(), cpu: st.CPUTime()}
	text, err := b.rest.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return mark{}, 0, fmt.Errorf("cannot read the metrics of the management cluster: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return mark{}, 0, fmt.Errorf("cannot read the metrics of the management cluster: %w", err)
	}
	m.reads, m.writes, m.events = requests(families["apiserver_request_total"])
	return m, st.ResidentMemory(), nil
}

// requests counts what was asked of the management API: of the provider's own group, and of Events.
func requests(f *dto.MetricFamily) (reads, writes, events float64) {
	for _, m := range f.GetMetric() {
		is := map[string]string{}
		for _, l := range m.GetLabel() {
			is[l.GetName()] = l.GetValue()
		}
		n := m.GetCounter().GetValue()
		write := false
		switch is["verb"] {
		case "POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION":
			write = true
		}
		switch {
		case write && is["group"] == v1alpha1.Group:
			writes += n
		case write && is["resource"] == "events":
			events += n
		case is["group"] == v1alpha1.Group && is["verb"] != "WATCH":
			reads += n
		}
	}
	return reads, writes, events
}

// count the calls of a window.
func count(calls []lab.RPC, isControlPlane func(machine string) bool) rpcs {
	var r rpcs
	peers := map[string]map[string]bool{}
	for _, c := range calls {
		config := strings.Contains(c.Detail, "MachineConfig")
		if isControlPlane(c.Machine) {
			r.controlPlanes++
			r.controlPlanePasses += one(config)
			r.overviews += one(strings.HasSuffix(c.Method, "/EtcdMemberList"))
		} else {
			r.workers++
			r.workerPasses += one(config)
		}
		r.mutating += one(c.Mutating)
		if peers[c.Machine] == nil {
			peers[c.Machine] = map[string]bool{}
		}
		peers[c.Machine][c.Peer] = true
		r.connections = max(r.connections, len(peers[c.Machine]))
	}
	return r
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}
