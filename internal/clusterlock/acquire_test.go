package clusterlock

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestNames(t *testing.T) {
	if LeaseName("one") != "one-disruption" || ClusterName(LeaseName("one")) != "one" {
		t.Errorf("%q, %q", LeaseName("one"), ClusterName(LeaseName("one")))
	}
}

func TestAcquireWritesWhoHoldsIt(t *testing.T) {
	a, clk := newAPI(), fakeClock()
	l := a.process(clk, WithLabels(func(k types.NamespacedName) map[string]string {
		return map[string]string{"cluster": ClusterName(k.Name)}
	}))
	held := acquire(t, l, alice)
	if held.Holder() != alice {
		t.Errorf("holder %v", held.Holder())
	}
	got := a.lease(t)
	annotations := maps.Clone(got.Annotations)
	if annotations[annotationSession] == "" {
		t.Error("there is no session")
	}
	delete(annotations, annotationSession)
	if d := cmp.Diff(map[string]string{annotationName: "a", annotationPurpose: "removal"}, annotations); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]string{"cluster": "one"}, got.Labels); d != "" {
		t.Error(d)
	}
	now := metav1.NewMicroTime(clk.Now())
	if !got.Spec.AcquireTime.Equal(&now) || !got.Spec.RenewTime.Equal(&now) {
		t.Errorf("times %v, %v", got.Spec.AcquireTime, got.Spec.RenewTime)
	}
	if *got.Spec.HolderIdentity != "Machine/uid-a" || *got.Spec.LeaseDurationSeconds != 300 {
		t.Errorf("%q for %d s", *got.Spec.HolderIdentity, *got.Spec.LeaseDurationSeconds)
	}
}

func TestAcquireKeepsWhatOthersPutOnTheLease(t *testing.T) {
	a := newAPI(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: key.Name, Labels: map[string]string{"theirs": "x"}, Annotations: map[string]string{"theirs": "y"}}})
	acquire(t, a.process(fakeClock(), WithLabels(func(types.NamespacedName) map[string]string { return map[string]string{"ours": "z"} })), alice)
	l := a.lease(t)
	if l.Labels["theirs"] != "x" || l.Labels["ours"] != "z" || l.Annotations["theirs"] != "y" {
		t.Errorf("labels %v, annotations %v", l.Labels, l.Annotations)
	}
}

func TestAnotherHolderWaits(t *testing.T) {
	a, clk := newAPI(), fakeClock()
	l := a.process(clk)
	acquire(t, l, alice)
	writes := a.writes.Load()
	for _, other := range []Holder{bob, {Kind: "Operation", Name: "a", UID: "uid-a"}, {Kind: "Machine", Name: "a", UID: "uid-of-a-later-a"}} {
		_, err := l.Acquire(context.Background(), key, other)
		var he *HeldError
		if !errors.As(err, &he) {
			t.Fatalf("%v: error = %v", other, err)
		}
		if want := `the lock is held for the removal of Machine "a" since 2026-05-04T03:02:01Z`; err.Error() != want {
			t.Errorf("text %q, want %q", err, want)
		}
		if he.Holder != alice || he.Irreversible || he.Expired {
			t.Errorf("%+v", he)
		}
	}
	if a.writes.Load() != writes {
		t.Error("something was written for who does not hold it")
	}
}

func TestAcquireNeedsAHolder(t *testing.T) {
	a := newAPI()
	for _, h := range []Holder{{}, {Kind: "Machine", Name: "a"}, {Name: "a", UID: "x"}} {
		if held, err := a.process(fakeClock()).Acquire(context.Background(), key, h); err == nil {
			t.Errorf("%v holds it", held.Holder())
		}
	}
}

func TestExpiry(t *testing.T) {
	hour := time.Hour
	for _, tc := range []struct {
		reason string
		skew   time.Duration
		edit   func(*coordinationv1.Lease)
		wait   time.Duration
		taken  bool
	}{
		{"just before", 0, nil, leaseDuration - time.Second, false},
		{"at the end", 0, nil, leaseDuration, true},
		{"the other clock is ahead", hour, nil, leaseDuration - time.Second, false},
		{"the other clock is ahead, and that does not make it last longer", hour, nil, leaseDuration, true},
		{"the other clock is behind", -hour, nil, leaseDuration - time.Second, false},
		{"the other clock is behind, and that does not make it last longer", -hour, nil, leaseDuration, true},
		{"the holder says that it lasts longer", 0, func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = ptr.To[int32](3600) }, hour - time.Second, false},
		{"the holder says that it lasts longer, and it ends", 0, func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = ptr.To[int32](3600) }, hour, true},
		{"a short duration does not count", 0, func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = ptr.To[int32](1) }, leaseDuration - time.Second, false},
		{"no duration", 0, func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = nil }, leaseDuration - time.Second, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			a, hers, his := newAPI(), fakeClock(), fakeClock()
			hers.SetTime(hers.Now().Add(tc.skew))
			acquire(t, a.process(hers), alice)
			if tc.edit != nil {
				a.edit(t, tc.edit)
			}
			l := a.process(his)
			if _, err := l.Acquire(context.Background(), key, bob); err == nil {
				t.Fatal("it was taken at first sight")
			}
			his.Step(tc.wait)
			_, err := l.Acquire(context.Background(), key, bob)
			if (err == nil) != tc.taken {
				t.Errorf("error = %v", err)
			}
			if got := a.lease(t).Spec.LeaseTransitions; tc.taken && (got == nil || *got != 1) {
				t.Errorf("transitions %v", got)
			}
		})
	}
}

func TestARenewalBeginsTheWaitAnew(t *testing.T) {
	a, clk := newAPI(), fakeClock()
	held, other := acquire(t, a.process(clk), alice), a.process(clk)
	for range 5 {
		if _, err := other.Acquire(context.Background(), key, bob); err == nil {
			t.Fatal("it was taken from a holder that renews it")
		}
		clk.Step(leaseDuration - time.Second)
		if err := held.Renew(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestExpiredHalfWay(t *testing.T) {
	for _, tc := range []struct {
		reason string
		opts   []Option
		edit   func(*coordinationv1.Lease)
		want   string
	}{
		{"nobody knows whether the holder is gone", nil, nil, `the lock is held for the removal of Machine "a" since 2026-05-04T03:02:01Z; that is past the point of no return and must be finished before anything else begins`},
		{"the holder is there", []Option{gone(false, nil)}, nil, "must be finished before anything else begins"},
		{"nobody can tell", []Option{gone(false, errors.New("no answer"))}, nil, `cannot find out whether Machine "a", which holds lock "one-disruption", is gone: no answer`},
		{"nobody can tell, whatever it says", []Option{gone(true, errors.New("no answer"))}, nil, "no answer"},
		{"a mark that makes no sense", []Option{gone(false, nil)}, func(l *coordinationv1.Lease) { l.Annotations[annotationIrreversible] = "maybe" }, "must be finished"},
		{"the holder is gone", []Option{gone(true, nil)}, nil, ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			a, clk := newAPI(), fakeClock()
			if err := acquire(t, a.process(clk), alice).MarkIrreversible(context.Background()); err != nil {
				t.Fatal(err)
			}
			if tc.edit != nil {
				a.edit(t, tc.edit)
			}
			l := a.process(clk, tc.opts...)
			_, err := l.Acquire(context.Background(), key, bob)
			var he *HeldError
			if !errors.As(err, &he) || !he.Irreversible || he.Expired || !strings.Contains(err.Error(), "; that is past the point of no return. If that object is gone, ") {
				t.Fatalf("before it has expired: %v", err)
			}
			clk.Step(leaseDuration)
			writes := a.writes.Load()
			_, err = l.Acquire(context.Background(), key, bob)
			if tc.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if _, marked := a.lease(t).Annotations[annotationIrreversible]; marked {
					t.Error("the next holder is past the point of no return, too")
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error = %v, want %q", err, tc.want)
			}
			if a.writes.Load() != writes {
				t.Error("something was written")
			}
			// Whoever is there resumes it.
			if err := acquire(t, l, alice).Check(context.Background()); err != nil {
				t.Error(err)
			}
			if info, err := l.Peek(context.Background(), key); err != nil || !info.Irreversible {
				t.Errorf("resuming forgot the point of no return: %v, %v", info, err)
			}
		})
	}
}

func TestSameWorkGoesOnAtOnce(t *testing.T) {
	a, clk := newAPI(), fakeClock()
	l := a.process(clk)
	first := acquire(t, l, alice)
	if err := first.MarkIrreversible(context.Background()); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Minute)
	renamed := alice
	renamed.Purpose = "teardown"
	again := acquire(t, l, renamed)
	for _, h := range []*Held{first, again} {
		if err := h.Check(context.Background()); err != nil {
			t.Errorf("a later pass put out an earlier one: %v", err)
		}
	}
	info, err := l.Peek(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&Info{Holder: renamed, Since: fakeClock().Now(), Irreversible: true}, info); d != "" {
		t.Error(d)
	}
	if got := a.lease(t).Spec; !got.RenewTime.Time.Equal(clk.Now()) {
		t.Errorf("it was not renewed: %v", got.RenewTime)
	}
}

// TestLocksAreReadUncached: a lock that is read from a cache excludes nobody.
func TestLocksAreReadUncached(t *testing.T) {
	a, clk := newAPI(), fakeClock()
	acquire(t, a.process(clk), alice)
	l := New(behind{a}, a, clk)
	var held *HeldError
	if _, err := l.Acquire(context.Background(), key, bob); !errors.As(err, &held) {
		t.Errorf("Acquire: %v", err)
	}
	if info, err := l.Peek(context.Background(), key); info == nil || err != nil {
		t.Errorf("Peek: %v, %v", info, err)
	}
}

// behind is a client whose cache has seen no Lease yet.
type behind struct{ client.Client }

func (behind) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return kerrors.NewNotFound(coordinationv1.Resource("leases"), key.Name)
}

// TestRestoredLeaseBeginsTheWaitAnew: an API server that was restored from a backup gives out versions a second time, so
// that only its UID tells a Lease from the one of that version before it.
func TestRestoredLeaseBeginsTheWaitAnew(t *testing.T) {
	a, clk := newAPI(), fakeClock()
	acquire(t, a.process(clk), alice)
	l := a.process(clk)
	look := func() error { _, err := l.Acquire(context.Background(), key, bob); return err }
	if look() == nil {
		t.Fatal("it was taken at first sight")
	}
	first := a.lease(t)
	clk.Step(leaseDuration)
	a.remove(t)
	acquire(t, a.process(clk), alice)
	if again := a.lease(t); again.GetResourceVersion() != first.GetResourceVersion() || again.GetUID() == first.GetUID() {
		t.Fatalf("the Lease has version %s and UID %s", again.GetResourceVersion(), again.GetUID())
	}
	if look() == nil {
		t.Error("a Lease that is alive was taken for one that had expired")
	}
	clk.Step(leaseDuration)
	if err := look(); err != nil {
		t.Errorf("it has expired and is not taken: %v", err)
	}
}

func TestAnotherProcessGoesOnAtOnce(t *testing.T) {
	a, clk := newAPI(), fakeClock()
	before := acquire(t, a.process(clk), alice)
	since := a.lease(t).Spec.AcquireTime
	clk.Step(time.Minute)
	after := acquire(t, a.process(clk), alice)
	if now := a.lease(t).Spec.AcquireTime; !now.Equal(since) {
		t.Errorf("the same work is held since %s, and says since %s", since, now)
	}
	if err := after.Check(context.Background()); err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func() error{
		"Check":            func() error { return before.Check(context.Background()) },
		"Renew":            func() error { return before.Renew(context.Background()) },
		"MarkIrreversible": func() error { return before.MarkIrreversible(context.Background()) },
		"Release":          func() error { return before.Release(context.Background()) },
		"RenewWhile": func() error {
			return before.RenewWhile(context.Background(), func(context.Context) error { t.Error("it acts"); return nil })
		},
	} {
		var lost *LostError
		if err := do(); !errors.As(err, &lost) || !strings.Contains(err.Error(), "another process goes on with this work") {
			t.Errorf("%s of the process before: %v", name, err)
		}
	}
	if err := after.Check(context.Background()); err != nil {
		t.Errorf("the process before disturbed it: %v", err)
	}
}

func TestRaces(t *testing.T) {
	ctx := context.Background()
	for _, tc := range []struct {
		reason string
		verb   string
		before func(t *testing.T, a *api)
	}{
		{"both create", "create", nil},
		{"both take it over", "update", func(t *testing.T, a *api) {
			acquire(t, a.process(fakeClock()), Holder{Kind: "Machine", Name: "c", UID: "uid-c"})
			a.edit(t, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil })
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			a, clk := newAPI(), fakeClock()
			if tc.before != nil {
				tc.before(t, a)
			}
			var winner *Held
			a.once(tc.verb, func() error { winner = acquire(t, a.process(clk), bob); return nil })
			_, err := a.process(clk).Acquire(ctx, key, alice)
			var he *HeldError
			if !errors.As(err, &he) || he.Holder != bob {
				t.Errorf("error = %v", err)
			}
			if err := winner.Check(ctx); err != nil {
				t.Errorf("who was faster: %v", err)
			}
		})
	}
}

func TestEndlessRaceIsAnError(t *testing.T) {
	a, clk := newAPI(), fakeClock()
	acquire(t, a.process(clk), bob)
	a.edit(t, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil })
	n := 0
	l := a.process(clk)
	// Every update comes after one of somebody else.
	a.before("update", racer(t, a, &n))
	if _, err := l.Acquire(context.Background(), key, alice); err == nil || !strings.Contains(err.Error(), "at the same time") || n != maxRaces {
		t.Errorf("after %d races: %v", n, err)
	}
}

func TestLeaseThatIsBeingDeletedIsNotTaken(t *testing.T) {
	a, clk := newAPI(), fakeClock()
	held := acquire(t, a.process(clk), alice)
	a.edit(t, func(l *coordinationv1.Lease) { l.Finalizers = []string{"example.org/keep"} })
	a.remove(t)
	for _, h := range []Holder{alice, bob} {
		if _, err := a.process(clk).Acquire(context.Background(), key, h); err == nil || !strings.Contains(err.Error(), "example.org/keep") {
			t.Errorf("%s: %v", h.Name, err)
		}
	}
	var lost *LostError
	if err := held.Check(context.Background()); !errors.As(err, &lost) {
		t.Errorf("Check: %v", err)
	}
	if err := held.Renew(context.Background()); !errors.As(err, &lost) || lost.Why != "its Lease is being deleted" {
		t.Errorf("Renew: %v", err)
	}
}

func TestUnreadableHolderIsOne(t *testing.T) {
	a, clk := newAPI(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: key.Name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("somebody")}}), fakeClock()
	l := a.process(clk)
	_, err := l.Acquire(context.Background(), key, alice)
	var he *HeldError
	if !errors.As(err, &he) || he.Holder.Name != "somebody" || err.Error() != `the lock is held for the work of unknown holder "somebody"` {
		t.Fatalf("error = %v", err)
	}
	clk.Step(leaseDuration)
	acquire(t, l, alice)
}

func TestAcquireFails(t *testing.T) {
	for _, verb := range []string{"get", "create"} {
		a := newAPI()
		a.fail(verb)
		if _, err := a.process(fakeClock()).Acquire(context.Background(), key, alice); err == nil || !strings.Contains(err.Error(), `Lease "one-disruption"`) {
			t.Errorf("%s: %v", verb, err)
		}
	}
}

func TestPeek(t *testing.T) {
	a, clk := newAPI(), fakeClock()
	l := a.process(clk)
	if info, err := l.Peek(context.Background(), key); info != nil || err != nil {
		t.Errorf("without a Lease: %v, %v", info, err)
	}
	acquire(t, l, alice)
	clk.Step(2 * leaseDuration)
	info, err := a.process(clk).Peek(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&Info{Holder: alice, Since: fakeClock().Now()}, info); d != "" {
		t.Errorf("expired and not taken: %s", d)
	}
	a.edit(t, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil })
	if info, err := l.Peek(context.Background(), key); info != nil || err != nil {
		t.Errorf("cleared: %v, %v", info, err)
	}
	a.fail("get")
	if _, err := l.Peek(context.Background(), key); err == nil {
		t.Error("an API server that does not answer is nobody")
	}
}
