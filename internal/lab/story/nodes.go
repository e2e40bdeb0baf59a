package story

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Workload reaches a cluster as its users do: with the kubeconfig of a connection Secret.
func Workload(ctx context.Context, kube client.Client, secret client.ObjectKey) (kubernetes.Interface, error) {
	s := &corev1.Secret{}
	if err := kube.Get(ctx, secret, s); err != nil {
		return nil, fmt.Errorf("cannot get the connection Secret: %w", err)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(s.Data["kubeconfig"])
	if err != nil {
		return nil, fmt.Errorf("cannot read the kubeconfig of the connection Secret: %w", err)
	}
	cfg.QPS, cfg.Burst = 50, 100 // Those who watch ask often.
	return kubernetes.NewForConfig(cfg)
}

// NodesReady wants so many Nodes, and every one of them Ready.
func NodesReady(ctx context.Context, kube kubernetes.Interface, want int) error {
	nodes, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ready := 0
	for i := range nodes.Items {
		if IsReady(&nodes.Items[i]) {
			ready++
		}
	}
	if ready != want || len(nodes.Items) != want {
		return fmt.Errorf("%d of %d Nodes are Ready, want %d", ready, len(nodes.Items), want)
	}
	return nil
}

// IsReady tells whether a Node is.
func IsReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
