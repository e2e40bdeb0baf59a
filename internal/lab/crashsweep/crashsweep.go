// Package crashsweep kills the provider right after each of its writes, to Kubernetes or to a machine, and lets a new one go
// on: the real binary, a real API server in front of it and real etcd members inside of the machines. What comes of it is
// judged from outside. It must never take the product's word for what the world can be asked.
package crashsweep

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/lab"
	"github.com/maesh/provider-ichor/internal/lab/soak"
)

// machineCount is how many machines a sweep needs: one is to spare.
const machineCount = declared + workers + 1

// patience is how long a job may take, killed or not, on two cores that everything shares.
const patience = 5 * time.Minute

// Options of a sweep.
type Options struct {
	// Jobs are swept one after another; Jobs() has their names.
	Jobs []string
	// Every n-th write is one to be killed after, from Offset on; 0 is each, from the first.
	Every, Offset int
	// Limit is about how long each job may be swept, at least one point; 0 has no end. It makes Every as large as it has to be.
	Limit time.Duration
	// Lab is what the sweep runs on, besides what it sets itself.
	Lab lab.Options
	// Subnet is where the machines are, a /24.
	Subnet netip.Prefix
	// Out gets a line for each point.
	Out io.Writer
}

// A Report is what a sweep came to.
type Report struct {
	Jobs []JobReport
	// Looks is how often etcd was looked at.
	Looks int
}

// A JobReport is what the sweep of one job came to.
type JobReport struct {
	Name string
	// Writes is how many the job took when nobody was killed. From the one with the number Offset on, each Every-th was followed by
	// a kill, which makes Points.
	Writes, Offset, Every, Points int
	// Violation is what did not hold in the end; empty if all did.
	Violation string
}

// Points are those of all jobs.
func (r Report) Points() int {
	n := 0
	for _, j := range r.Jobs {
		n += j.Points
	}
	return n
}

// Violations are those of all jobs.
func (r Report) Violations() []string {
	var out []string
	for _, j := range r.Jobs {
		if j.Violation != "" {
			out = append(out, j.Name+": "+j.Violation)
		}
	}
	return out
}

// A sweep is one run on one lab.
type sweep struct {
	o    Options
	lab  *lab.Lab
	kube client.Client
	fuse *fuse

	// heard is where machines tell what they have carried out, and entrance the front of the management cluster.
	heard, entrance *front
	// workload is the front of the cluster's API, and nodes looks at that from behind; nil without a cluster.
	workload *front
	nodes    kubernetes.Interface
	watch    *soak.Watch
	report   Report
	// joined counts the control planes that were ever declared, hired the workers, and changed the changes that need a reboot.
	joined, hired, changed int
}

// Run sweeps. An error says that it could not be run; what did not hold is in the report, and ends it.
func Run(ctx context.Context, o Options) (found Report, err error) {
	for _, name := range o.Jobs {
		if !slices.Contains(Jobs(), name) {
			return found, fmt.Errorf("there is no job %q; there are %s", name, strings.Join(Jobs(), ", "))
		}
	}
	s := &sweep{o: o, fuse: &fuse{}}
	defer func() {
		err = errors.Join(err, s.stop(err != nil))
		found = s.report
	}()
	if err := s.start(ctx); err != nil {
		return found, err
	}
	for _, name := range o.Jobs {
		r, err := s.sweepJob(ctx, name)
		s.report.Jobs = append(s.report.Jobs, r)
		if err != nil || r.Violation != "" {
			return found, err
		}
	}
	return found, nil
}

// start a lab whose provider cannot write anything without the fuse being told.
func (s *sweep) start(ctx context.Context) (err error) {
	if s.heard, err = serve(ctx, "127.0.0.1:0", nil, calls(s.fuse)); err != nil {
		return err
	}
	o := s.o.Lab
	o.Machines, o.Subnet, o.Tell = machineCount, s.o.Subnet, "http://"+s.heard.listener.Addr().String()
	o.Front = func(to *rest.Config) (through *rest.Config, err error) {
		s.entrance, through, err = management(ctx, to, s.fuse)
		return through, err
	}
	if s.lab, err = lab.Start(ctx, o); err != nil {
		return err
	}
	s.fuse.kill = s.lab.KillProvider
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("cannot make a scheme: %w", err)
	}
	config := rest.CopyConfig(s.lab.Config())
	config.QPS = -1 // A limit would have the last word when patience ends, and hide what was waited for.
	if s.kube, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	return nil
}

// stop everything that was started. What went wrong leaves the log of the providers behind.
func (s *sweep) stop(failed bool) (err error) {
	err = s.leave()
	if s.lab != nil {
		if failed || len(s.report.Violations()) > 0 {
			err = errors.Join(err, s.keepLog())
		}
		err = errors.Join(err, s.lab.Stop())
	}
	for _, f := range []*front{s.heard, s.entrance} {
		if f != nil {
			f.close()
		}
	}
	return err
}

// keepLog keeps the log of the providers, which has no secrets in it.
func (s *sweep) keepLog() error {
	text, err := os.ReadFile(s.lab.ProviderLog())
	if err != nil {
		return fmt.Errorf("cannot read the log of the providers: %w", err)
	}
	to := filepath.Join(s.o.Lab.Logs, "provider.log")
	if err := write(to, text); err != nil {
		return fmt.Errorf("cannot keep the log of the providers: %w", err)
	}
	s.sayf("the log of the providers is in %s", to)
	return nil
}

// leave the cluster, which is about to end or has ended. An error means that something may have been missed of it.
func (s *sweep) leave() (err error) {
	if s.watch != nil {
		s.report.Looks += s.watch.Looks()
		err = s.watch.Stop()
		s.watch = nil
	}
	if s.workload != nil {
		s.workload.close()
		s.workload = nil
	}
	return err
}

// sweepJob runs a job without a kill, to see what it writes, and then with a kill after each of these writes that is due.
func (s *sweep) sweepJob(ctx context.Context, name string) (JobReport, error) {
	r, j := JobReport{Name: name, Offset: max(s.o.Offset, 1), Every: max(s.o.Every, 1)}, s.jobs()[name]
	p, err := s.point(ctx, j, 0)
	if err != nil {
		return r, err
	}
	r.Writes, r.Violation = len(p.writes), p.violation
	s.sayf("%s: %d writes, %.1f s without a kill%s", name, r.Writes, p.took.Seconds(), told(r.Violation))
	begun := time.Now()
	for k := r.Offset; r.Violation == "" && k <= r.Writes; k += r.Every {
		if p, err = s.point(ctx, j, k); err != nil {
			return r, err
		}
		if r.Violation = p.violation; !p.killed {
			s.sayf("%s: it took %d writes only this time%s", name, len(p.writes), told(r.Violation))
			break
		}
		r.Points++
		s.sayf("%s %3d/%d  %-60s at its end after %5.1f s%s", name, k, r.Writes, p.writes[k-1], p.took.Seconds(), told(r.Violation))
		if k == r.Offset {
			r.Every = max(r.Every, s.fits(r.Writes-k, time.Since(begun)))
		}
	}
	s.sayf("%s: %d of %d writes were followed by a kill, from %d on every %d.", name, r.Points, r.Writes, r.Offset, r.Every)
	return r, nil
}

// fits is the distance at which so many writes are swept within the limit if one takes that long.
func (s *sweep) fits(writes int, one time.Duration) int {
	if s.o.Limit <= 0 {
		return 1
	}
	n := max(int(s.o.Limit/one)-1, 1)
	return (writes + n - 1) / n
}

func told(violation string) string {
	if violation == "" {
		return ""
	}
	return "  VIOLATION " + violation
}

// A point is one run of a job.
type point struct {
	writes []string
	killed bool
	// took is how long it took to its end: from the kill if there was one, else from the beginning.
	took      time.Duration
	violation string
}

// point runs a job once, with a kill after its k-th write unless k is 0.
func (s *sweep) point(ctx context.Context, j job, k int) (point, error) {
	if err := j.prepare(ctx); err != nil {
		return point{}, fmt.Errorf("cannot prepare: %w", err)
	}
	from, err := s.lab.Fleet.LastCall(ctx)
	if err != nil {
		return point{}, err
	}
	s.fuse.light(k)
	begun := time.Now()
	a, err := j.ask(ctx)
	if err != nil {
		return point{}, fmt.Errorf("cannot ask: %w", err)
	}
	a.from = from
	ended := s.await(ctx, "the job has ended", func(ctx context.Context) error {
		if !s.fuse.alive() {
			return nil
		}
		return j.ended(ctx, a)
	})
	var p point
	if p.writes, p.killed, err = s.fuse.snuff(); err != nil {
		return p, err
	}
	if p.killed {
		s.fuse.light(0)
		if err := s.lab.StartProvider(ctx); err != nil {
			return p, err
		}
		begun = time.Now()
		ended = s.await(ctx, "a new provider has ended the job", func(ctx context.Context) error { return j.ended(ctx, a) })
	}
	p.took = time.Since(begun)
	if err := errors.Join(ctx.Err(), s.lab.Err()); err != nil {
		return p, err
	}
	p.violation = s.judge(ctx, j, a, ended)
	return p, ctx.Err()
}

// judge says what does not hold; empty if all does.
func (s *sweep) judge(ctx context.Context, j job, a asked, ended error) string {
	if ended == nil {
		ended = j.holds(ctx, a)
	}
	var out []string
	if ended != nil {
		out = append(out, strings.ReplaceAll(ended.Error(), "\n", "; "))
	}
	if s.watch != nil {
		out = append(out, s.watch.Broken()...)
	}
	return strings.Join(out, "; ")
}

func (s *sweep) await(ctx context.Context, what string, ask func(context.Context) error) error {
	return lab.Await(ctx, what, patience, ask)
}

// sayf writes a line for whoever looks on. One who does not any more misses it.
func (s *sweep) sayf(format string, args ...any) { _, _ = fmt.Fprintf(s.o.Out, format+"\n", args...) }

// up brings the cluster up, unless it is, declares a worker for one that was removed, and has it all watched.
func (s *sweep) up(ctx context.Context) error {
	all, err := s.machines(ctx)
	if err != nil {
		return err
	}
	switch len(all) {
	case 0:
		s.sayf("bringing up %d control planes and %d workers", declared, workers)
		err = s.declareAll(ctx)
	case declared + workers - 1:
		err = s.declareWorker(ctx)
	}
	if err != nil {
		return err
	}
	if err := s.await(ctx, "the cluster rests", func(ctx context.Context) error { return s.serves(ctx, declared, workers) }); err != nil || s.watch != nil {
		return err
	}
	pki, connection := &corev1.Secret{}, &corev1.Secret{}
	err = errors.Join(
		s.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: pkiSecret}, pki),
		s.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: connectionSecret}, connection))
	if err != nil {
		return err
	}
	s.watch, err = soak.NewWatch(ctx, s.lab, pki, connection)
	return err
}

// serves is rests for a cluster that may be new.
func (s *sweep) serves(ctx context.Context, controlPlanes, workers int) error {
	if err := s.meet(ctx); err != nil {
		return err
	}
	return s.rests(ctx, controlPlanes, workers)
}

func write(to string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}
