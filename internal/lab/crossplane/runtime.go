package crossplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	pkgv1 "github.com/crossplane/crossplane/apis/v2/pkg/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/internal/lab/controlplane"
)

const (
	// syncInterval is how often revisions are looked at: nobody waits for a package much longer than for its start.
	syncInterval = 500 * time.Millisecond

	// syncLimit bounds one look, which may pull and unpack packages.
	syncLimit = 2 * time.Minute
)

// ErrNotRunning is that of a package for which nothing runs just now.
var ErrNotRunning = errors.New("nothing runs for it")

// A packageRuntime runs the active revisions of providers and functions, as Crossplane's own package runtime and a kubelet do.
type packageRuntime struct {
	o    Options
	kube client.Client

	block  *controlplane.Port // whose number makes the addresses of this runtime its own
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	running map[string]*workload // by the name of the revision
	given   int                  // addresses given away
	last    error                // of the last look
}

// startPackageRuntime starts one that runs until stop, however ctx ends.
func startPackageRuntime(ctx context.Context, o Options, kube client.Client) (*packageRuntime, error) {
	block, err := controlplane.ReservePort()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &packageRuntime{o: o, kube: kube, block: block, cancel: cancel, done: make(chan struct{}), running: map[string]*workload{}}
	go r.loop(ctx)
	return r, nil
}

func (r *packageRuntime) loop(ctx context.Context) {
	defer close(r.done)
	ticker := time.NewTicker(syncInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := r.sync(ctx)
		r.mu.Lock()
		r.last = err
		r.mu.Unlock()
	}
}

// err is what stands in the way of running what is installed.
func (r *packageRuntime) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

func (r *packageRuntime) stop() error {
	r.cancel()
	<-r.done
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, w := range r.running {
		errs = append(errs, w.stop())
	}
	r.block.Release()
	return errors.Join(errs...)
}

// with lets f use what runs for the active revision of a package, named as in its registry.
func (r *packageRuntime) with(repository string, f func(*workload) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.running {
		if w.repository == repository && w.active && w.process != nil {
			return f(w)
		}
	}
	return fmt.Errorf("package %q: %w", repository, ErrNotRunning)
}

// sync brings what runs in line with the revisions. What is new is started before what is old is stopped, as in an upgrade by
// a Deployment.
func (r *packageRuntime) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, syncLimit)
	defer cancel()
	revisions, err := r.revisions(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	active := map[string]bool{}
	var errs []error
	for _, rev := range revisions {
		if rev.GetDesiredState() != pkgv1.PackageRevisionActive || rev.GetDeletionTimestamp() != nil {
			continue
		}
		active[rev.GetName()] = true
		if err := r.ensure(ctx, rev); err != nil && !kerrors.IsConflict(err) { // Core wrote first; the next look sees it.
			errs = append(errs, fmt.Errorf("cannot run %s: %w", rev.GetName(), err))
		}
	}
	for name, w := range r.running {
		w.active = active[name]
		if !w.active {
			errs = append(errs, w.stop())
			delete(r.running, name)
		}
	}
	return errors.Join(errs...)
}

func (r *packageRuntime) revisions(ctx context.Context) ([]pkgv1.PackageRevisionWithRuntime, error) {
	var all []pkgv1.PackageRevisionWithRuntime
	for _, list := range []pkgv1.PackageRevisionList{&pkgv1.ProviderRevisionList{}, &pkgv1.FunctionRevisionList{}} {
		if err := r.kube.List(ctx, list); err != nil {
			return nil, fmt.Errorf("cannot list the revisions of packages: %w", err)
		}
		for _, rev := range list.GetRevisions() {
			if rev, ok := rev.(pkgv1.PackageRevisionWithRuntime); ok {
				all = append(all, rev)
			}
		}
	}
	return all, nil
}

// ensure runs a revision and tells core how it is doing.
func (r *packageRuntime) ensure(ctx context.Context, rev pkgv1.PackageRevisionWithRuntime) error {
	w := r.running[rev.GetName()]
	if w == nil {
		var err error
		if w, err = r.prepare(ctx, rev); err != nil {
			return err
		}
		r.running[rev.GetName()] = w
	}
	w.active = true
	if err := w.ensureProcess(); err != nil {
		return err
	}
	return r.report(ctx, rev, w)
}

// report tells core what its own runtime would: where the certificates are, where a function answers, and whether all is well.
func (r *packageRuntime) report(ctx context.Context, rev pkgv1.PackageRevisionWithRuntime, w *workload) error {
	condition := pkgv1.RuntimeHealthy()
	if err := w.serves(ctx); err != nil {
		condition = pkgv1.RuntimeUnhealthy().WithMessage(err.Error())
	}
	server, clientName := w.serverSecret(), w.clientSecret()
	known := rev.GetObservedTLSServerSecretName() != nil && *rev.GetObservedTLSServerSecretName() == server
	if known && rev.GetCondition(condition.Type).Equal(condition) {
		return nil
	}
	rev.SetObservedTLSServerSecretName(&server)
	rev.SetObservedTLSClientSecretName(&clientName)
	rev.SetConditions(condition)
	if f, ok := rev.(*pkgv1.FunctionRevision); ok {
		f.Status.Endpoint = "dns:///" + w.endpoint().String()
	}
	return r.kube.Status().Update(ctx, rev)
}

// address gives away a loopback address that no other lab on this machine uses: the number of a reserved port is in it.
func (r *packageRuntime) address() netip.Addr {
	r.given++
	n := r.block.Number
	return netip.AddrFrom4([4]byte{127, byte(n >> 8), byte(n), byte(r.given)}) //nolint:gosec // a lab starts a handful
}
