package talosmachine

import (
	"context"
	"strings"
	"testing"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/clusterlock"
)

// TestTheOtherProcessIsGivenTime has another process take the same work over in the midst of a pass: this one acts no more, and
// comes back after its backoff. Two that come back at the same pace take the lock from each other for ever.
func TestTheOtherProcessIsGivenTime(t *testing.T) {
	cases := map[string]struct {
		begin         func(t *testing.T, name string) *bench
		name, purpose string
		kind          xpv2.ConditionType
		// look at the Nodes that is the one under the lock.
		look int
	}{
		"Removal": {
			begin: func(t *testing.T, name string) *bench {
				b := newBench(t, 3, four, nil)
				b.remove(name)
				return b
			},
			name: "cp-4", purpose: purposeRemoval, kind: v1alpha1.TypeRemoval, look: 1,
		},
		"Reboot": {
			begin: func(t *testing.T, name string) *bench {
				b := newConfigured(t, four[:3], nil)
				b.needReboot(name)
				return b
			},
			name: "cp-2", purpose: purposeReboot, kind: v1alpha1.TypeConfigApplied, look: 2,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := tc.begin(t, tc.name)
			b.passUntil(tc.name, func() bool { return b.node(tc.name).Spec.Unschedulable })
			other, looks := clusterlock.New(b.mgmt, b.mgmt, b.clock), 0
			b.kube.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
				if looks++; looks == tc.look {
					_, err := other.Acquire(context.Background(), leaseKey(), holderOf(b.get(tc.name), tc.purpose))
					b.must(err)
				}
				return false, nil, nil
			})
			b.forget()
			got := b.pass(tc.name)
			if want := (reconcile.Result{Requeue: true}); got != want || looks != tc.look { //nolint:staticcheck // The managed reconciler asks for its backoff so.
				t.Errorf("%d looks, want %d; again after %+v, want its backoff", looks, tc.look, got)
			}
			if sent := b.sent(); len(sent) > 0 {
				t.Errorf("sent without the lock: %q", sent)
			}
			if c := b.condition(tc.name, tc.kind); !strings.Contains(c.Message, "another process goes on with this work") {
				t.Errorf("%s says %q", tc.kind, c.Message)
			}
		})
	}
}
