package demo

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/maesh/provider-ichor/internal/lab/story"
)

// nodes wants so many Nodes, and every one of them Ready.
func (d *Demo) nodes(ctx context.Context, want int) error {
	kube, err := d.workload(ctx)
	if err != nil {
		return err
	}
	return story.NodesReady(ctx, kube, want)
}

// emptied wants a Node to be cordoned and to have no pod left that a drain moves away.
func emptied(ctx context.Context, kube kubernetes.Interface, node string) (bool, error) {
	n, err := kube.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	pods, err := kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return false, err
	}
	for i := range pods.Items {
		if movable(&pods.Items[i]) {
			return false, nil
		}
	}
	return n.Spec.Unschedulable, nil
}

// movable leaves out what a drain leaves alone: static pods and those of daemon sets.
func movable(p *corev1.Pod) bool {
	if _, static := p.Annotations[corev1.MirrorPodAnnotationKey]; static {
		return false
	}
	owner := metav1.GetControllerOf(p)
	return owner == nil || owner.Kind != "DaemonSet"
}
