package clusterlock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var (
	key   = types.NamespacedName{Namespace: "ns", Name: LeaseName("one")}
	alice = Holder{Kind: "Machine", Name: "a", UID: "uid-a", Purpose: "removal"}
	bob   = Holder{Kind: "Machine", Name: "b", UID: "uid-b", Purpose: "reboot"}
)

// An api is an API server, and what goes wrong with it. A hook runs before a request; its error is the answer.
type api struct {
	client.Client

	mu     sync.Mutex
	hooks  map[string]func(ctx context.Context, o client.Object) error
	writes atomic.Int64
	uids   atomic.Int64
	// lateAnswer makes writes succeed and be answered with an error all the same.
	lateAnswer atomic.Bool
}

func newAPI(objects ...client.Object) *api {
	a := &api{hooks: map[string]func(context.Context, client.Object) error{}}
	write := func(ctx context.Context, verb string, o client.Object, do func() error) error {
		if err := a.hook(ctx, verb, o); err != nil {
			return err
		}
		if err := do(); err != nil {
			return err
		}
		a.writes.Add(1)
		if a.lateAnswer.Load() {
			return kerrors.NewTimeoutError("the answer is late", 1)
		}
		return nil
	}
	a.Client = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := a.hook(ctx, "get", o); err != nil {
				return err
			}
			return c.Get(ctx, key, o, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return write(ctx, "create", o, func() error {
				// The fake gives no UIDs.
				o.SetUID(types.UID(fmt.Sprint("lease-", a.uids.Add(1))))
				return c.Create(ctx, o, opts...)
			})
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return write(ctx, "update", o, func() error {
				if err := sameUID(ctx, c, o, o.GetUID()); err != nil {
					return err
				}
				return c.Update(ctx, o, opts...)
			})
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write(ctx, "delete", o, func() error {
				options := (&client.DeleteOptions{}).ApplyOptions(opts)
				if p := options.Preconditions; p != nil && p.UID != nil {
					if err := sameUID(ctx, c, o, *p.UID); err != nil {
						return err
					}
				}
				return c.Delete(ctx, o, opts...)
			})
		},
	}).Build()
	return a
}

// sameUID is what an API server checks and the fake does not.
func sameUID(ctx context.Context, c client.Client, o client.Object, uid types.UID) error {
	now := &coordinationv1.Lease{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
		return err
	}
	if now.GetUID() != uid {
		return kerrors.NewConflict(coordinationv1.Resource("leases"), o.GetName(), fmt.Errorf("the UID is %q, not %q", now.GetUID(), uid))
	}
	return nil
}

func (a *api) hook(ctx context.Context, verb string, o client.Object) error {
	a.mu.Lock()
	fn := a.hooks[verb]
	a.mu.Unlock()
	if fn == nil {
		return nil
	}
	return fn(ctx, o)
}

// before runs fn before each request with this verb; nil takes it off.
func (a *api) before(verb string, fn func(ctx context.Context, o client.Object) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hooks[verb] = fn
}

// once runs fn before the next request with this verb only.
func (a *api) once(verb string, fn func() error) {
	a.before(verb, func(context.Context, client.Object) error {
		a.before(verb, nil)
		return fn()
	})
}

func (a *api) fail(verb string) {
	a.before(verb, func(context.Context, client.Object) error { return kerrors.NewInternalError(fmt.Errorf("broken")) })
}

// lease reads the Lease, or nil.
func (a *api) lease(t testing.TB) *coordinationv1.Lease {
	t.Helper()
	l := &coordinationv1.Lease{}
	err := a.Get(context.Background(), key, l)
	if kerrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// edit changes the Lease as a person would.
func (a *api) edit(t testing.TB, fn func(*coordinationv1.Lease)) {
	t.Helper()
	l := a.lease(t)
	fn(l)
	if err := a.Update(context.Background(), l); err != nil {
		t.Fatal(err)
	}
}

func (a *api) remove(t testing.TB) {
	t.Helper()
	if err := a.Delete(context.Background(), a.lease(t)); err != nil {
		t.Fatal(err)
	}
}

// process returns the locks of one process.
func (a *api) process(clk clock.WithTicker, opts ...Option) *Locks { return New(a, a, clk, opts...) }

func fakeClock() *testclock.FakeClock {
	return testclock.NewFakeClock(time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC))
}

func acquire(t testing.TB, l *Locks, h Holder) *Held {
	t.Helper()
	held, err := l.Acquire(context.Background(), key, h)
	if err != nil {
		t.Fatalf("Acquire for %s: %v", h.Name, err)
	}
	return held
}

func gone(yes bool, err error) Option {
	return WithHolderGone(func(context.Context, string, Holder) (bool, error) { return yes, err })
}
