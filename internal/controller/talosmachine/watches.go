package talosmachine

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// ofCluster wakes up every machine of a TalosCluster that changed.
func ofCluster(c client.Reader) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return machinesOf(ctx, c, o.GetNamespace(), o.GetName(), func(*v1alpha1.TalosMachine) bool { return true })
	})
}

// waitingForLock wakes up the machines of a cluster that wait for its lock, when the lock was given back. One that gave
// it back itself is not among them, or it would wake itself up forever.
func waitingForLock(c client.Reader) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return machinesOf(ctx, c, o.GetNamespace(), o.GetLabels()[v1alpha1.LabelCluster], func(m *v1alpha1.TalosMachine) bool {
			return m.GetCondition(v1alpha1.TypeRemoval).Reason == v1alpha1.ReasonWaitingForLock ||
				m.GetCondition(v1alpha1.TypeConfigApplied).Reason == v1alpha1.ReasonWaitingForLock
		})
	})
}

func machinesOf(ctx context.Context, c client.Reader, namespace, cluster string, wanted func(*v1alpha1.TalosMachine) bool) []reconcile.Request {
	list := &v1alpha1.TalosMachineList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil || cluster == "" {
		return nil // The next poll sees it.
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if m := &list.Items[i]; m.ClusterName() == cluster && wanted(m) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m)})
		}
	}
	return requests
}

// released lets through only that a lock was given back, not that it was taken or renewed.
func released() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		UpdateFunc:  func(e event.UpdateEvent) bool { return held(e.ObjectOld) && !held(e.ObjectNew) },
	}
}

func held(o client.Object) bool {
	l, ok := o.(*coordinationv1.Lease)
	return ok && l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != ""
}
