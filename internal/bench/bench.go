// Package bench measures what the provider costs on a real management cluster and simulated machines, and prints tables. It
// must never judge: figures depend on the machine that they are taken on, and what must hold on every machine is a test.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	kruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/lab"
)

// controlPlanes is how many of the machines of a size are control planes, each with a real etcd member.
const controlPlanes = 3

// Poll is how often the provider looks at each object: its default.
const Poll = time.Minute

// Options of a run.
type Options struct {
	// Sizes are the numbers of machines to measure at; each is more than the three control planes.
	Sizes []int
	// Settle is how long nothing is measured after the last machine became ready, and Window how long is measured then.
	Settle, Window time.Duration
	// Scale is the factor that divides the waits of the simulated machines, for the heading.
	Scale int
	// Out gets progress and tables.
	Out io.Writer
}

// Check returns an error that says what is wrong with the options.
func (o Options) Check() error {
	if len(o.Sizes) == 0 {
		return errors.New("at least one size is needed")
	}
	for _, n := range o.Sizes {
		if n <= controlPlanes {
			return fmt.Errorf("size %d is too small: a size is the number of machines, and %d of them are control planes", n, controlPlanes)
		}
	}
	if o.Window <= 0 || o.Settle < 0 {
		return fmt.Errorf("a window of %s after %s measures nothing: the window must be above 0, what is before it not below", o.Window, o.Settle)
	}
	return nil
}

// Machines is how many blank machines a run needs: those of the largest size, and two for those that are removed.
func (o Options) Machines() int { return slices.Max(o.Sizes) + 2 }

// A bench is one run.
type bench struct {
	o    Options
	lab  *lab.Lab
	kube client.Client
	rest rest.Interface // of the management cluster, for its metrics

	// workers is how many workers are declared, and blank which machines are left.
	workers int
	blank   []lab.Machine
	// planes are the names of the simulated machines that are control planes.
	planes   map[string]bool
	samples  []sample
	removals []removal
}

// Run measures on a lab whose machines are all blank. The tables are printed as far as it got, also when it fails.
func Run(ctx context.Context, l *lab.Lab, o Options) error {
	if err := o.Check(); err != nil {
		return err
	}
	b, err := newBench(ctx, l, o)
	if err != nil {
		return err
	}
	err = b.run(ctx)
	return errors.Join(err, b.report())
}

func newBench(ctx context.Context, l *lab.Lab, o Options) (*bench, error) {
	scheme := kruntime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("cannot make a scheme: %w", err)
	}
	cfg := rest.CopyConfig(l.Config())
	cfg.QPS, cfg.Burst = 100, 200 // Hundreds of machines are declared at once.
	kube, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	plain, err := rest.UnversionedRESTClientFor(withCodec(cfg))
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for metrics: %w", err)
	}
	b := &bench{o: o, lab: l, kube: kube, rest: plain, planes: map[string]bool{}}
	if b.blank, err = l.Fleet.Machines(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

func withCodec(cfg *rest.Config) *rest.Config {
	c := rest.CopyConfig(cfg)
	c.NegotiatedSerializer = clientgoscheme.Codecs.WithoutConversion()
	return c
}

func (b *bench) run(ctx context.Context) error {
	if err := b.found(ctx); err != nil {
		return err
	}
	sizes := slices.Clone(b.o.Sizes)
	slices.Sort(sizes)
	for i, n := range slices.Compact(sizes) {
		if err := b.measureAt(ctx, n); err != nil {
			return fmt.Errorf("cannot measure at %d machines: %w", n, err)
		}
		if i > 0 {
			continue
		}
		if err := b.measureRemovals(ctx); err != nil {
			return fmt.Errorf("cannot measure removals: %w", err)
		}
	}
	return nil
}

func (b *bench) measureAt(ctx context.Context, n int) error {
	began := time.Now()
	if err := b.grow(ctx, n); err != nil {
		return err
	}
	b.progressf("%d machines are ready after %s; settling for %s, then measuring for %s", n, time.Since(began).Round(time.Second), b.o.Settle, b.o.Window)
	if err := pause(ctx, b.o.Settle); err != nil {
		return err
	}
	s, err := b.measure(ctx, n)
	if err != nil {
		return err
	}
	b.samples = append(b.samples, s)
	return nil
}

func (b *bench) progressf(format string, args ...any) { fmt.Fprintf(b.o.Out, format+"\n", args...) }

// pause waits, or returns ctx's error if that comes first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *bench) heading() string {
	return fmt.Sprintf("%s/%s, %d cores, %s; poll %s; one cluster with %d control planes on real etcd, workers simulated without etcd; waits of machines divided by %d",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), Poll, controlPlanes, b.o.Scale)
}
