package talosmachine

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// woken waits until a machine is woken up, and returns its name.
func woken(t *testing.T, w *nodeWatches) string {
	t.Helper()
	select {
	case e := <-w.events:
		return e.Object.GetName()
	case <-time.After(10 * time.Second):
		t.Fatal("no machine was woken up")
	}
	return ""
}

func TestNodeChangesWakeTheirMachine(t *testing.T) {
	b := newBench(t, 3, four[:3], nil)
	w := newNodeWatches(b.mgmt)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = w.Start(ctx) }()
	defer func() { cancel(); <-ended }()

	cluster := types.NamespacedName{Namespace: namespace, Name: clusterName}
	api, watched := newWatchedAPI()
	ensure(t, w, cluster, api)
	<-watched

	foreign := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cp-1"}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{SystemUUID: "00000000-0000-4000-8000-00000000dead"}}}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "any-name"}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{SystemUUID: b.box("cp-2").uuid}}}
	for _, o := range []*corev1.Node{foreign, n} {
		_, err := api.CoreV1().Nodes().Create(ctx, o, metav1.CreateOptions{})
		b.must(err)
	}
	if got := woken(t, w); got != "cp-2" {
		t.Fatalf("%s was woken up: a Node belongs to the machine with its UUID, whatever its name", got)
	}

	// A heartbeat wakes nobody, what comes after it does.
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, LastHeartbeatTime: metav1.Now()}}
	update(t, api, n)
	n.Spec.Unschedulable = true
	update(t, api, n)
	if got := woken(t, w); got != "cp-2" {
		t.Errorf("%s was woken up", got)
	}
	select {
	case e := <-w.events:
		t.Errorf("%s was woken up by a heartbeat", e.Object.GetName())
	default:
	}

	b.must(api.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{}))
	if got := woken(t, w); got != "cp-2" {
		t.Errorf("%s was woken up", got)
	}
	w.Forget(cluster)
	if len(w.watches) > 0 {
		t.Error("a watch outlives its cluster")
	}
}

// newWatchedAPI returns a Kubernetes API that tells when its Nodes are watched: the fake one loses what comes before that.
func newWatchedAPI() (*fake.Clientset, <-chan struct{}) {
	api, watched := fake.NewClientset(), make(chan struct{})
	api.PrependWatchReactor("nodes", func(clienttesting.Action) (bool, watch.Interface, error) {
		i, err := api.Tracker().Watch(corev1.SchemeGroupVersion.WithResource("nodes"), "")
		close(watched)
		return true, i, err
	})
	return api, watched
}

func update(t *testing.T, api kubernetes.Interface, n *corev1.Node) {
	t.Helper()
	if _, err := api.CoreV1().Nodes().Update(context.Background(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// ensure begins a watch as soon as watches may begin.
func ensure(t *testing.T, w *nodeWatches, cluster types.NamespacedName, api kubernetes.Interface) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		w.Ensure(cluster, api)
		w.mu.Lock()
		begun := w.watches[cluster].api == api
		w.mu.Unlock()
		if begun {
			return
		}
		select {
		case <-deadline:
			t.Fatal("the watch was not begun")
		case <-tick.C:
		}
	}
}
