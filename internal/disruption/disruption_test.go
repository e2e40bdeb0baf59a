package disruption

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/clusterlock"
)

var (
	cluster = types.NamespacedName{Namespace: "metal", Name: "prod"}
	mine    = clusterlock.Holder{Kind: "TalosMachine", Name: "cp-1", UID: "1", Purpose: "removal"}
	theirs  = clusterlock.Holder{Kind: "TalosMachine", Name: "cp-2", UID: "2", Purpose: "removal"}
)

// counted are locks that count how often they were touched.
type counted struct {
	*clusterlock.Locks
	acquired int
}

func (c *counted) Acquire(ctx context.Context, key types.NamespacedName, h clusterlock.Holder) (*clusterlock.Held, error) {
	c.acquired++
	return c.Locks.Acquire(ctx, key, h)
}

func machine(name string, role v1alpha1.MachineRole, approved bool, annotations map[string]string) *v1alpha1.TalosMachine {
	return &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name, Annotations: annotations},
		Spec: v1alpha1.TalosMachineSpec{ForProvider: v1alpha1.TalosMachineParameters{
			ClusterRef: &v1alpha1.ClusterReference{Name: cluster.Name}, Role: role, Approved: approved,
		}},
	}
}

func controlPlanes(n int) []client.Object {
	o := make([]client.Object, 0, n)
	for i := range n {
		o = append(o, machine(fmt.Sprintf("cp-%d", i+1), v1alpha1.RoleControlPlane, true, nil))
	}
	return o
}

func newGate(t *testing.T, objects ...client.Object) (*Gate, *counted) {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.SchemeBuilder.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).Build()
	locks := &counted{Locks: clusterlock.New(c, c, testclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)))}
	return NewGate(locks, c), locks
}

func TestAcquireDisruptiveLock(t *testing.T) {
	cases := map[string]struct {
		reason    string
		objects   []client.Object
		completes bool
		parked    bool
	}{
		"One":              {reason: "One is odd.", objects: controlPlanes(1)},
		"Two":              {reason: "Two is even.", objects: controlPlanes(2), parked: true},
		"Three":            {reason: "Three is odd.", objects: controlPlanes(3)},
		"Four":             {reason: "Four is even.", objects: controlPlanes(4), parked: true},
		"FourCompletes":    {reason: "What makes the number odd again passes.", objects: controlPlanes(4), completes: true},
		"None":             {reason: "Without a control plane there is no transition.", objects: nil},
		"UnapprovedFourth": {reason: "A control plane that is not approved was never a member.", objects: append(controlPlanes(3), machine("cp-4", v1alpha1.RoleControlPlane, false, nil))},
		"Workers":          {reason: "Workers do not count.", objects: append(controlPlanes(3), machine("w-1", v1alpha1.RoleWorker, true, nil))},
		"RemovedFourth": {
			reason:  "One whose removal was completed is none any more.",
			objects: append(controlPlanes(3), machine("cp-4", v1alpha1.RoleControlPlane, true, map[string]string{v1alpha1.AnnotationRemovalRecord: `{"uuid":"u","completed":true}`})),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g, locks := newGate(t, tc.objects...)
			held, err := g.AcquireDisruptiveLock(context.Background(), cluster, mine, tc.completes)
			te := (*TransitioningError)(nil)
			if errors.As(err, &te) != tc.parked {
				t.Errorf("\n%s\nAcquireDisruptiveLock(...): %v, want parked: %t", tc.reason, err, tc.parked)
			}
			if !tc.parked && (err != nil || held == nil) {
				t.Errorf("\n%s\nAcquireDisruptiveLock(...): %v", tc.reason, err)
			}
			if tc.parked && locks.acquired > 0 {
				t.Errorf("\n%s\nthe lock was touched", tc.reason)
			}
		})
	}
}

func TestUnreadableCountRefuses(t *testing.T) {
	g, locks := newGate(t, machine("cp-1", v1alpha1.RoleControlPlane, true, map[string]string{v1alpha1.AnnotationRemovalRecord: "{"}))
	if _, err := g.AcquireDisruptiveLock(context.Background(), cluster, mine, false); err == nil || locks.acquired > 0 {
		t.Errorf("a count that is not known let a disruption through: %v, %d takings", err, locks.acquired)
	}
}

func TestRelease(t *testing.T) {
	ctx := context.Background()
	g, _ := newGate(t, controlPlanes(3)...)

	if err := g.ReleaseIfReversible(ctx, cluster, mine); err != nil {
		t.Errorf("a lock that nobody holds: %v", err)
	}
	held, err := g.AcquireDisruptiveLock(ctx, cluster, mine, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.AcquireDisruptiveLock(ctx, cluster, theirs, false); !errors.As(err, new(*clusterlock.HeldError)) {
		t.Errorf("two disruptions at once: %v", err)
	}
	if err := g.ReleaseIfReversible(ctx, cluster, theirs); err != nil {
		t.Error(err)
	}
	if is, _, err := g.HeldBy(ctx, cluster, mine); !is || err != nil {
		t.Errorf("another released the lock: %t, %v", is, err)
	}

	if err := held.MarkIrreversible(ctx); err != nil {
		t.Fatal(err)
	}
	ie := (*IrreversibleError)(nil)
	if err := g.ReleaseIfReversible(ctx, cluster, mine); !errors.As(err, &ie) {
		t.Errorf("a disruption past the point of no return let go of its lock: %v", err)
	}
	want := `the removal of TalosMachine "cp-1" is past the point of no return: it can only go on to its end`
	if diff := cmp.Diff(want, ie.Error()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if is, irreversible, err := g.HeldBy(ctx, cluster, mine); !is || !irreversible || err != nil {
		t.Errorf("HeldBy: %t, %t, %v", is, irreversible, err)
	}
	if err := g.Release(ctx, cluster, mine); err != nil {
		t.Fatal(err)
	}
	if info, err := g.Peek(ctx, cluster); info != nil || err != nil {
		t.Errorf("the lock is still held: %v, %v", info, err)
	}
}

func TestReleaseWhileEven(t *testing.T) {
	ctx := context.Background()
	g, _ := newGate(t, controlPlanes(4)...)
	if _, err := g.AcquireDisruptiveLock(ctx, cluster, mine, true); err != nil {
		t.Fatal(err)
	}
	if err := g.ReleaseIfReversible(ctx, cluster, mine); err != nil {
		t.Errorf("what holds the lock must be able to let go while the number is even: %v", err)
	}
	if info, err := g.Peek(ctx, cluster); info != nil || err != nil {
		t.Errorf("the lock is still held: %v, %v", info, err)
	}
}

// TestUnreadableLockIsNotFree: what cannot be read must not pass for a lock that nobody holds, or a cordon would be undone
// past the point of no return.
func TestUnreadableLockIsNotFree(t *testing.T) {
	ctx := context.Background()
	g, _ := newGate(t)
	g.locks = unreadable{}
	if held, _, err := g.HeldBy(ctx, cluster, mine); held || !errors.Is(err, errDown) {
		t.Errorf("HeldBy: %t, %v", held, err)
	}
	for name, release := range map[string]func(context.Context, types.NamespacedName, clusterlock.Holder) error{
		"Release": g.Release, "ReleaseIfReversible": g.ReleaseIfReversible,
	} {
		if err := release(ctx, cluster, mine); !errors.Is(err, errDown) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

var errDown = errors.New("the API server is down")

// unreadable are locks in an API server that is down.
type unreadable struct{ Locks }

func (unreadable) Peek(context.Context, types.NamespacedName) (*clusterlock.Info, error) {
	return nil, errDown
}

// TestReleaseThatFailsIsTold: a lock that is still there would keep all others out, and nobody would know why.
func TestReleaseThatFailsIsTold(t *testing.T) {
	ctx := context.Background()
	s := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(s).WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return errDown },
	}).Build()
	g := NewGate(clusterlock.New(c, c, testclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))), c)
	if _, err := g.AcquireDisruptiveLock(ctx, cluster, mine, true); err != nil {
		t.Fatal(err)
	}
	if err := g.Release(ctx, cluster, mine); !errors.Is(err, errDown) {
		t.Errorf("Release: %v", err)
	}
}
