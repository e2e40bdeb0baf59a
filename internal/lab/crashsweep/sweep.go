package crashsweep

import (
	"context"
	"errors"
	"fmt"
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

// patience is how long a job may take, killed or not, on two cores that everything shares.
const patience = 5 * time.Minute

// A sweep is one run on one lab.
type sweep struct {
	o    Options
	lab  *lab.Lab
	kube client.Client
	fuse *fuse

	// heard is where machines tell what they have carried out, and entrance the front of the management cluster.
	heard, entrance *front
	// past is what the entrance can show of the management cluster.
	past *past
	// workload is the front of the cluster's API, and nodes looks at that from behind; nil without a cluster.
	workload *front
	nodes    kubernetes.Interface
	watch    *soak.Watch
	report   Report
	// joined counts the control planes that were ever declared, hired the workers, and changed the changes that need a reboot.
	joined, hired, changed int
}

// runLab sweeps what is to be swept on one lab.
func runLab(ctx context.Context, o Options) (found Report, err error) {
	s := &sweep{o: o, fuse: &fuse{}, past: &past{}}
	defer func() {
		err = errors.Join(err, s.stop(err != nil))
		found = s.report
	}()
	if err := s.start(ctx); err != nil {
		return found, err
	}
	for _, name := range o.Variants {
		if err := s.sweepVariant(ctx, name); err != nil || len(s.report.Violations()) > 0 {
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
		s.entrance, through, err = management(ctx, to, s.fuse, s.past)
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

// A course is one job that is being swept.
type course struct {
	JobReport

	job job
	// next is the write to be killed after, and every how far it is to the one after that.
	next, every int
	// over is whether there is none left.
	over bool
}

// sweepVariant sweeps jobs side by side, since one begins where another ends: first each without a kill, to see what it
// writes, and then with a kill after each of these writes that is due.
func (s *sweep) sweepVariant(ctx context.Context, name string) error {
	v := variants()[name]
	if v.begin != nil {
		if err := v.begin(ctx, s); err != nil {
			return err
		}
	}
	courses := make([]*course, len(s.o.Jobs))
	for i, job := range s.o.Jobs {
		courses[i] = &course{JobReport: JobReport{Name: job, Variant: name}, job: s.jobs()[job], next: s.o.Offset, every: s.o.Every}
	}
	err := s.sweepCourses(ctx, v, courses)
	for _, c := range courses {
		s.report.Jobs = append(s.report.Jobs, c.JobReport)
	}
	if v.end != nil {
		err = errors.Join(err, v.end(s))
	}
	return err
}

func (s *sweep) sweepCourses(ctx context.Context, v variant, courses []*course) error {
	first := time.Now()
	for _, c := range courses {
		p, err := s.point(ctx, v, c.job, 0)
		if err != nil {
			return err
		}
		c.Writes, c.Violations = len(p.writes), p.violations
		s.sayf("%s, %s: %d writes, %.1f s without a kill%s", c.Name, c.Variant, c.Writes, p.took.Seconds(), told(p.violations))
		if len(p.violations) > 0 {
			return nil
		}
	}
	for round := 1; slices.ContainsFunc(courses, func(c *course) bool { return !c.over }); round++ {
		begun := time.Now()
		for _, c := range courses {
			if c.over {
				continue
			}
			if err := s.advance(ctx, v, c); err != nil || len(c.Violations) > 0 {
				return err
			}
		}
		if round == 1 {
			s.spread(courses, time.Since(first), time.Since(begun))
		}
	}
	for _, c := range courses {
		s.sayf("%s, %s: %d kills, each after another write of up to %d", c.Name, c.Variant, c.Points, c.Writes)
	}
	return nil
}

// advance kills after the next write of a job that is due. No two runs write the same, so none is left only once a job has ended
// with fewer writes, or there is no time to find out.
func (s *sweep) advance(ctx context.Context, v variant, c *course) error {
	k := c.next
	p, err := s.point(ctx, v, c.job, k)
	if err != nil {
		return err
	}
	if c.Violations = p.violations; !p.killed {
		s.sayf("%s, %s: it took %d writes this time%s", c.Name, c.Variant, len(p.writes), told(p.violations))
		c.over = true
		return nil
	}
	c.Points, c.Writes = c.Points+1, max(c.Writes, k)
	s.sayf("%s, %s %3d/%d  %-60s at its end after %5.1f s%s", c.Name, c.Variant, k, c.Writes, p.writes[k-1], p.took.Seconds(), told(p.violations))
	c.next += c.every
	c.over = s.o.Limit > 0 && c.next > c.Writes
	return nil
}

// spread leaves out as many writes as it has to, evenly and others than the other labs do, so that all of it takes no longer than
// the limit. It was begun so long ago, and a round takes that long.
func (s *sweep) spread(courses []*course, spent, round time.Duration) {
	if s.o.Limit <= 0 {
		return
	}
	rounds := int((s.o.Limit - spent) / round)
	for _, c := range courses {
		left := c.Writes - s.o.Offset
		switch {
		case rounds < 1:
			c.over = true
		case left > rounds*s.o.Every:
			c.every = (left + rounds - 1) / rounds
			c.next = s.o.Offset + max(c.every*(s.o.lab+1)/max(s.o.Labs, 1), 1)
			c.over = c.next > c.Writes
		}
	}
}

func told(violations []string) string {
	if len(violations) == 0 {
		return ""
	}
	return "  VIOLATION " + strings.Join(violations, "; ")
}

// A point is one run of a job.
type point struct {
	writes []string
	killed bool
	// took is how long it took to its end: from the kill if there was one, else from the beginning.
	took       time.Duration
	violations []string
}

// point runs a job once, with a kill after its k-th write unless k is 0.
func (s *sweep) point(ctx context.Context, v variant, j job, k int) (point, error) {
	// A provider that has just been started serves no webhooks yet, and without these nobody can ask for anything.
	if err := s.lab.AwaitProvider(ctx); err != nil {
		return point{}, err
	}
	if err := j.prepare(ctx); err != nil {
		return point{}, fmt.Errorf("cannot prepare: %w", err)
	}
	from, err := s.lab.Fleet.LastCall(ctx)
	if err != nil {
		return point{}, err
	}
	s.fuse.light(k)
	begun := time.Now()
	a, refused := j.ask(ctx)
	if refused != nil && s.fuse.alive() {
		return point{}, fmt.Errorf("cannot ask: %w", refused)
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
		if err := s.resume(ctx, v); err != nil {
			return p, err
		}
		if refused != nil { // They died while they were asked, and so are asked again.
			if err := s.lab.AwaitProvider(ctx); err != nil {
				return p, err
			}
			if a, err = j.ask(ctx); err != nil {
				return p, fmt.Errorf("cannot ask again: %w", err)
			}
			a.from = from
		}
		begun = time.Now()
		ended = s.await(ctx, "a new provider has ended the job", func(ctx context.Context) error { return j.ended(ctx, a) })
	}
	p.took = time.Since(begun)
	if err := errors.Join(ctx.Err(), s.lab.Err()); err != nil {
		return p, err
	}
	p.violations = s.judge(ctx, j, a, ended)
	return p, ctx.Err()
}

// resume starts a new provider in the place of the one that was killed.
func (s *sweep) resume(ctx context.Context, v variant) error {
	if v.killed != nil {
		if err := v.killed(ctx, s); err != nil {
			return err
		}
	}
	s.fuse.light(0)
	if err := s.lab.StartProvider(ctx); err != nil || v.started == nil {
		return err
	}
	return v.started(ctx, s)
}

// judge says what does not hold.
func (s *sweep) judge(ctx context.Context, j job, a asked, ended error) (out []string) {
	if ended == nil {
		ended = j.holds(ctx, a)
	}
	if ended != nil {
		out = append(out, strings.ReplaceAll(ended.Error(), "\n", "; "))
	}
	if s.watch != nil {
		out = append(out, s.watch.Broken()...)
	}
	return out
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
