package survey

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// A gatedOpener counts surveys and holds them until the test lets them go on.
type gatedOpener struct {
	fakeAccess
	opened  atomic.Int32
	arrived chan struct{}
	gate    chan struct{}
}

func (o *gatedOpener) Open(ctx context.Context, c *v1alpha1.TalosCluster) (Access, error) {
	if o.opened.Add(1) == 1 {
		close(o.arrived)
	}
	select {
	case <-o.gate:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return o.fakeAccess.Open(ctx, c)
}

func gated() *gatedOpener {
	o := &gatedOpener{arrived: make(chan struct{}), gate: make(chan struct{})}
	o.configured, o.kube = threeMembers(), kubefake.NewClientset()
	return o
}

func TestSnapshotIsShared(t *testing.T) {
	o := gated()
	s, clk := surveyor(t, o, controlPlanes()...)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := s.Snapshot(t.Context(), home); err != nil {
				t.Error(err)
			}
		})
	}
	<-o.arrived
	close(o.gate)
	wg.Wait()

	clk.SetTime(start.Add(maxAge))
	first, err := s.Snapshot(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	if got := o.opened.Load(); got != 1 || !first.TakenAt.Equal(start) {
		t.Errorf("surveys within the maximum age: got %d, want 1", got)
	}

	clk.SetTime(start.Add(maxAge + time.Millisecond))
	second, err := s.Snapshot(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	if got := o.opened.Load(); got != 2 || !second.TakenAt.After(start) {
		t.Errorf("surveys after the maximum age: got %d, want 2", got)
	}
}

// A decision is never made on a shared snapshot.
func TestClusterIsNeverShared(t *testing.T) {
	o := gated()
	close(o.gate)
	s, _ := surveyor(t, o, controlPlanes()...)
	if _, err := s.Snapshot(t.Context(), home); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.Cluster(t.Context(), home, ""); err != nil {
			t.Fatal(err)
		}
	}
	if got := o.opened.Load(); got != 3 {
		t.Errorf("surveys: got %d, want 3", got)
	}
}

// One caller that gives up does not spoil the survey of the others.
func TestSnapshotSurvivesItsFirstCaller(t *testing.T) {
	o := gated()
	s, _ := surveyor(t, o, controlPlanes()...)
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { _, err := s.Snapshot(ctx, home); first <- err }()
	<-o.arrived
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that gave up: got %v", err)
	}
	close(o.gate)
	f, err := s.Snapshot(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	if !f.Machines[0].Live.IsKnown() {
		t.Errorf("the survey was broken off: %s", f.Machines[0].Live.Why())
	}
	if got := o.opened.Load(); got != 1 {
		t.Errorf("surveys: got %d, want 1", got)
	}
}

func TestFailedSnapshotIsNotKept(t *testing.T) {
	boom := errors.New("boom")
	fail := true
	s, _ := surveyor(t, &fakeAccess{configured: threeMembers(), kube: kubefake.NewClientset()})
	s.reader = fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(controlPlanes()...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, o ...client.ListOption) error {
			if fail {
				return boom
			}
			return c.List(ctx, l, o...)
		},
	}).Build()
	if _, err := s.Snapshot(t.Context(), home); !errors.Is(err, boom) {
		t.Fatalf("got %v, want %v", err, boom)
	}
	fail = false
	if f, err := s.Snapshot(t.Context(), home); err != nil || len(f.Machines) != 3 {
		t.Errorf("after the failure: got %d machines, %v", len(f.Machines), err)
	}
}

// Clusters that are gone take no room.
func TestOldSnapshotsGo(t *testing.T) {
	s, clk := surveyor(t, closed{}, cluster())
	other := home
	other.Name = "other"
	for _, name := range []client.ObjectKey{home, other} {
		if _, err := s.Snapshot(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		clk.SetTime(clk.Now().Add(2 * maxAge))
	}
	if got := len(s.snapshots.last); got != 1 {
		t.Errorf("snapshots kept: got %d, want 1", got)
	}
}

// The same world gives the same facts, in whatever order its parts answer.
func TestDeterministic(t *testing.T) {
	a := &fakeAccess{configured: threeMembers(), kube: kubefake.NewClientset(load()...)}
	s, _ := surveyor(t, a, controlPlanes()...)
	first, err := s.Cluster(t.Context(), home, "uid-cp-1")
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		again, err := s.Cluster(t.Context(), home, "uid-cp-1")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first, again, sameFacts); diff != "" {
			t.Fatalf("-first +again:\n%s", diff)
		}
	}
}
