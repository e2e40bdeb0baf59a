package simulator

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgo "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// drainTimeout is how long the machine's own drain takes at most; pods that a budget protects are then left alone.
	drainTimeout = 5 * time.Minute
	// drainRetry is the time between two attempts to evict what could not be evicted.
	drainRetry = 5 * time.Second
)

// drain cordons the machine's node and evicts its pods. It does nothing where the machine is no node.
func (s *system) drain(ctx context.Context) error {
	s.mu.Lock()
	name := s.kubeNode
	s.mu.Unlock()
	c := s.m.fleet.cluster(s.clusterID())
	c.mu.Lock()
	kube, endpoints := c.kube, len(c.endpoints)
	c.mu.Unlock()
	if name == "" || kube == nil || endpoints == 0 {
		return nil
	}
	rest, err := clientcmd.RESTConfigFromKubeConfig(kube.Kubeconfig())
	if err != nil {
		return fmt.Errorf("cannot drain node %q: %w", name, err)
	}
	client, err := clientgo.NewForConfig(rest)
	if err != nil {
		return fmt.Errorf("cannot drain node %q: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.scaled(drainTimeout))
	defer cancel()
	cordon := []byte(`{"spec":{"unschedulable":true}}`)
	if _, err := client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, cordon, metav1.PatchOptions{}); err != nil {
		if kerrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("cannot cordon node %q: %w", name, err)
	}
	for {
		left, err := evictAll(ctx, client, name)
		if err == nil && left == 0 {
			return nil
		}
		if sleep(ctx, s.scaled(drainRetry)) != nil {
			s.log.Warn("drain gave up", "node", name, "pods", left, "error", err)
			return nil // Talos logs this and goes on
		}
	}
}

// evictAll asks for the eviction of every pod that a drain moves, and counts those that are still there.
func evictAll(ctx context.Context, client clientgo.Interface, node string) (left int, err error) {
	pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return 0, fmt.Errorf("cannot list pods of node %q: %w", node, err)
	}
	for _, pod := range pods.Items {
		if !evictable(&pod) {
			continue
		}
		left++
		if pod.DeletionTimestamp != nil {
			continue
		}
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}}
		if e := client.PolicyV1().Evictions(pod.Namespace).Evict(ctx, eviction); e != nil && !kerrors.IsNotFound(e) {
			err = fmt.Errorf("cannot evict pod %q: %w", pod.Namespace+"/"+pod.Name, e)
		}
	}
	return left, err
}

// evictable leaves out mirror pods, pods that nobody would replace, and those of daemon sets.
func evictable(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return false
	}
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind != "DaemonSet"
}
