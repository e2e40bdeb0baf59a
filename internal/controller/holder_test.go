package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/clusterlock"
)

// TestHolderGone holds that the lock of half-done work is only ever given up for an object that is surely gone.
func TestHolderGone(t *testing.T) {
	boom := errors.New("boom")
	m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cp-1", UID: "1"}}
	c := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: cluster, UID: "2"}}
	cases := map[string]struct {
		reason  string
		holder  clusterlock.Holder
		err     error
		want    bool
		wantErr bool
	}{
		"Machine":       {reason: "A machine that is there is not gone.", holder: clusterlock.Holder{Kind: "TalosMachine", Name: "cp-1", UID: "1"}},
		"Cluster":       {reason: "A cluster that is there is not gone.", holder: clusterlock.Holder{Kind: "TalosCluster", Name: cluster, UID: "2"}},
		"GoneMachine":   {reason: "A machine that is not there is gone.", holder: clusterlock.Holder{Kind: "TalosMachine", Name: "cp-9", UID: "1"}, want: true},
		"Replaced":      {reason: "Another machine of that name is another machine.", holder: clusterlock.Holder{Kind: "TalosMachine", Name: "cp-1", UID: "9"}, want: true},
		"OtherKind":     {reason: "What is not ours is never said to be gone.", holder: clusterlock.Holder{Kind: "Somebody", Name: "cp-9", UID: "9"}},
		"CannotBeAsked": {reason: "An API server that fails says nothing.", holder: clusterlock.Holder{Kind: "TalosMachine", Name: "cp-9", UID: "1"}, err: boom, wantErr: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			scheme, err := NewScheme()
			if err != nil {
				t.Fatalf("NewScheme(): %v", err)
			}
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(m, c).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if tc.err != nil {
						return tc.err
					}
					return c.Get(ctx, key, o, opts...)
				},
			}).Build()
			got, err := holderGone(api)(context.Background(), ns, tc.holder)
			if got != tc.want || (err != nil) != tc.wantErr {
				t.Errorf("\n%s\nholderGone(...): %t, %v; want %t, error: %t", tc.reason, got, err, tc.want, tc.wantErr)
			}
		})
	}
}

// TestLocks holds that the Lease of a cluster is labelled with it, by which it is watched, and that a removal that was past the
// point of no return when its object went, be it by force, does not keep the cluster locked for good.
func TestLocks(t *testing.T) {
	scheme, err := NewScheme()
	if err != nil {
		t.Fatalf("NewScheme(): %v", err)
	}
	ctx, clk := context.Background(), clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	next := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cp-2", UID: "2"}}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(next).Build()
	locks, key := newLocks(api, api, clk), types.NamespacedName{Namespace: ns, Name: clusterlock.LeaseName(cluster)}
	gone, err := locks.Acquire(ctx, key, clusterlock.Holder{Kind: v1alpha1.TalosMachineKind, Name: "cp-1", UID: "1"})
	if err != nil {
		t.Fatalf("Acquire(...): %v", err)
	}
	lease := &coordinationv1.Lease{}
	if err := api.Get(ctx, key, lease); err != nil || lease.GetLabels()[v1alpha1.LabelCluster] != cluster {
		t.Errorf("Lease %s has labels %v (%v), want that of cluster %q", key, lease.GetLabels(), err, cluster)
	}
	if err := gone.MarkIrreversible(ctx); err != nil {
		t.Fatalf("MarkIrreversible(...): %v", err)
	}

	later := clusterlock.Holder{Kind: v1alpha1.TalosMachineKind, Name: next.Name, UID: next.UID}
	held := (*clusterlock.HeldError)(nil)
	if _, err := locks.Acquire(ctx, key, later); !errors.As(err, &held) {
		t.Errorf("Acquire(...) of a lock that has not expired: %v", err)
	}
	clk.Step(time.Hour)
	if _, err := locks.Acquire(ctx, key, later); err != nil {
		t.Errorf("Acquire(...) of a lock whose object is gone: %v", err)
	}
}
