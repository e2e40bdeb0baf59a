package taloscluster

import (
	"context"
	"testing"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// TestClustersAreNotPolledAtOnce: each poll asks every control plane, and the polls of many clusters, which all begin when the
// provider starts, are spread.
func TestClustersAreNotPolledAtOnce(t *testing.T) {
	data, _ := bundle(t, 0)
	w := newWorld(t, importedCluster())
	if err := w.api.Create(context.Background(), secret("import", "secrets.yaml", data)); err != nil {
		t.Fatalf("cannot create the bundle to import: %v", err)
	}
	w.converge(func(*world) {})
	r, first, spread := w.reconciler(), poll, false
	for i := range 10 {
		res, err := w.pass(r)
		if err != nil {
			t.Fatalf("Reconcile(...): %v", err)
		}
		after := res.RequeueAfter
		if after < poll*9/10 || after > poll*11/10 {
			t.Fatalf("a cluster at rest is looked at again after %s, want %s, more or less", after, poll)
		}
		if i == 0 {
			first = after
		}
		spread = spread || after != first
	}
	if !spread {
		t.Errorf("a cluster at rest is looked at every %s to the nanosecond, and so are all others", first)
	}
}

// TestClusterDeletedRightAfterItWasMade: nothing keeps it. Crossplane waits for half a minute otherwise, for APIs that do not know
// at once what they have.
func TestClusterDeletedRightAfterItWasMade(t *testing.T) {
	ctx := context.Background()
	data, _ := bundle(t, 0)
	w := newWorld(t, importedCluster())
	if err := w.api.Create(ctx, secret("import", "secrets.yaml", data)); err != nil {
		t.Fatalf("cannot create the bundle to import: %v", err)
	}
	for _, m := range w.machines {
		o := &v1alpha1.TalosMachine{}
		o.SetNamespace(testNamespace)
		o.SetName(m.name)
		if err := w.api.Delete(ctx, o); err != nil {
			t.Fatalf("cannot delete a TalosMachine: %v", err)
		}
	}
	w.machines = nil
	r := w.reconciler()
	pass := func() {
		t.Helper()
		if _, err := w.pass(r); err != nil {
			t.Fatalf("Reconcile(...): %v", err)
		}
	}
	pass()
	c := w.cluster(ctx)
	annotated(v1alpha1.AnnotationAllowDelete, "true")(c)
	if err := w.api.Update(ctx, c); err != nil {
		t.Fatalf("cannot allow the deletion: %v", err)
	}
	if err := w.api.Delete(ctx, c); err != nil {
		t.Fatalf("cannot delete the TalosCluster: %v", err)
	}
	for range 4 {
		pass()
	}
	if err := w.api.Get(ctx, client.ObjectKeyFromObject(c), c); !kerrors.IsNotFound(err) {
		t.Errorf("it is still there: %v, %+v", err, c.Status.Conditions)
	}
}
