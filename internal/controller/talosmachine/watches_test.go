package talosmachine

import (
	"context"
	"slices"
	"testing"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// fleet is a cache with the machines of three clusters and one of none, of which two have the same name.
func fleet(t *testing.T) client.Reader {
	t.Helper()
	machine := func(ns, name, cluster string, waits xpv2.ConditionType) client.Object {
		m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
		if cluster != "" {
			m.Spec.ForProvider.ClusterRef = &v1alpha1.ClusterReference{Name: cluster}
		}
		if waits != "" {
			m.SetConditions(xpv2.Condition{Type: waits, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonWaitingForLock})
		}
		return m
	}
	s := runtime.NewScheme()
	if err := v1alpha1.SchemeBuilder.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return clientfake.NewClientBuilder().WithScheme(s).WithObjects(
		machine(namespace, "holds-it", clusterName, ""),
		machine(namespace, "removal-waits", clusterName, v1alpha1.TypeRemoval),
		machine(namespace, "reboot-waits", clusterName, v1alpha1.TypeConfigApplied),
		machine(namespace, "of-another", "another", v1alpha1.TypeRemoval),
		machine(namespace, "of-none", "", v1alpha1.TypeRemoval),
		machine("elsewhere", "of-a-namesake", clusterName, v1alpha1.TypeRemoval),
	).Build()
}

// wakes tells whom an event wakes: a create if there was nothing before, a delete if there is nothing after, else an update.
func wakes(h handler.EventHandler, p predicate.Predicate, before, after client.Object) []string {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	ctx := context.Background()
	switch {
	case before == nil:
		if e := (event.CreateEvent{Object: after}); p.Create(e) {
			h.Create(ctx, e, q)
		}
	case after == nil:
		if e := (event.DeleteEvent{Object: before}); p.Delete(e) {
			h.Delete(ctx, e, q)
		}
	default:
		if e := (event.UpdateEvent{ObjectOld: before, ObjectNew: after}); p.Update(e) {
			h.Update(ctx, e, q)
		}
	}
	var names []string
	for q.Len() > 0 {
		r, _ := q.Get()
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return names
}

// TestWhoIsWokenByALock: those who wait for it, when it is free, and nobody else: one that gave it back itself would take it
// again at once, and so forever.
func TestWhoIsWokenByALock(t *testing.T) {
	lease := func(holder string) client.Object {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{v1alpha1.LabelCluster: clusterName}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(holder)},
		}
	}
	waiting := []string{"reboot-waits", "removal-waits"}
	cases := map[string]struct {
		reason        string
		before, after client.Object
		want          []string
	}{
		"Released":    {reason: "A lock that is given back is for those who wait.", before: lease("one"), after: lease(""), want: waiting},
		"Deleted":     {reason: "A lock that a person took away is free as well.", before: lease("one"), want: waiting},
		"Taken":       {reason: "There is nothing to be had.", before: lease(""), after: lease("one")},
		"Renewed":     {reason: "It is held as before, a minute later.", before: lease("one"), after: lease("one")},
		"HandedOver":  {reason: "Somebody else was faster.", before: lease("one"), after: lease("two")},
		"First":       {reason: "It is made by who takes it.", after: lease("one")},
		"FreeAsEver":  {reason: "Nobody waits for what nobody had.", before: lease(""), after: lease("")},
		"OfNoCluster": {reason: "A Lease of something else is nobody's lock.", before: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, wakes(waitingForLock(fleet(t)), released(), tc.before, tc.after)); diff != "" {
				t.Errorf("\n%s\nwoken: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestWhoIsWokenByACluster: all of its machines, and those of no other.
func TestWhoIsWokenByACluster(t *testing.T) {
	c := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: clusterName}}
	want := []string{"holds-it", "reboot-waits", "removal-waits"}
	if diff := cmp.Diff(want, wakes(ofCluster(fleet(t)), predicate.Funcs{}, c, c)); diff != "" {
		t.Errorf("woken: -want, +got:\n%s", diff)
	}
}
