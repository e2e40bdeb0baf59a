package talosmachine

import (
	"context"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// nodeWatches wake machines up when the Nodes of their clusters change. There is one watch per cluster, begun by the first
// pass that reaches the cluster's Kubernetes API. It only ever saves time: a watch that breaks is begun again by itself,
// and whatever it misses is seen by the next poll.
type nodeWatches struct {
	machines client.Reader // cached
	events   chan event.GenericEvent

	mu      sync.Mutex
	base    context.Context //nolint:containedctx // It is the life of the manager, which begins after this is made.
	watches map[types.NamespacedName]nodeWatch
}

type nodeWatch struct {
	api  kubernetes.Interface
	stop context.CancelFunc
}

func newNodeWatches(machines client.Reader) *nodeWatches {
	return &nodeWatches{
		machines: machines,
		events:   make(chan event.GenericEvent),
		watches:  map[types.NamespacedName]nodeWatch{},
	}
}

// Start lets watches begin, and ends them all when ctx is done: it makes nodeWatches a runnable of a manager. It does not
// wait until they have ended: one whose API is down ends only after client-go's backoff, longer than a manager gives its
// runnables, and the process would end with an error. After ctx none of them wakes anybody.
func (w *nodeWatches) Start(ctx context.Context) error {
	w.mu.Lock()
	w.base = ctx
	w.mu.Unlock()
	<-ctx.Done()
	return nil
}

// Ensure begins the watch of a cluster's Nodes through api, in the place of one through another api: credentials are
// renewed now and then.
func (w *nodeWatches) Ensure(cluster types.NamespacedName, api kubernetes.Interface) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.base == nil || w.base.Err() != nil || w.watches[cluster].api == api {
		return
	}
	w.forget(cluster)
	ctx, stop := context.WithCancel(w.base)
	w.watches[cluster] = nodeWatch{api: api, stop: stop}
	go w.run(ctx, cluster, api)
}

// Forget ends the watch of a cluster that is gone.
func (w *nodeWatches) Forget(cluster types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget(cluster)
}

func (w *nodeWatches) forget(cluster types.NamespacedName) {
	if old, ok := w.watches[cluster]; ok {
		old.stop()
		delete(w.watches, cluster)
	}
}

func (w *nodeWatches) run(ctx context.Context, cluster types.NamespacedName, api kubernetes.Interface) {
	f := informers.NewSharedInformerFactoryWithOptions(api, 0, informers.WithTransform(lighten))
	i := f.Core().V1().Nodes().Informer()
	// An API that is down is told of where it matters, by the survey. Here it would only fill the log.
	_ = i.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {})
	_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { w.wake(ctx, cluster, o) },
		UpdateFunc: func(was, is any) {
			if matters(was, is) {
				w.wake(ctx, cluster, is)
			}
		},
		DeleteFunc: func(o any) { w.wake(ctx, cluster, o) },
	})
	if err != nil {
		return
	}
	i.RunWithContext(ctx)
}

// wake the machine that a Node belongs to.
func (w *nodeWatches) wake(ctx context.Context, cluster types.NamespacedName, o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	n, ok := o.(*corev1.Node)
	if !ok {
		return
	}
	list := &v1alpha1.TalosMachineList{}
	if err := w.machines.List(ctx, list, client.InNamespace(cluster.Namespace)); err != nil {
		return
	}
	for i := range list.Items {
		m := &list.Items[i]
		if m.ClusterName() != cluster.Name || !isNodeOf(n, m) {
			continue
		}
		select {
		case w.events <- event.GenericEvent{Object: m}:
		case <-ctx.Done():
			return
		}
	}
}

func isNodeOf(n *corev1.Node, m *v1alpha1.TalosMachine) bool {
	uuid := n.Status.NodeInfo.SystemUUID
	return n.GetName() == m.Status.AtProvider.NodeName || (uuid != "" && strings.EqualFold(uuid, m.PinnedUUID()))
}

// matters tells whether a Node changed in a way that a machine may wait for: heartbeats and images do not.
func matters(was, is any) bool {
	a, ok := was.(*corev1.Node)
	b, also := is.(*corev1.Node)
	if !ok || !also {
		return true
	}
	return a.GetUID() != b.GetUID() || a.Spec.Unschedulable != b.Spec.Unschedulable || ready(a) != ready(b) ||
		!slices.Equal(a.Status.VolumesAttached, b.Status.VolumesAttached)
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// lighten drops what nothing here looks at: a Node is mostly a list of images.
func lighten(o any) (any, error) {
	if n, ok := o.(*corev1.Node); ok {
		n.ManagedFields, n.Status.Images, n.Annotations, n.Labels = nil, nil, nil, nil
	}
	return o, nil
}
