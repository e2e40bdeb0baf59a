package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/lab"
	"github.com/maesh/provider-ichor/internal/lab/story"
)

const (
	namespace        = "default"
	clusterName      = "soak"
	connectionSecret = "soak-connection"
	pkiSecret        = "soak-talos-pki"

	// patience is how long a cluster may take to come up, and to come to rest in the end.
	// That includes the life of a lock whose holder is no more.
	patience = 8 * time.Minute
	// requestTimeout is how long one who asks for something waits for an API server that says nothing.
	requestTimeout = 5 * time.Second
	// silence is how long nothing may be sent once nobody wants anything.
	silence = 15 * time.Second
)

// Machines is how many machines the campaign of a plan needs: some are always left to be declared.
func (p Plan) Machines() int { return p.Size + 4 }

// A Report is what a campaign came to.
type Report struct {
	Plan Plan
	Tally
	// Came is what came of each event that was done, by its number.
	Came map[int]Outcome
	// Found are the rules that were broken, in order, and Broken the number of the event after which the first was.
	Found  []Violation
	Broken int
	// Logs is where the logs are kept of a campaign that did not do what it should.
	Logs string
	// Story is what was told, line by line.
	Story []string
}

// String is the report as a table.
func (r Report) String() string {
	var b strings.Builder
	b.WriteString(r.Tally.String())
	for _, v := range r.Found {
		fmt.Fprintf(&b, "%9s  %s\n", "", v)
	}
	return b.String()
}

// A campaign is one run of a plan on a lab.
type campaign struct {
	plan  Plan
	lab   *lab.Lab
	kube  client.Client
	judge *judge
	watch *monitor
	begun time.Time

	// lasting are faults that are on; each is ended by a goroutine of its own.
	lasting sync.WaitGroup
	// hurt is taken while a member of etcd is down on purpose: two of them, and the campaign itself takes the quorum.
	hurt chan struct{}
	// provider is taken by whoever kills or stops it.
	provider chan struct{}
	// second is taken by a second provider.
	second chan struct{}
	// management is held while the API server of the management cluster is stopped, or must not be.
	management sync.Mutex
	// ended is closed when nothing may last any more.
	ended   chan struct{}
	mending sync.Once

	mu  sync.Mutex
	out io.Writer
	// abandoned are machines whose removal was called off, by name.
	abandoned map[string]v1alpha1.TalosMachine
	strikes   []strike
	// secrets of the cluster, which no log that is kept may have.
	secrets story.Secrets
	report  Report
	failed  error
}

// Run runs a plan on a lab whose machines are blank, and tells it as it goes. It returns an error if the campaign could not be
// run, or did not come to rest; a rule that was broken is in the report, and ends the campaign.
func Run(ctx context.Context, l *lab.Lab, p Plan, out io.Writer) (Report, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return Report{}, fmt.Errorf("cannot make a scheme: %w", err)
	}
	config := l.Config()
	config.Timeout = requestTimeout
	kube, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return Report{}, fmt.Errorf("cannot make a client: %w", err)
	}
	c := &campaign{
		plan: p, lab: l, kube: kube, judge: newJudge(), begun: time.Now(), hurt: make(chan struct{}, 1), provider: make(chan struct{}, 1), second: make(chan struct{}, 1),
		ended: make(chan struct{}), abandoned: map[string]v1alpha1.TalosMachine{}, secrets: story.Secrets{}, out: out, report: Report{Plan: p, Tally: newTally(), Came: map[int]Outcome{}},
	}
	err = c.run(ctx)
	c.mend()
	if c.watch != nil {
		err = errors.Join(err, c.watch.stop())
		c.watch.tally(&c.report.Tally)
		c.watch.struck(&c.report.Tally, c.strikes)
	}
	c.report.Found = c.judge.found
	c.report.Campaigns, c.report.Violations = 1, len(c.report.Found)
	err = errors.Join(err, c.failed)
	if (err != nil || len(c.report.Found) > 0) && ctx.Err() == nil {
		var kept error
		c.report.Logs, kept = l.KeepLogs(c.clean(ctx))
		err = errors.Join(err, kept)
	}
	return c.report, err
}

// clean is what takes the cluster's secrets out of logs, as far as they can be known.
func (c *campaign) clean(ctx context.Context) func(string) string {
	all := &corev1.SecretList{}
	err := c.kube.List(ctx, all, client.InNamespace(namespace))
	for i := range all.Items {
		err = errors.Join(err, c.secrets.LearnFrom(&all.Items[i]))
	}
	if err != nil {
		c.tellf("the secrets of the cluster are not all known: %v", err)
	}
	return c.secrets.Hide
}

func (c *campaign) run(ctx context.Context) error {
	if err := c.found(ctx); err != nil {
		return fmt.Errorf("the cluster does not come up: %w", err)
	}
	c.begun = time.Now()
	for _, e := range c.plan.Events {
		if err := pause(ctx, time.Until(c.begun.Add(e.At))); err != nil {
			return err
		}
		if c.violated(e.Number - 1) {
			return nil
		}
		c.do(ctx, e)
	}
	c.linger(ctx)
	c.mend()
	c.tellf("everything that was broken works again; the cluster has to come to rest")
	if err := c.rest(ctx); err != nil {
		return fmt.Errorf("the cluster does not come to rest: %w", err)
	}
	c.watch.note(func(j *judge) { j.quiet = time.Now() })
	if err := pause(ctx, silence); err != nil {
		return err
	}
	if !c.violated(len(c.plan.Events)) {
		c.tellf("at rest; nothing was sent for %s", silence)
	}
	return nil
}

// linger lets what still lies in wait strike, and what was broken last for its time, unless that is long: else the last events of a
// plan, and most of a plan that was shrunk, would come to nothing.
func (c *campaign) linger(ctx context.Context) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		c.lasting.Wait()
	}()
	for end := time.Now().Add(lurk + brief.most); time.Now().Before(end) && !c.violated(len(c.plan.Events)); {
		select {
		case <-over:
			return
		case <-ctx.Done():
			return
		case <-time.After(lookInterval):
		}
	}
}

// mend ends everything that lasts. Doing it twice does no harm.
func (c *campaign) mend() {
	c.mending.Do(func() { close(c.ended) })
	c.lasting.Wait()
}

// violated tells whether a rule was broken, and notes after which event.
func (c *campaign) violated(event int) bool {
	found := c.watch.broken()
	if len(found) == 0 {
		return false
	}
	if c.report.Broken == 0 {
		c.report.Broken = max(event, 1)
		c.tellf("VIOLATION %s", found[0])
	}
	return true
}

// found declares the cluster and its first machines, and watches from the moment when it serves.
func (c *campaign) found(ctx context.Context) error {
	if err := c.declareCluster(ctx); err != nil {
		return err
	}
	machines, err := c.lab.Fleet.Machines(ctx)
	if err != nil {
		return err
	}
	for i, m := range machines[:c.plan.Size+1] {
		name, role := fmt.Sprintf("cp-%d", i+1), v1alpha1.RoleControlPlane
		if i == c.plan.Size {
			name, role = "worker-1", v1alpha1.RoleWorker
		}
		c.judge.approved[m.Name] = true
		if err := c.declare(ctx, name, role, m.Address, true); err != nil {
			return err
		}
	}
	c.tellf("%d control planes and a worker are coming up", c.plan.Size)
	pki, connection := &corev1.Secret{}, &corev1.Secret{}
	err = c.await(ctx, "the cluster is Ready", func(ctx context.Context) error {
		if err := c.allReady(ctx); err != nil {
			return err
		}
		return errors.Join(
			c.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: pkiSecret}, pki),
			c.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: connectionSecret}, connection))
	})
	if err := errors.Join(err, c.secrets.LearnFrom(pki), c.secrets.LearnFrom(connection)); err != nil {
		return err
	}
	c.watch, err = watch(ctx, c.lab, c.judge, pki, connection, c.tellf)
	return err
}

func (c *campaign) await(ctx context.Context, what string, ask func(context.Context) error) error {
	return lab.Await(ctx, what, patience, ask)
}

// tellf writes a line, with the time since the beginning. One who does not look on any more misses it.
func (c *campaign) tellf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := time.Since(c.begun).Round(time.Second)
	line := fmt.Sprintf("%02d:%02d  %s", int(at.Minutes()), int(at.Seconds())%60, fmt.Sprintf(format, args...))
	c.report.Story = append(c.report.Story, line)
	_, _ = fmt.Fprintln(c.out, line)
}

func (c *campaign) count(what string, came Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.count(what, came)
}

// note what came of an event.
func (c *campaign) note(e Event, came Outcome) {
	c.count(e.name(0), came)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Came[e.Number] = came
}

// fail notes an error of the lab itself.
func (c *campaign) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = errors.Join(c.failed, err)
}

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
