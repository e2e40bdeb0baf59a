package waiting

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// backoff is how the managed reconciler asks for its backoff.
var backoff = reconcile.Result{Requeue: true} //nolint:staticcheck // It asks in no other way.

func TestWrap(t *testing.T) {
	nn := types.NamespacedName{Namespace: "metal", Name: "cp-1"}
	other := types.NamespacedName{Namespace: "metal", Name: "cp-2"}
	boom := errors.New("boom")

	cases := map[string]struct {
		reason string
		left   []types.NamespacedName // hints left over from a pass before
		given  []types.NamespacedName // hints given in the pass
		soon   bool                   // there is a next thing to do
		res    reconcile.Result
		err    error
		want   reconcile.Result
	}{
		"Backoff": {
			reason: "A wait replaces the exponential backoff by the fixed interval.",
			given:  []types.NamespacedName{nn},
			res:    backoff,
			want:   reconcile.Result{RequeueAfter: Interval},
		},
		"Poll": {
			reason: "A wait in an update is not put off for a whole poll interval.",
			given:  []types.NamespacedName{nn},
			res:    reconcile.Result{RequeueAfter: time.Minute},
			want:   reconcile.Result{RequeueAfter: Interval},
		},
		"Soon": {
			reason: "A pass that did its one thing is followed by the next one at once, not after a wait: a removal has a dozen.",
			given:  []types.NamespacedName{nn},
			soon:   true,
			res:    backoff,
			want:   reconcile.Result{RequeueAfter: Soon},
		},
		"Sooner": {
			reason: "A pass that is to be repeated sooner than a wait is not put off.",
			given:  []types.NamespacedName{nn},
			res:    reconcile.Result{RequeueAfter: time.Second},
			want:   reconcile.Result{RequeueAfter: time.Second},
		},
		"Done": {
			reason: "A pass that needs no further pass gets none: the object may be gone.",
			given:  []types.NamespacedName{nn},
		},
		"Failed": {
			reason: "A failure keeps its backoff: hammering a broken API every 15 s helps nobody.",
			given:  []types.NamespacedName{nn},
			err:    boom,
		},
		"NoHint": {
			reason: "Without a hint, nothing changes.",
			res:    backoff,
			want:   backoff,
		},
		"HintForAnother": {
			reason: "A hint for another object says nothing of this one.",
			given:  []types.NamespacedName{other},
			res:    backoff,
			want:   backoff,
		},
		"HintLeftOver": {
			reason: "A hint of a pass that never ended says nothing of this one.",
			left:   []types.NamespacedName{nn},
			res:    backoff,
			want:   backoff,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			hints := NewHints(0)
			for _, n := range tc.left {
				hints.Give(n)
			}
			r := Wrap(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				for _, n := range tc.given {
					hints.Give(n)
					if tc.soon {
						hints.GiveSoon(n)
					}
				}
				return tc.res, tc.err
			}), hints)

			got, err := r.Reconcile(context.Background(), reconcile.Request{NamespacedName: nn})
			if diff := cmp.Diff(tc.err, err, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("\n%s\nReconcile(...): -want error, +got error:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\nReconcile(...): -want, +got:\n%s", tc.reason, diff)
			}
			if _, left := hints.take(nn); left {
				t.Errorf("\n%s\nthe hint outlived its pass", tc.reason)
			}
		})
	}
}
