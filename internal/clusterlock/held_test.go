package clusterlock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// racer writes the Lease before each update, so that the update conflicts.
func racer(t *testing.T, a *api, n *int) func(context.Context, client.Object) error {
	return func(context.Context, client.Object) error {
		a.before("update", nil)
		a.edit(t, func(l *coordinationv1.Lease) {
			if l.Labels == nil {
				l.Labels = map[string]string{}
			}
			l.Labels["n"] += "x"
		})
		*n++
		a.before("update", racer(t, a, n))
		return nil
	}
}

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		reason string
		harm   func(t *testing.T, a *api, clk *testclock.FakeClock)
		want   string
		lost   bool
	}{
		{"nothing happened", func(*testing.T, *api, *testclock.FakeClock) {}, "", false},
		{"just before the deadline", func(_ *testing.T, _ *api, clk *testclock.FakeClock) { clk.Step(renewDeadline - time.Second) }, "", false},
		{"the deadline has come, and nobody has taken it yet", func(_ *testing.T, _ *api, clk *testclock.FakeClock) { clk.Step(renewDeadline) }, "it was not renewed for 4m0s", true},
		{"another took it", func(t *testing.T, a *api, clk *testclock.FakeClock) {
			other := a.process(clk)
			_, _ = other.Acquire(context.Background(), key, bob)
			clk.Step(leaseDuration)
			acquire(t, other, bob)
		}, `it is held for the reboot of Machine "b"`, true},
		{"deleted by hand", func(t *testing.T, a *api, _ *testclock.FakeClock) { a.remove(t) }, "its Lease was deleted", true},
		{"deleted by hand and created again", func(t *testing.T, a *api, clk *testclock.FakeClock) {
			was := a.lease(t)
			a.remove(t)
			was.ResourceVersion, was.UID = "", ""
			if err := a.Create(context.Background(), was); err != nil {
				t.Fatal(err)
			}
		}, "another process goes on with this work", true},
		{"cleared by hand", func(t *testing.T, a *api, _ *testclock.FakeClock) {
			a.edit(t, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil })
		}, "its Lease was cleared", true},
		{"changed by hand", func(t *testing.T, a *api, _ *testclock.FakeClock) {
			a.edit(t, func(l *coordinationv1.Lease) { l.Labels = map[string]string{"x": "y"} })
		}, "its Lease was changed by somebody else", true},
		{"the API server does not answer", func(_ *testing.T, a *api, _ *testclock.FakeClock) { a.fail("get") }, "cannot read Lease", false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			a, clk := newAPI(), fakeClock()
			held := acquire(t, a.process(clk), alice)
			tc.harm(t, a, clk)
			err := held.Check(context.Background())
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("error = %v, want %q", err, tc.want)
			}
			var lost *LostError
			if errors.As(err, &lost) != tc.lost {
				t.Errorf("error %v is a LostError: %t", err, !tc.lost)
			}
		})
	}
}

// A Check that takes so long that the deadline comes meanwhile must not pass.
func TestCheckCountsItsOwnTime(t *testing.T) {
	a, clk := newAPI(), fakeClock()
	held := acquire(t, a.process(clk), alice)
	a.before("get", func(context.Context, client.Object) error { clk.Step(renewDeadline); return nil })
	if err := held.Check(context.Background()); err == nil {
		t.Error("it passed")
	}
}

// The deadline counts from when a renewal was sent, not from when it was answered.
func TestRenewalCountsFromItsSending(t *testing.T) {
	a, clk := newAPI(), fakeClock()
	held := acquire(t, a.process(clk), alice)
	a.once("update", func() error { clk.Step(time.Minute); return nil })
	if err := held.Renew(context.Background()); err != nil {
		t.Fatal(err)
	}
	clk.Step(renewDeadline - time.Minute)
	if err := held.Check(context.Background()); err == nil {
		t.Error("it passed")
	}
}

func TestRenewSurvivesWhatDoesNotTouchTheHolder(t *testing.T) {
	a, clk := newAPI(), fakeClock()
	held := acquire(t, a.process(clk), alice)
	a.edit(t, func(l *coordinationv1.Lease) { l.Labels = map[string]string{"x": "y"} })
	if err := held.Renew(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := held.Check(context.Background()); err != nil {
		t.Error(err)
	}
	if a.lease(t).Labels["x"] != "y" {
		t.Error("the label is gone")
	}
	n := 0
	a.before("update", racer(t, a, &n))
	var lost *LostError
	if err := held.Renew(context.Background()); err == nil || errors.As(err, &lost) || n != maxRaces {
		t.Errorf("after %d races: %v", n, err)
	}
}

// A write that was carried out and not answered is one's own, not somebody else's.
func TestLateAnswers(t *testing.T) {
	ctx, clk := context.Background(), fakeClock()
	t.Run("of a renewal", func(t *testing.T) {
		a := newAPI()
		held := acquire(t, a.process(clk), alice)
		a.lateAnswer.Store(true)
		if err := held.Renew(ctx); !kerrors.IsTimeout(err) {
			t.Fatalf("error = %v", err)
		}
		a.lateAnswer.Store(false)
		if err := held.Check(ctx); err != nil {
			t.Errorf("Check: %v", err)
		}
		if err := held.Renew(ctx); err != nil {
			t.Errorf("Renew: %v", err)
		}
		a.edit(t, func(l *coordinationv1.Lease) { l.Labels = map[string]string{"x": "y"} })
		if err := held.Check(ctx); err == nil {
			t.Error("what somebody else changed later is taken for that write")
		}
	})
	t.Run("of the taking", func(t *testing.T) {
		a := newAPI()
		l := a.process(clk)
		a.lateAnswer.Store(true)
		if _, err := l.Acquire(ctx, key, alice); err == nil {
			t.Fatal("a lock that may not be held is held")
		}
		a.lateAnswer.Store(false)
		if err := acquire(t, l, alice).Check(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Run("of the release", func(t *testing.T) {
		a := newAPI()
		held := acquire(t, a.process(clk), alice)
		a.lateAnswer.Store(true)
		if err := held.Release(ctx); err == nil {
			t.Fatal("no error")
		}
		a.lateAnswer.Store(false)
		if err := held.Release(ctx); err != nil {
			t.Error(err)
		}
	})
}

func TestMarkIrreversible(t *testing.T) {
	ctx, a, clk := context.Background(), newAPI(), fakeClock()
	l := a.process(clk)
	held := acquire(t, l, alice)
	a.fail("update")
	if err := held.MarkIrreversible(ctx); err == nil {
		t.Fatal("no error")
	}
	a.before("update", nil)
	if err := held.Renew(ctx); err != nil {
		t.Fatal(err)
	}
	if info, err := l.Peek(ctx, key); err != nil || info.Irreversible {
		t.Errorf("a mark that failed was written later: %v, %v", info, err)
	}
	if err := held.MarkIrreversible(ctx); err != nil {
		t.Fatal(err)
	}
	if info, err := l.Peek(ctx, key); err != nil || !info.Irreversible {
		t.Errorf("%v, %v", info, err)
	}
	if err := held.MarkIrreversible(ctx); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := held.Check(ctx); err != nil {
		t.Error(err)
	}
	a.remove(t)
	acquire(t, a.process(clk), bob)
	var lost *LostError
	if err := held.MarkIrreversible(ctx); !errors.As(err, &lost) {
		t.Errorf("marked before, and lost since: %v", err)
	}
}

func TestRelease(t *testing.T) {
	ctx := context.Background()
	for _, tc := range []struct {
		reason string
		before func(t *testing.T, a *api, clk *testclock.FakeClock)
		want   string
		left   *Holder
	}{
		{"it is held", func(*testing.T, *api, *testclock.FakeClock) {}, "", nil},
		{"it has expired and nobody took it", func(_ *testing.T, _ *api, clk *testclock.FakeClock) { clk.Step(leaseDuration) }, "", nil},
		{"it is gone", func(t *testing.T, a *api, _ *testclock.FakeClock) { a.remove(t) }, "", nil},
		{"somebody deletes it between the look and the delete", func(t *testing.T, a *api, _ *testclock.FakeClock) {
			a.once("delete", func() error { a.remove(t); return nil })
		}, "", nil},
		{"another took it", func(t *testing.T, a *api, clk *testclock.FakeClock) {
			a.remove(t)
			acquire(t, a.process(clk), bob)
		}, "", &bob},
		{"another takes it between the look and the delete", func(t *testing.T, a *api, clk *testclock.FakeClock) {
			a.once("delete", func() error {
				a.remove(t)
				acquire(t, a.process(clk), bob)
				return nil
			})
		}, "", &bob},
		{"another process goes on with the work", func(t *testing.T, a *api, clk *testclock.FakeClock) { acquire(t, a.process(clk), alice) }, "another process goes on with this work", &alice},
		{"another process goes on with the work between the look and the delete", func(t *testing.T, a *api, clk *testclock.FakeClock) {
			a.once("delete", func() error { acquire(t, a.process(clk), alice); return nil })
		}, "another process goes on with this work", &alice},
		{"somebody changes it between the look and the delete", func(t *testing.T, a *api, clk *testclock.FakeClock) {
			a.once("delete", func() error {
				a.edit(t, func(l *coordinationv1.Lease) { l.Labels = map[string]string{"x": "y"} })
				return nil
			})
		}, "", nil},
		{"the delete fails", func(_ *testing.T, a *api, _ *testclock.FakeClock) { a.fail("delete") }, "cannot delete Lease", &alice},
		{"the look fails", func(_ *testing.T, a *api, _ *testclock.FakeClock) {
			a.once("get", func() error { return errors.New("broken") })
		}, "cannot read Lease", &alice},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			a, clk := newAPI(), fakeClock()
			l := a.process(clk)
			held := acquire(t, l, alice)
			tc.before(t, a, clk)
			err := held.Release(ctx)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("error = %v, want %q", err, tc.want)
			}
			info, err := l.Peek(ctx, key)
			if err != nil {
				t.Fatal(err)
			}
			if (info == nil) != (tc.left == nil) || info != nil && info.Holder != *tc.left {
				t.Errorf("left: %v, want %v", info, tc.left)
			}
		})
	}
}

func TestReleasedIsLost(t *testing.T) {
	ctx, a := context.Background(), newAPI()
	l := a.process(fakeClock())
	held, twin := acquire(t, l, alice), acquire(t, l, alice)
	if err := held.Release(ctx); err != nil {
		t.Fatal(err)
	}
	for _, h := range []*Held{held, twin} {
		var lost *LostError
		if err := h.Check(ctx); !errors.As(err, &lost) {
			t.Errorf("Check: %v", err)
		}
		if err := h.Renew(ctx); !errors.As(err, &lost) {
			t.Errorf("Renew: %v", err)
		}
		if err := h.Release(ctx); err != nil {
			t.Errorf("Release: %v", err)
		}
	}
	if len(l.sessions) != 0 || len(l.seen) != 0 {
		t.Errorf("%d sessions, %d sightings are left", len(l.sessions), len(l.seen))
	}
	acquire(t, l, alice)
	var lost *LostError
	if err := held.Check(ctx); !errors.As(err, &lost) {
		t.Errorf("taken again by the same work: %v", err)
	}
}

// Giving up what another has taken meanwhile must not put out the other's work, even in the same process.
func TestReleaseLeavesTheNextHolderAlone(t *testing.T) {
	ctx, a := context.Background(), newAPI()
	l := a.process(fakeClock())
	held := acquire(t, l, alice)
	a.remove(t)
	next := acquire(t, l, bob)
	if err := held.Release(ctx); err != nil {
		t.Fatal(err)
	}
	acquire(t, l, bob)
	if err := next.Check(ctx); err != nil {
		t.Error(err)
	}
}

func TestReleaseGivesUpAfterRaces(t *testing.T) {
	ctx, a := context.Background(), newAPI()
	held := acquire(t, a.process(fakeClock()), alice)
	a.before("delete", func(context.Context, client.Object) error {
		a.edit(t, func(l *coordinationv1.Lease) {
			if l.Labels == nil {
				l.Labels = map[string]string{}
			}
			l.Labels["n"] += "x"
		})
		return nil
	})
	if err := held.Release(ctx); err == nil || !strings.Contains(err.Error(), "at the same time") {
		t.Errorf("error = %v", err)
	}
}
