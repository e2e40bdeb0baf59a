package workload

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// staticPods run on every control plane. They are what a drain has to leave alone.
var staticPods = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// mirrorStaticPods shows the static pods of a control plane in the API, as kubelets do, and again when somebody deleted them.
func (s *session) mirrorStaticPods(ctx context.Context, n Node, node *corev1.Node) error {
	for _, name := range staticPods {
		pod := mirrorPod(name, n, node)
		if _, err := s.pods.Pods(pod.Namespace).Get(pod.Name); err == nil {
			continue
		}
		_, err := s.c.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		if err != nil && !kerrors.IsAlreadyExists(err) {
			return fmt.Errorf("cannot mirror static pod %q: %w", pod.Name, err)
		}
	}
	return nil
}

func mirrorPod(name string, n Node, node *corev1.Node) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name + "-" + n.Name,
			Namespace:       metav1.NamespaceSystem,
			Labels:          map[string]string{"tier": "control-plane", "k8s-app": name, "component": name},
			OwnerReferences: []metav1.OwnerReference{ownedByNode(node)},
			Annotations: map[string]string{
				corev1.MirrorPodAnnotationKey: n.BootID,
				"kubernetes.io/config.source": "file",
				"kubernetes.io/config.hash":   n.BootID,
			},
		},
		Spec: corev1.PodSpec{
			NodeName:          n.Name,
			HostNetwork:       true,
			PriorityClassName: "system-cluster-critical",
			Tolerations:       everything,
			Containers:        []corev1.Container{{Name: name, Image: "registry.k8s.io/" + name + ":" + n.KubeletVersion}},
		},
	}
}

// everything is what the pods that run on every node tolerate.
var everything = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}

// install creates the pods that Talos puts into every cluster: kube-proxy on each node, and two replicas of CoreDNS.
func install(ctx context.Context, client kubernetes.Interface) error {
	apps := client.AppsV1()
	_, err := apps.DaemonSets(metav1.NamespaceSystem).Create(ctx, kubeProxy(), metav1.CreateOptions{})
	if err != nil && !kerrors.IsAlreadyExists(err) {
		return fmt.Errorf("cannot install kube-proxy: %w", err)
	}
	_, err = apps.Deployments(metav1.NamespaceSystem).Create(ctx, coreDNS(), metav1.CreateOptions{})
	if err != nil && !kerrors.IsAlreadyExists(err) {
		return fmt.Errorf("cannot install CoreDNS: %w", err)
	}
	return nil
}

func kubeProxy() *appsv1.DaemonSet {
	labels := map[string]string{"k8s-app": "kube-proxy"}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy", Labels: labels},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					HostNetwork:       true,
					PriorityClassName: "system-cluster-critical",
					Tolerations:       everything,
					Containers:        []corev1.Container{{Name: "kube-proxy", Image: "registry.k8s.io/kube-proxy:v1.35.4"}},
				},
			},
		},
	}
}

func coreDNS() *appsv1.Deployment {
	labels := map[string]string{"k8s-app": "kube-dns"}
	replicas := int32(2)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "coredns", Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					PriorityClassName: "system-cluster-critical",
					Tolerations:       []corev1.Toleration{{Key: controlPlaneRole, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
					Containers:        []corev1.Container{{Name: "coredns", Image: "registry.k8s.io/coredns/coredns:v1.13.1"}},
				},
			},
		},
	}
}
