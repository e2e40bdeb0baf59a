package survey

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/talos"
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

func TestOverviewIsShared(t *testing.T) {
	o := gated()
	s, clk := surveyor(t, o, controlPlanes()...)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := s.Overview(t.Context(), home, 0); err != nil {
				t.Error(err)
			}
		})
	}
	<-o.arrived
	close(o.gate)
	wg.Wait()

	clk.SetTime(start.Add(freshFor))
	first, err := s.Overview(t.Context(), home, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := o.opened.Load(); got != 1 || !first.TakenAt.Equal(start) {
		t.Errorf("surveys within the maximum age: got %d, want 1", got)
	}

	clk.SetTime(start.Add(freshFor + time.Millisecond))
	second, err := s.Overview(t.Context(), home, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := o.opened.Load(); got != 2 || !second.TakenAt.After(start) {
		t.Errorf("surveys after the maximum age: got %d, want 2", got)
	}
}

// A meanwhile is a clock on which something else happens, once, while somebody reads the time.
type meanwhile struct {
	clock.PassiveClock
	happens func()
}

func (m *meanwhile) Now() time.Time {
	if happens := m.happens; happens != nil {
		m.happens = nil
		happens()
	}
	return m.PassiveClock.Now()
}

// Two find that the last overview is too old, and one of them has a new one before the other begins: that is good for both.
func TestOverviewIsSharedByWhoComesLate(t *testing.T) {
	o := gated()
	close(o.gate)
	s, clk := surveyor(t, o, controlPlanes()...)
	ask := func() {
		if _, err := s.Overview(t.Context(), home, 0); err != nil {
			t.Fatal(err)
		}
	}
	s.clock = &meanwhile{PassiveClock: clk, happens: ask}
	ask()
	if got := o.opened.Load(); got != 1 {
		t.Errorf("surveys: got %d, want 1", got)
	}
}

// A decision is never made on a shared overview.
func TestClusterIsNeverShared(t *testing.T) {
	o := gated()
	close(o.gate)
	s, _ := surveyor(t, o, controlPlanes()...)
	if _, err := s.Overview(t.Context(), home, 0); err != nil {
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
func TestOverviewSurvivesItsFirstCaller(t *testing.T) {
	o := gated()
	s, _ := surveyor(t, o, controlPlanes()...)
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { _, err := s.Overview(ctx, home, 0); first <- err }()
	<-o.arrived
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that gave up: got %v", err)
	}
	close(o.gate)
	f, err := s.Overview(t.Context(), home, 0)
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

func TestFailedOverviewIsNotKept(t *testing.T) {
	boom := errors.New("boom")
	fail := true
	s, _ := surveyor(t, &fakeAccess{configured: threeMembers(), kube: kubefake.NewClientset()})
	s.cached = fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(controlPlanes()...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, o ...client.ListOption) error {
			if fail {
				return boom
			}
			return c.List(ctx, l, o...)
		},
	}).Build()
	if _, err := s.Overview(t.Context(), home, 0); !errors.Is(err, boom) {
		t.Fatalf("got %v, want %v", err, boom)
	}
	fail = false
	if f, err := s.Overview(t.Context(), home, 0); err != nil || len(f.Machines) != 3 {
		t.Errorf("after the failure: got %d machines, %v", len(f.Machines), err)
	}
}

// Clusters that are gone take no room.
func TestOldOverviewsGo(t *testing.T) {
	s, clk := surveyor(t, closed{}, cluster())
	other := home
	other.Name = "other"
	for _, name := range []client.ObjectKey{home, other} {
		if _, err := s.Overview(t.Context(), name, 0); err != nil {
			t.Fatal(err)
		}
		clk.SetTime(clk.Now().Add(2 * keptFor))
	}
	if got := len(s.overviews.last); got != 1 {
		t.Errorf("overviews kept: got %d, want 1", got)
	}
}

// askedOf is how often each address was asked for its UUID, which every survey asks first.
func askedOf(a *fakeAccess) map[string]int {
	n := map[string]int{}
	for address, m := range a.configured {
		for _, q := range m.questions() {
			if q == "System" {
				n[address]++
			}
		}
	}
	return n
}

// A cluster at rest is asked once for a poll of all of its machines; one in which anything is going on is not at rest.
func TestOverviewOfAClusterAtRestIsKept(t *testing.T) {
	const rest = time.Minute
	for name, tc := range map[string]struct {
		disturb func(a *fakeAccess, machine *v1alpha1.TalosMachine)
		want    int
	}{
		"at rest":   {func(*fakeAccess, *v1alpha1.TalosMachine) {}, 1},
		"booting":   {func(a *fakeAccess, _ *v1alpha1.TalosMachine) { a.configured["addr-cp-2"].stage = "booting" }, 2},
		"no leader": {func(a *fakeAccess, _ *v1alpha1.TalosMachine) { a.configured["addr-cp-2"].etcd.Leader = 0 }, 2},
		"learner":   {func(a *fakeAccess, _ *v1alpha1.TalosMachine) { a.configured["addr-cp-2"].etcd.Learner = true }, 2},
		"alarm": {func(a *fakeAccess, _ *v1alpha1.TalosMachine) {
			a.configured["addr-cp-2"].alarms = []talos.Alarm{{Member: 2, Name: "NOSPACE"}}
		}, 2},
		"unreachable": {func(a *fakeAccess, _ *v1alpha1.TalosMachine) {
			a.configured["addr-cp-2"].fail = map[string]error{"Status": failed(talos.Timeout)}
		}, 2},
		"API down": {func(a *fakeAccess, _ *v1alpha1.TalosMachine) { a.kubeErr = errors.New("down") }, 2},
		"about to leave": {func(_ *fakeAccess, m *v1alpha1.TalosMachine) {
			_ = m.SetRemovalRecord(v1alpha1.RemovalRecord{UUID: "uuid-cp-2"})
		}, 2},
		"cordoned by us": {func(a *fakeAccess, _ *v1alpha1.TalosMachine) {
			a.kube = kubefake.NewClientset(node("cp-2", "uuid-cp-2", func(n *corev1.Node) {
				n.Annotations = map[string]string{v1alpha1.AnnotationCordonedBy: "uid-cp-2"}
			}))
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			a := &fakeAccess{configured: threeMembers(), kube: kubefake.NewClientset()}
			second := machineObject("cp-2")
			tc.disturb(a, second)
			s, clk := surveyor(t, a, cluster(), machineObject("cp-1"), second, machineObject("cp-3"))
			for _, at := range []time.Duration{0, freshFor + time.Second} {
				clk.SetTime(start.Add(at))
				if _, err := s.Overview(t.Context(), home, rest); err != nil {
					t.Fatal(err)
				}
			}
			if got := askedOf(a)["addr-cp-1"]; got != tc.want {
				t.Errorf("cp-1 was asked %d times within a minute, want %d", got, tc.want)
			}
		})
	}
}

// What was seen at rest is not shown any longer once somebody decides, when another machine is declared, when its time is
// over, or to those who grant no rest.
func TestTheRestOfAnOverviewEnds(t *testing.T) {
	const rest = time.Minute
	for name, tc := range map[string]struct {
		meanwhile func(t *testing.T, s *Surveyor, c client.Client)
		at, rest  time.Duration
		want      int
	}{
		"nothing happens":  {nil, rest, rest, 1},
		"its time is over": {nil, rest + 1, rest, 2},
		"no rest granted":  {nil, freshFor + 1, 0, 2},
		"a decision": {func(t *testing.T, s *Surveyor, _ client.Client) {
			if _, err := s.Cluster(t.Context(), home, ""); err != nil {
				t.Fatal(err)
			}
		}, freshFor + 1, rest, 3},
		"another control plane": {func(t *testing.T, _ *Surveyor, c client.Client) {
			if err := c.Create(t.Context(), machineObject("cp-4")); err != nil {
				t.Fatal(err)
			}
		}, freshFor + 1, rest, 2},
		"an approval taken back": {func(t *testing.T, _ *Surveyor, c client.Client) {
			m := &v1alpha1.TalosMachine{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(machineObject("cp-3")), m); err != nil {
				t.Fatal(err)
			}
			m.Spec.ForProvider.Approved = false
			if err := c.Update(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}, freshFor + 1, rest, 2},
		"another worker": {func(t *testing.T, _ *Surveyor, c client.Client) {
			if err := c.Create(t.Context(), machineObject("w-1", worker)); err != nil {
				t.Fatal(err)
			}
		}, freshFor + 1, rest, 1},
	} {
		t.Run(name, func(t *testing.T) {
			a := &fakeAccess{configured: threeMembers(), kube: kubefake.NewClientset()}
			c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(cluster(), machineObject("cp-1"), machineObject("cp-2"), machineObject("cp-3")).Build()
			clk := clocktesting.NewFakePassiveClock(start)
			s := NewWith(c, a, clk)
			if _, err := s.Overview(t.Context(), home, rest); err != nil {
				t.Fatal(err)
			}
			if tc.meanwhile != nil {
				tc.meanwhile(t, s, c)
			}
			clk.SetTime(start.Add(tc.at))
			f, err := s.Overview(t.Context(), home, tc.rest)
			if err != nil {
				t.Fatal(err)
			}
			if got := askedOf(a)["addr-cp-1"]; got != tc.want {
				t.Errorf("cp-1 was asked %d times, want %d", got, tc.want)
			}
			if _, known := f.Declared.Get(); !known || len(f.Etcd.Views) != 3 {
				t.Errorf("the overview has %d views of etcd, want 3", len(f.Etcd.Views))
			}
		})
	}
}

// Workers are asked only by those who want to know about just that one, or while they are not known by a UUID: then they
// may turn out to be declared twice.
func TestWorkersInAnOverview(t *testing.T) {
	a := &fakeAccess{configured: threeMembers(), kube: kubefake.NewClientset(node("w-1", "uuid-w-1"))}
	a.configured["addr-w-1"] = &fakeMachine{uuid: "uuid-w-1", bootID: "b", version: "v1.13.9", stage: "running"}
	a.configured["addr-w-2"] = &fakeMachine{uuid: "uuid-w-1", bootID: "b", version: "v1.13.9", stage: "running"}
	unpinned := machineObject("w-2", worker, func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.UUID = "" })
	s, _ := surveyor(t, a, append(controlPlanes(), machineObject("w-1", worker), unpinned)...)
	f, err := s.Overview(t.Context(), home, 0)
	if err != nil {
		t.Fatal(err)
	}
	pinned, _ := f.Machine("uid-w-1")
	unknown(t, "what a worker says", pinned.Live)
	if n, _ := pinned.Node.Get(); n.Name != "w-1" {
		t.Errorf("the Node of a worker that was not asked: got %q, want w-1", n.Name)
	}
	if diff := cmp.Diff([]string{"w-2"}, pinned.SameMachine); diff != "" {
		t.Errorf("declared twice: -want +got:\n%s", diff)
	}
	if f, err = s.Snapshot(t.Context(), home, "uid-w-1"); err != nil {
		t.Fatal(err)
	}
	if m, _ := f.Machine("uid-w-1"); !m.Live.IsKnown() {
		t.Errorf("the target of a snapshot was not asked: %s", m.Live.Why())
	}
	if diff := cmp.Diff(map[string]int{"addr-cp-1": 1, "addr-cp-2": 1, "addr-cp-3": 1, "addr-w-1": 1, "addr-w-2": 1}, askedOf(a)); diff != "" {
		t.Errorf("asked: -want +got:\n%s", diff)
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
