package workload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// StopAnnotation on a pod says how it takes SIGTERM. Without it the pod ends promptly. It may be changed at any time, also
// while the pod is terminating.
const StopAnnotation = "simulator.ichor.maesh.dev/stop"

const (
	// StopSlow is a pod that ignores SIGTERM: it ends when its grace period is over.
	StopSlow = "slow"

	// StopNever is a pod that even SIGKILL does not end, as with a hung mount: it stays Terminating.
	StopNever = "never"
)

// A podKey is one pod; a pod that takes the name of a deleted one is another.
type podKey struct {
	namespace, name string
	uid             types.UID
}

func keyOf(pod *corev1.Pod) podKey {
	return podKey{namespace: pod.Namespace, name: pod.Name, uid: pod.UID}
}

// enqueue has the pod looked at. What the informer knows only the name of is gone, and nothing is left to do for it.
func (s *session) enqueue(object any) {
	if pod, ok := object.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		s.queue.Add(keyOf(pod))
	}
}

// enqueueNode has all pods on a node looked at.
func (s *session) enqueueNode(node string) {
	pods, err := s.pods.List(labels.Everything())
	if err != nil {
		s.c.log.Error("cannot list pods", "error", err)
		return
	}
	for _, pod := range pods {
		if pod.Spec.NodeName == node {
			s.queue.Add(keyOf(pod))
		}
	}
}

// workPods looks after pods until the queue is shut down. It is the only one to do so.
func (s *session) workPods(ctx context.Context) {
	for {
		key, shutdown := s.queue.Get()
		if shutdown {
			return
		}
		again, err := s.syncPod(ctx, key)
		switch {
		case err != nil && ctx.Err() == nil:
			s.c.log.Debug("a pod is looked at again", "namespace", key.namespace, "pod", key.name, "error", err)
			s.queue.AddRateLimited(key)
		case again > 0:
			s.queue.AddAfter(key, again)
		default:
			s.queue.Forget(key)
		}
		s.queue.Done(key)
	}
}

// syncPod does what the pod's kubelet would do next. It returns when to look again, 0 if only a change gives a reason to.
func (s *session) syncPod(ctx context.Context, key podKey) (again time.Duration, err error) {
	pod, err := s.pods.Pods(key.namespace).Get(key.name)
	if kerrors.IsNotFound(err) || (err == nil && pod.UID != key.uid) {
		delete(s.ending, key)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	k, running := s.c.kubelet(pod.Spec.NodeName)
	switch {
	case !running || !k.registered:
		return 0, nil
	case pod.DeletionTimestamp != nil:
		return s.endPod(ctx, pod)
	case isStarted(pod, k.node) || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return 0, nil
	}
	started := pod.DeepCopy()
	if err := s.c.start(started, k.node, time.Now()); err != nil {
		return 0, err
	}
	if _, err := s.c.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, started, metav1.UpdateOptions{}); err != nil {
		return 0, fmt.Errorf("cannot start the pod: %w", err)
	}
	return 0, nil
}

// endPod deletes a terminating pod once its containers have had the time that they take to stop.
func (s *session) endPod(ctx context.Context, pod *corev1.Pod) (again time.Duration, err error) {
	key, now := keyOf(pod), time.Now()
	if _, known := s.ending[key]; !known {
		s.ending[key] = now
	}
	takes, ends := s.c.clock.stopTime(pod)
	if !ends {
		return 0, nil
	}
	if left := takes - now.Sub(s.ending[key]); left > 0 {
		return left, nil
	}
	immediately := int64(0)
	err = s.c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &immediately,
		Preconditions:      &metav1.Preconditions{UID: &pod.UID},
	})
	if err != nil && !kerrors.IsNotFound(err) && !kerrors.IsConflict(err) {
		return 0, fmt.Errorf("cannot end the pod: %w", err)
	}
	return 0, nil
}

// stopTime is how long a terminating pod's containers take to stop, and whether they do at all.
func (c clock) stopTime(pod *corev1.Pod) (takes time.Duration, ends bool) {
	grace := time.Duration(0)
	if pod.DeletionGracePeriodSeconds != nil {
		grace = time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	}
	switch pod.Annotations[StopAnnotation] {
	case StopNever:
		return 0, false
	case StopSlow:
		return c.scaled(grace), true
	default:
		return c.scaled(min(grace, promptStop)), true
	}
}

// containerID names one run of a container: another boot of the machine is another run.
func containerID(pod *corev1.Pod, node Node, container string) string {
	sum := sha256.Sum256([]byte(string(pod.UID) + "/" + container + "/" + node.BootID))
	return "containerd://" + hex.EncodeToString(sum[:])
}

// isStarted says whether all containers of the pod run since this boot of the machine.
func isStarted(pod *corev1.Pod, node Node) bool {
	if pod.Status.Phase != corev1.PodRunning || len(pod.Status.ContainerStatuses) != len(pod.Spec.Containers) {
		return false
	}
	for _, status := range pod.Status.ContainerStatuses {
		if status.ContainerID != containerID(pod, node, status.Name) {
			return false
		}
	}
	return true
}

// start makes a pod Running and Ready on a node. Containers that ran before the machine's last boot have been restarted.
func (c *Cluster) start(pod *corev1.Pod, node Node, at time.Time) error {
	ips, err := podIPs(pod, node, c.o.PodSubnets)
	if err != nil {
		return err
	}
	now := metav1.NewTime(at)
	status := &pod.Status
	before := status.ContainerStatuses
	status.Phase = corev1.PodRunning
	status.HostIP, status.HostIPs = node.Address.String(), []corev1.HostIP{{IP: node.Address.String()}}
	status.PodIP, status.PodIPs = ips[0].IP, ips
	if status.StartTime == nil {
		status.StartTime = &now
	}

	status.InitContainerStatuses, status.ContainerStatuses = nil, nil
	for _, container := range pod.Spec.InitContainers {
		status.InitContainerStatuses = append(status.InitContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, ImageID: container.Image, Ready: true,
			ContainerID: containerID(pod, node, container.Name),
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				Reason: "Completed", StartedAt: now, FinishedAt: now, ContainerID: containerID(pod, node, container.Name),
			}},
		})
	}
	started := true
	for _, container := range pod.Spec.Containers {
		restarts := int32(0)
		for _, old := range before {
			if old.Name == container.Name && old.ContainerID != "" {
				restarts = old.RestartCount + 1
			}
		}
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, ImageID: container.Image, Ready: true, Started: &started,
			RestartCount: restarts,
			ContainerID:  containerID(pod, node, container.Name),
			State:        corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	for _, kind := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady, corev1.PodScheduled,
	} {
		setPodCondition(status, kind, now)
	}
	return nil
}

func setPodCondition(status *corev1.PodStatus, kind corev1.PodConditionType, now metav1.Time) {
	i := slices.IndexFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	switch {
	case i < 0:
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	case status.Conditions[i].Status != corev1.ConditionTrue:
		status.Conditions[i] = corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now}
	}
}

// podIPs are the pod's addresses, one from each subnet, or its node's if it uses the host's network. They follow from the
// pod's UID, so that they stay the same whoever asks. Two pods may get the same one; nothing is ever sent there.
func podIPs(pod *corev1.Pod, node Node, subnets []string) ([]corev1.PodIP, error) {
	if pod.Spec.HostNetwork {
		return []corev1.PodIP{{IP: node.Address.String()}}, nil
	}
	ips := make([]corev1.PodIP, 0, len(subnets))
	for _, subnet := range subnets {
		prefix, err := netip.ParsePrefix(subnet)
		if err != nil {
			return nil, fmt.Errorf("cannot read a pod subnet: %w", err)
		}
		ips = append(ips, corev1.PodIP{IP: addressIn(prefix, string(pod.UID)).String()})
	}
	return ips, nil
}

// addressIn takes the bits after the prefix from a hash of the seed.
func addressIn(prefix netip.Prefix, seed string) netip.Addr {
	sum := sha256.Sum256([]byte(seed))
	raw := prefix.Masked().Addr().AsSlice()
	for bit := prefix.Bits(); bit < 8*len(raw); bit++ {
		raw[bit/8] |= sum[bit/8] & (0x80 >> (bit % 8))
	}
	addr, _ := netip.AddrFromSlice(raw) // A slice that came from an address has the length of one.
	return addr
}
