package workload

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubectl/pkg/drain"
)

const ns = metav1.NamespaceDefault

// deploy makes a Deployment and waits until its replicas run.
func (w *world) deploy(t *testing.T, name string, replicas int32, annotations map[string]string) {
	t.Helper()
	labels := map[string]string{"app": name}
	_, err := w.client.AppsV1().Deployments(ns).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	within(t, name+" runs", func() bool {
		d, err := w.client.AppsV1().Deployments(ns).Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && d.Status.ReadyReplicas == replicas
	})
}

// podsOf are the pods of a Deployment that are not terminating.
func (w *world) podsOf(t *testing.T, name string) []corev1.Pod {
	t.Helper()
	list, err := w.client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// drain is what kubectl drain does, giving up after a timeout.
func (w *world) drain(t *testing.T, node string, timeout time.Duration) (said string, err error) {
	t.Helper()
	var out lockedBuffer // kubectl writes to it from a goroutine per pod
	h := &drain.Helper{
		Ctx: t.Context(), Client: w.client, IgnoreAllDaemonSets: true, DeleteEmptyDirData: true, GracePeriodSeconds: -1,
		Timeout: timeout, Out: io.Discard, ErrOut: &out,
	}
	object, err := w.client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := drain.RunCordonOrUncordon(h, object, true); err != nil {
		t.Fatal(err)
	}
	err = drain.RunNodeDrain(h, node)
	return out.String(), err
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (w *world) uncordon(t *testing.T, node string) {
	t.Helper()
	patch := []byte(`{"spec":{"unschedulable":null}}`)
	if _, err := w.client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// apiServer is the process ID of the cluster's kube-apiserver, 0 if there is none.
func (w *world) apiServer(t *testing.T) int {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		line, err := os.ReadFile(path)
		if err != nil {
			continue // It ended since the listing.
		}
		if bytes.Contains(line, []byte("--client-ca-file="+w.o.Dir+"/")) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	return 0
}

// TestLifeOfACluster goes through one cluster's life in order; each part needs the parts before it.
func TestLifeOfACluster(t *testing.T) {
	w := newWorld(t)
	if _, known := w.NodeReady("cp-1"); known {
		t.Error("a node is known while the API is down")
	}
	w.SetNode(machine("cp-1", 1, true))
	w.SetNode(machine("worker-1", 2, false))
	w.SetNode(machine("worker-2", 3, false))
	w.up(t)

	parts := []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"NodesRegister", nodesRegister},
		{"DeploymentRunsOnWorkers", deploymentRunsOnWorkers},
		{"BudgetBlocksDrain", budgetBlocksDrain},
		{"DrainLeavesStaticPods", drainLeavesStaticPods},
		{"StuckPodStaysTerminating", stuckPodStaysTerminating},
		{"RebootRestartsPods", rebootRestartsPods},
		{"SilentNodeBecomesNotReady", silentNodeBecomesNotReady},
		{"DeletedNodeStaysDeleted", deletedNodeStaysDeleted},
		{"TwoOfOneName", twoOfOneName},
		{"OtherMemberSameAPIServer", otherMemberSameAPIServer},
		{"NoEtcdNoAPI", noEtcdNoAPI},
		{"CrashedAPIServerComesBack", crashedAPIServerComesBack},
	}
	for _, part := range parts {
		if !t.Run(part.name, func(t *testing.T) { part.run(t, w) }) {
			t.FailNow()
		}
	}
}

func nodesRegister(t *testing.T, w *world) {
	for _, name := range []string{"cp-1", "worker-1", "worker-2"} {
		w.ready(t, name)
	}
	within(t, "the control plane shows its static pods", func() bool {
		pod, err := w.client.CoreV1().Pods(metav1.NamespaceSystem).Get(t.Context(), "kube-apiserver-cp-1", metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning
	})
	cp, err := w.client.CoreV1().Nodes().Get(t.Context(), "cp-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, labelled := cp.Labels[controlPlaneRole]; !labelled {
		t.Errorf("labels %v lack %q", cp.Labels, controlPlaneRole)
	}
	if !slices.ContainsFunc(cp.Spec.Taints, func(x corev1.Taint) bool { return x.Key == controlPlaneRole }) {
		t.Errorf("taints %v lack %q", cp.Spec.Taints, controlPlaneRole)
	}
	got := []string{cp.Status.Addresses[0].Address, cp.Status.NodeInfo.SystemUUID, cp.Status.NodeInfo.BootID, cp.Status.NodeInfo.KubeletVersion}
	want := []string{"127.20.0.1", "00000000-0000-4000-8000-000000000001", "first", "v1.35.4"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status: -want, +got:\n%s", diff)
	}
	within(t, "its initial taint is gone", func() bool {
		n, _ := w.Node("cp-1")
		return !slices.ContainsFunc(n.Spec.Taints, func(x corev1.Taint) bool { return x.Key == corev1.TaintNodeNotReady })
	})
}

func deploymentRunsOnWorkers(t *testing.T, w *world) {
	w.deploy(t, "web", 3, nil)
	for _, pod := range w.podsOf(t, "web") {
		if !strings.HasPrefix(pod.Spec.NodeName, "worker-") {
			t.Errorf("%s runs on %q", pod.Name, pod.Spec.NodeName)
		}
		if !strings.HasPrefix(pod.Status.PodIP, "10.244.") {
			t.Errorf("%s has the address %q", pod.Name, pod.Status.PodIP)
		}
	}
}

func budgetBlocksDrain(t *testing.T, w *world) {
	all := intstr.FromInt32(3)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &all, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	budgets := w.client.PolicyV1().PodDisruptionBudgets(ns)
	if _, err := budgets.Create(t.Context(), budget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	within(t, "the budget counts its pods", func() bool {
		b, err := budgets.Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil && b.Status.CurrentHealthy == 3
	})
	node := w.podsOf(t, "web")[0].Spec.NodeName
	said, err := w.drain(t, node, time.Second)
	if err == nil || !strings.Contains(said, "disruption budget") {
		t.Errorf("drain against the budget: %v, saying %q", err, said)
	}
	if n := len(w.podsOf(t, "web")); n != 3 {
		t.Errorf("%d pods are left, want all 3", n)
	}

	if err := budgets.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.drain(t, node, time.Minute); err != nil {
		t.Errorf("drain without the budget: %v", err)
	}
	within(t, "all replicas run elsewhere", func() bool {
		pods := w.podsOf(t, "web")
		return len(pods) == 3 && !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Spec.NodeName == node || p.Status.Phase != corev1.PodRunning })
	})
	w.uncordon(t, node)
}

func drainLeavesStaticPods(t *testing.T, w *world) {
	if _, err := w.drain(t, "cp-1", time.Minute); err != nil {
		t.Errorf("drain: %v", err)
	}
	list, err := w.client.CoreV1().Pods(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=cp-1"})
	if err != nil {
		t.Fatal(err)
	}
	got := make([]string, 0, len(list.Items))
	for _, pod := range list.Items {
		name, _, _ := strings.Cut(pod.Name, "-cp-1")
		if strings.HasPrefix(name, "kube-proxy-") {
			name = "kube-proxy"
		}
		got = append(got, name)
	}
	if diff := cmp.Diff([]string{"kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler"}, got); diff != "" {
		t.Errorf("pods left on the node: -want, +got:\n%s", diff)
	}
	w.uncordon(t, "cp-1")
}

func stuckPodStaysTerminating(t *testing.T, w *world) {
	w.deploy(t, "stuck", 1, map[string]string{StopAnnotation: StopNever})
	pod := w.podsOf(t, "stuck")[0]
	_, err := w.drain(t, pod.Spec.NodeName, 2*time.Second)
	if err == nil {
		t.Error("the drain came to an end")
	}
	pods := w.client.CoreV1().Pods(ns)
	if still, err := pods.Get(t.Context(), pod.Name, metav1.GetOptions{}); err != nil || still.UID != pod.UID || still.DeletionTimestamp == nil {
		t.Errorf("the pod is not Terminating: %v", err)
	}
	release := []byte(`{"metadata":{"annotations":{"` + StopAnnotation + `":null}}}`)
	if _, err := pods.Patch(t.Context(), pod.Name, types.MergePatchType, release, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.drain(t, pod.Spec.NodeName, time.Minute); err != nil {
		t.Errorf("drain after the release: %v", err)
	}
	w.uncordon(t, pod.Spec.NodeName)
}

func rebootRestartsPods(t *testing.T, w *world) {
	pod := w.podsOf(t, "web")[0]
	n := machine(pod.Spec.NodeName, 2, false)
	if pod.Spec.NodeName == "worker-2" {
		n = machine(pod.Spec.NodeName, 3, false)
	}
	n.BootID = "second"
	w.SetNode(n)
	within(t, "the pod's container has been restarted", func() bool {
		now, err := w.client.CoreV1().Pods(ns).Get(t.Context(), pod.Name, metav1.GetOptions{})
		return err == nil && now.Status.ContainerStatuses[0].RestartCount == 1
	})
	within(t, "the Node tells the new boot", func() bool {
		node, ok := w.Node(n.Name)
		return ok && node.Status.NodeInfo.BootID == "second"
	})
}

func silentNodeBecomesNotReady(t *testing.T, w *world) {
	w.RemoveNode(machine("worker-1", 2, false).UUID)
	within(t, "worker-1 is NotReady", func() bool { ready, known := w.NodeReady("worker-1"); return known && !ready })
	if ready, known := w.NodeReady("worker-2"); !ready || !known {
		t.Error("worker-2 is NotReady too")
	}
	n := machine("worker-1", 2, false)
	n.BootID = "third"
	w.SetNode(n)
	w.ready(t, "worker-1")
}

func deletedNodeStaysDeleted(t *testing.T, w *world) {
	n := machine("worker-0", 4, false)
	w.SetNode(n)
	w.ready(t, n.Name)
	if err := w.client.CoreV1().Nodes().Delete(t.Context(), n.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	within(t, "worker-0 is gone", func() bool { _, known := w.NodeReady(n.Name); return !known })

	// Kubelets take their turns by name: once a change of worker-2 is seen, worker-0 has had its turn too.
	n.Labels = map[string]string{"beat": "one"}
	w.SetNode(n)
	other := machine("worker-2", 3, false)
	other.BootID, other.Labels = "fourth", map[string]string{"beat": "one"}
	w.SetNode(other)
	within(t, "the other kubelet has had its turn", func() bool { o, ok := w.Node("worker-2"); return ok && o.Labels["beat"] == "one" })
	if _, err := w.client.CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{}); !kerrors.IsNotFound(err) {
		t.Errorf("a running kubelet brought its Node back: %v", err)
	}

	n.BootID = "second"
	w.SetNode(n)
	w.ready(t, n.Name)
}

// twoOfOneName has the kubelets of two machines write to one Node in turns, until one of them is given another name.
func twoOfOneName(t *testing.T, w *world) {
	own, twin := machine("worker-0", 4, false), machine("worker-0", 5, false)
	own.BootID = "second"
	uuid := func() string {
		node, ok := w.Node(own.Name)
		if !ok {
			return ""
		}
		return node.Status.NodeInfo.SystemUUID
	}
	w.SetNode(twin)
	for _, n := range []Node{twin, own, twin} {
		within(t, "the Node tells the UUID of "+n.UUID, func() bool { return uuid() == n.UUID })
	}
	twin.Name = "worker-3"
	w.SetNode(twin)
	w.ready(t, twin.Name)
	within(t, "the Node has one owner again", func() bool { return uuid() == own.UUID })
	w.RemoveNode(twin.UUID)
	w.RemoveNode(own.UUID)
}

func otherMemberSameAPIServer(t *testing.T, w *world) {
	before := w.apiServer(t)
	w.SetEtcd([]netip.AddrPort{w.etcdAgain})
	// A write goes through only by way of the new address: the connections to the old one are cut.
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "over-the-other-member"}}
	within(t, "the API writes again", func() bool {
		_, err := w.client.CoreV1().ConfigMaps(ns).Create(t.Context(), object, metav1.CreateOptions{})
		return err == nil || kerrors.IsAlreadyExists(err)
	})
	if after := w.apiServer(t); after != before || before == 0 {
		t.Errorf("the API server was process %d and is %d", before, after)
	}
}

func crashedAPIServerComesBack(t *testing.T, w *world) {
	before := w.apiServer(t)
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	within(t, "another API server answers", func() bool {
		_, err := w.client.CoreV1().Nodes().Get(t.Context(), "cp-1", metav1.GetOptions{})
		now := w.apiServer(t)
		return err == nil && w.Up() && now != before && now != 0
	})
	w.ready(t, "cp-1")
}

func noEtcdNoAPI(t *testing.T, w *world) {
	w.SetEtcd(nil)
	within(t, "nobody listens at the endpoint", func() bool {
		conn, err := net.DialTimeout("tcp", w.o.Endpoint.String(), time.Second)
		if err != nil {
			return true
		}
		_ = conn.Close()
		return false
	})
	if _, known := w.NodeReady("cp-1"); known {
		t.Error("a node is known while the API is down")
	}
	w.up(t)
	w.ready(t, "cp-1")
	if n := len(w.podsOf(t, "web")); n != 3 {
		t.Errorf("%d pods are there again, want 3", n)
	}
}

func TestCloseWhileStarting(t *testing.T) {
	w := newWorld(t)
	w.SetEtcd([]netip.AddrPort{w.etcd})
	within(t, "the API server has been started", func() bool {
		_, err := os.Stat(filepath.Join(w.o.Dir, "kube-apiserver.log"))
		return err == nil
	})
	w.Close()
	if conn, err := net.Dial("tcp", w.o.Endpoint.String()); err == nil {
		_ = conn.Close()
		t.Error("somebody still listens at the endpoint")
	}
}

func TestNewRefuses(t *testing.T) {
	whole := newPKI(t)
	incomplete := whole
	incomplete.Etcd = nil
	cases := map[string]struct {
		reason string
		args   Options
		want   string
	}{
		"PublicEndpoint": {
			reason: "Nothing of a simulator may be reachable from another machine.",
			args:   Options{Endpoint: netip.MustParseAddrPort("192.0.2.1:6443"), PKI: whole},
			want:   "not a loopback address",
		},
		"WorkerPKI": {
			reason: "A worker's configuration has no etcd authority.",
			args:   Options{Endpoint: netip.MustParseAddrPort("127.0.0.1:6443"), PKI: incomplete},
			want:   "incomplete PKI",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, err := New(tc.args)
			if err == nil {
				c.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\ngot %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}
