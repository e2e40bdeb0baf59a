package clusterlock

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// work runs RenewWhile in a bubble where time passes only while everybody waits. The work takes this long, and returns
// when it is cancelled. It returns how long it ran.
func work(t *testing.T, takes time.Duration, prepare func(t *testing.T, a *api, l *Locks, cancel context.CancelFunc)) (ran time.Duration, a *api, err error) {
	synctest.Test(t, func(t *testing.T) {
		a = newAPI()
		l := a.process(clock.RealClock{})
		held := acquire(t, l, alice)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if prepare != nil {
			prepare(t, a, l, cancel)
		}
		began := time.Now()
		err = held.RenewWhile(ctx, func(ctx context.Context) error {
			defer func() { ran = time.Since(began) }()
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(takes):
				return nil
			}
		})
	})
	return ran, a, err
}

func TestRenewWhileRenews(t *testing.T) {
	ran, a, err := work(t, 30*time.Minute, nil)
	if err != nil || ran != 30*time.Minute {
		t.Fatalf("after %s: %v", ran, err)
	}
	// One for the taking, one at the beginning, and then one a minute.
	if n := a.writes.Load(); n < 30 || n > 33 {
		t.Errorf("%d writes", n)
	}
}

func TestRenewWhileIsNotPutOutByLaterPasses(t *testing.T) {
	ran, _, err := work(t, 10*time.Minute, func(t *testing.T, _ *api, l *Locks, _ context.CancelFunc) {
		for i := range 30 {
			time.AfterFunc(time.Duration(i)*15*time.Second, func() { acquire(t, l, alice) })
		}
	})
	if err != nil || ran != 10*time.Minute {
		t.Errorf("after %s: %v", ran, err)
	}
}

func TestRenewWhileCancels(t *testing.T) {
	ms := time.Millisecond
	for _, tc := range []struct {
		reason     string
		prepare    func(t *testing.T, a *api, l *Locks, cancel context.CancelFunc)
		from, till time.Duration
		lost       bool
	}{
		{"at the deadline, if renewals fail", func(_ *testing.T, a *api, _ *Locks, _ context.CancelFunc) {
			time.AfterFunc(ms, func() { a.fail("update") })
		}, renewDeadline, renewDeadline + ms, true},
		{"at the deadline, if renewals hang", func(_ *testing.T, a *api, _ *Locks, _ context.CancelFunc) {
			time.AfterFunc(ms, func() {
				a.before("update", func(ctx context.Context, _ client.Object) error { <-ctx.Done(); return ctx.Err() })
			})
		}, renewDeadline, renewDeadline + ms, true},
		{"at the deadline, if a renewal hangs without end", func(_ *testing.T, a *api, _ *Locks, _ context.CancelFunc) {
			time.AfterFunc(ms, func() {
				a.before("update", func(context.Context, client.Object) error { time.Sleep(time.Hour); return errors.New("late") })
			})
		}, renewDeadline, renewDeadline + ms, true},
		{"at the deadline after the last renewal", func(_ *testing.T, a *api, _ *Locks, _ context.CancelFunc) {
			time.AfterFunc(10*time.Minute+ms, func() { a.fail("update") })
		}, 10*time.Minute + renewDeadline - renewEvery, 10*time.Minute + renewDeadline + ms, true},
		{"soon after it was taken by another process", func(t *testing.T, a *api, _ *Locks, _ context.CancelFunc) {
			time.AfterFunc(5*time.Minute, func() { acquire(t, a.process(clock.RealClock{}), alice) })
		}, 5 * time.Minute, 5*time.Minute + renewEvery + retryEvery, true},
		{"soon after the Lease was deleted", func(t *testing.T, a *api, _ *Locks, _ context.CancelFunc) {
			time.AfterFunc(5*time.Minute, func() { a.remove(t) })
		}, 5 * time.Minute, 5*time.Minute + renewEvery + retryEvery, true},
		{"when the caller is", func(_ *testing.T, _ *api, _ *Locks, cancel context.CancelFunc) {
			time.AfterFunc(time.Minute+ms, cancel)
		}, time.Minute, time.Minute + 2*ms, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			ran, _, err := work(t, time.Hour*10, tc.prepare)
			if ran < tc.from || ran > tc.till {
				t.Errorf("after %s, want %s to %s", ran, tc.from, tc.till)
			}
			var lost *LostError
			if errors.As(err, &lost) != tc.lost || !errors.Is(err, context.Canceled) {
				t.Errorf("error = %v", err)
			}
		})
	}
}

func TestRenewWhileOutlivesShortTrouble(t *testing.T) {
	ran, _, err := work(t, 20*time.Minute, func(_ *testing.T, a *api, _ *Locks, _ context.CancelFunc) {
		for i := range 5 {
			// Never at once: the first renewal is what lets the work begin.
			time.AfterFunc(time.Duration(i)*4*time.Minute+time.Millisecond, func() { a.fail("update") })
			time.AfterFunc(time.Duration(i)*4*time.Minute+150*time.Second, func() { a.before("update", nil) })
		}
	})
	if err != nil || ran != 20*time.Minute {
		t.Errorf("after %s: %v", ran, err)
	}
}

func TestRenewWhileDoesNotBegin(t *testing.T) {
	for reason, harm := range map[string]func(*testing.T, *api, *Locks, context.CancelFunc){
		"it is lost":              func(t *testing.T, a *api, _ *Locks, _ context.CancelFunc) { a.remove(t) },
		"it cannot be renewed":    func(_ *testing.T, a *api, _ *Locks, _ context.CancelFunc) { a.fail("update") },
		"the renewal is too late": func(_ *testing.T, a *api, _ *Locks, _ context.CancelFunc) { a.lateAnswer.Store(true) },
	} {
		t.Run(reason, func(t *testing.T) {
			if ran, _, err := work(t, time.Minute, harm); err == nil || ran != 0 {
				t.Errorf("it ran for %s: %v", ran, err)
			}
		})
	}
}

func TestRenewWhileReturnsWhatTheWorkReturns(t *testing.T) {
	a := newAPI()
	held := acquire(t, a.process(fakeClock()), alice)
	want := errors.New("mine")
	if err := held.RenewWhile(t.Context(), func(context.Context) error { return want }); err != want { //nolint:errorlint // It must be the very same.
		t.Errorf("error = %v", err)
	}
}

// A work that ends well although the lock was lost did so without a lock, and the caller must know.
func TestRenewWhileTellsOfALossThatTheWorkIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		held := acquire(t, a.process(clock.RealClock{}), alice)
		err := held.RenewWhile(t.Context(), func(context.Context) error {
			a.remove(t)
			time.Sleep(10 * time.Minute)
			return nil
		})
		var lost *LostError
		if !errors.As(err, &lost) {
			t.Errorf("error = %v", err)
		}
	})
}

// waitForWaiters waits until so many timers wait for the clock.
func waitForWaiters(t *testing.T, clk *testclock.FakeClock, n int) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for clk.Waiters() < n {
		select {
		case <-deadline:
			t.Fatalf("%d timers wait, not %d", clk.Waiters(), n)
		default:
			runtime.Gosched()
		}
	}
}

// A process that was paused finds its clock far ahead at once. Its renewal would succeed, since nobody took the lock in
// the meantime; it is too late all the same.
func TestPausedProcess(t *testing.T) {
	a, clk := newAPI(), fakeClock()
	held := acquire(t, a.process(clk), alice)
	var late atomic.Int64
	err := held.RenewWhile(t.Context(), func(ctx context.Context) error {
		waitForWaiters(t, clk, 2)
		a.before("update", func(context.Context, client.Object) error { late.Add(1); return nil })
		clk.Step(leaseDuration)
		<-ctx.Done()
		return ctx.Err()
	})
	var lost *LostError
	if !errors.As(err, &lost) {
		t.Errorf("error = %v", err)
	}
	if late.Load() != 0 {
		t.Error("it was renewed after the deadline")
	}
	if err := held.Check(t.Context()); !errors.As(err, &lost) {
		t.Errorf("Check: %v", err)
	}
	// The work goes on in the next pass.
	if err := acquire(t, held.locks, alice).Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLateAnswerDoesNotEndTheWork(t *testing.T) {
	ran, _, err := work(t, 10*time.Minute, func(_ *testing.T, a *api, _ *Locks, _ context.CancelFunc) {
		time.AfterFunc(2*time.Minute, func() { a.lateAnswer.Store(true) })
		time.AfterFunc(4*time.Minute, func() { a.lateAnswer.Store(false) })
	})
	if err != nil || ran != 10*time.Minute {
		t.Errorf("after %s: %v", ran, err)
	}
}

// A request that hangs must leave time for others before the deadline.
func TestRequestsEnd(t *testing.T) {
	for verb, do := range map[string]func(ctx context.Context, l *Locks, held *Held) error{
		"get":    func(ctx context.Context, _ *Locks, held *Held) error { return held.Check(ctx) },
		"update": func(ctx context.Context, _ *Locks, held *Held) error { return held.Renew(ctx) },
		"delete": func(ctx context.Context, _ *Locks, held *Held) error { return held.Release(ctx) },
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI()
			l := a.process(clock.RealClock{})
			held := acquire(t, l, alice)
			a.before(verb, func(ctx context.Context, _ client.Object) error { <-ctx.Done(); return ctx.Err() })
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			began := time.Now()
			if err := do(ctx, l, held); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != requestTimeout {
				t.Errorf("%s ended after %s: %v", verb, time.Since(began), err)
			}
		})
	}
}
