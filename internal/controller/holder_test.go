package controller

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// TestLeaseLabels holds that a Lease is labelled with the cluster that it belongs to, by which it is watched.
func TestLeaseLabels(t *testing.T) {
	lease := types.NamespacedName{Namespace: ns, Name: clusterlock.LeaseName(cluster)}
	if got := leaseLabels(lease)[v1alpha1.LabelCluster]; got != cluster {
		t.Errorf("leaseLabels(%s): cluster %q, want %q", lease, got, cluster)
	}
}
