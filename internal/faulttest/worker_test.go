package faulttest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/simulator"
	"github.com/maesh/provider-ichor/internal/simulator/workload"
)

// apps is the namespace of what runs on the machines.
const apps = "default"

// worker is the way out of a worker, past everything that can be in it.
func worker(w *world) {
	k, node := w.kubernetes(), hostname("w-1")
	before := w.now()
	untouched := func(w *world) { w.nothingSent(before) }
	w.endure("w-1", []stage{
		{
			fault: "the Kubernetes API is down before a drain", reason: v1alpha1.ReasonNodeUnknown, words: "Kubernetes API of the cluster", then: untouched,
			begin: func(w *world) {
				w.runPod("bare", func(p *corev1.Pod) { p.OwnerReferences = nil })
				w.fault("cp-1", true, simulator.FaultKubernetesDown)
				w.remove("w-1")
			},
			end: off("cp-1", simulator.FaultKubernetesDown),
		},
		{
			fault: "a bare pod", reason: v1alpha1.ReasonDrainBlocked, words: "bare", then: untouched,
			begin: func(*world) {},
			end:   func(w *world) { w.endPod("bare") },
		},
		{
			fault: "a pod with an emptyDir", reason: v1alpha1.ReasonDrainBlocked, words: "scratch", then: untouched,
			begin: func(w *world) {
				w.runPod("scratch", func(p *corev1.Pod) {
					p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
				})
			},
			end: func(w *world) { w.endPod("scratch") },
		},
		{
			fault: "a PodDisruptionBudget that never allows", reason: v1alpha1.ReasonDrainBlocked, words: "PodDisruptionBudget \"web\"", then: untouched,
			begin: func(w *world) {
				w.runPod("web", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} })
				_, err := k.PolicyV1().PodDisruptionBudgets(apps).Create(context.Background(), &policyv1.PodDisruptionBudget{
					ObjectMeta: metav1.ObjectMeta{Name: "web"},
					Spec: policyv1.PodDisruptionBudgetSpec{
						MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
					},
				}, metav1.CreateOptions{})
				must(w.t, err)
			},
			end: func(w *world) {
				must(w.t, k.PolicyV1().PodDisruptionBudgets(apps).Delete(context.Background(), "web", metav1.DeleteOptions{}))
			},
		},
		{
			fault: "a pod that does not end", reason: v1alpha1.ReasonStepDrain, words: "longer than 1s", then: untouched,
			begin: func(w *world) {
				w.change("w-1", func(m *v1alpha1.TalosMachine) {
					m.Spec.ForProvider.Drain.Timeout = &metav1.Duration{Duration: time.Second}
				})
				w.runPod("stuck", func(p *corev1.Pod) { p.Annotations = map[string]string{workload.StopAnnotation: workload.StopNever} })
			},
			end: func(w *world) { w.letGo("stuck") },
		},
		{
			fault: "a volume that is never detached", reason: v1alpha1.ReasonWaitingForVolumes, words: "data-1", then: untouched,
			begin: func(w *world) {
				_, err := k.StorageV1().VolumeAttachments().Create(context.Background(), &storagev1.VolumeAttachment{
					ObjectMeta: metav1.ObjectMeta{Name: "csi-1"},
					Spec: storagev1.VolumeAttachmentSpec{
						Attacher: "csi.example.org", NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("data-1")},
					},
				}, metav1.CreateOptions{})
				must(w.t, err)
			},
			end: func(w *world) {
				must(w.t, k.StorageV1().VolumeAttachments().Delete(context.Background(), "csi-1", metav1.DeleteOptions{}))
			},
		},
		{
			fault: simulator.FaultAPIBlackhole, reason: v1alpha1.ReasonMachineUnreachable, words: "no answer", then: untouched,
			begin: on("w-1", simulator.FaultAPIBlackhole), end: off("w-1", simulator.FaultAPIBlackhole),
		},
		{
			fault: simulator.FaultAPIDown, reason: v1alpha1.ReasonMachineUnreachable, words: "connection refused", then: untouched,
			begin: on("w-1", simulator.FaultAPIDown), end: off("w-1", simulator.FaultAPIDown),
		},
		{
			fault: "an address that the machine has no more", reason: v1alpha1.ReasonMachineUnreachable, words: "if it has moved", then: untouched,
			begin: func(w *world) { w.moveTo("w-1", w.nobody) }, end: func(w *world) { w.moveTo("w-1", w.box("w-1").Address().String()) },
		},
		{
			fault: simulator.FaultOtherCluster, reason: v1alpha1.ReasonMachineUnreachable, words: "PKI of another cluster", then: untouched,
			begin: on("w-1", simulator.FaultOtherCluster), end: off("w-1", simulator.FaultOtherCluster),
		},
		{
			fault: "the Kubernetes API is down after a drain", reason: v1alpha1.ReasonNodeUnknown, words: "Kubernetes API of the cluster", then: untouched,
			begin: on("cp-1", simulator.FaultKubernetesDown), end: off("cp-1", simulator.FaultKubernetesDown),
		},
		{
			fault: simulator.FaultDuplicateUUID, reason: "IdentityMismatch", words: "Another machine answers", then: untouched,
			begin: on("w-1", simulator.FaultDuplicateUUID), end: off("w-1", simulator.FaultDuplicateUUID),
		},
		{
			fault: "the address of another machine", reason: "DuplicateMachine", words: "also by cp-2", then: untouched,
			begin: func(w *world) { w.moveTo("w-1", w.box("cp-2").Address().String()) },
			end:   func(w *world) { w.moveTo("w-1", w.box("w-1").Address().String()) },
		},
		{
			fault: "a Node of an earlier name", reason: v1alpha1.ReasonNodeUnknown, words: "left over", then: untouched,
			begin: func(w *world) { w.leftoverNode("w-1", "earlier") },
			end: func(*world) {
				must(w.t, k.CoreV1().Nodes().Delete(context.Background(), "earlier", metav1.DeleteOptions{}))
			},
		},
		{
			fault: simulator.FaultResetLocked, reason: v1alpha1.ReasonStepReset, words: "did not begin",
			begin: func(w *world) {
				must(w.t, k.CoreV1().Nodes().Delete(context.Background(), node, metav1.DeleteOptions{})) // somebody was faster
				w.fault("w-1", true, simulator.FaultResetLocked)
			},
			then: func(w *world) { w.awaitSent(before, "w-1", "Reset", 2) },
			end:  off("w-1", simulator.FaultResetLocked),
		},
		{
			fault: simulator.FaultResetFatal, long: true, reason: v1alpha1.ReasonStepReset, words: "again",
			begin: on("w-1", simulator.FaultResetFatal), end: off("w-1", simulator.FaultResetFatal),
		},
		{
			fault: simulator.FaultWipeFails, long: true, reason: v1alpha1.ReasonStepReset, words: "again",
			until: func(w *world) { w.rebootsAfterReset("w-1") },
			begin: on("w-1", simulator.FaultWipeFails), end: off("w-1", simulator.FaultWipeFails),
		},
		{
			fault: simulator.FaultPlatformConfig, long: true, reason: v1alpha1.ReasonStepReset, words: "again",
			begin: on("w-1", simulator.FaultPlatformConfig), end: off("w-1", simulator.FaultPlatformConfig),
			until: func(w *world) { w.rebootsAfterReset("w-1") },
		},
		{
			fault: simulator.FaultResetHangs, reason: v1alpha1.ReasonWaitingForReset, words: "stage \"resetting\"",
			begin: func(w *world) {
				w.fault("w-1", true, simulator.FaultResetHangs)
				w.awaitSent(w.now(), "w-1", "Reset", 1) // one that is past the phase that hangs would wipe once it may
			},
			end: func(w *world) {
				w.fault("w-1", false, simulator.FaultResetHangs)
				w.powerCycle("w-1") // a reboot ends a reset, and the machine is as it was
			},
		},
		{
			fault: "a reboot that cancels a reset", reason: v1alpha1.ReasonStepReset, words: "again: it has rebooted",
			begin: on("w-1", simulator.FaultResetLocked), end: off("w-1", simulator.FaultResetLocked), // or the next one would do
		},
		{
			fault: simulator.FaultBootHangs, long: true, reason: v1alpha1.ReasonWaitingForReset, words: "answers in maintenance mode",
			begin: on("w-1", simulator.FaultBootHangs, simulator.FaultKubeletSlowStop),
			then:  func(w *world) { w.await("w-1 is dark", func() bool { return w.box("w-1").Stage() == "" }) },
			end: func(w *world) {
				w.fault("w-1", false, simulator.FaultBootHangs, simulator.FaultKubeletSlowStop)
				w.powerCycle("w-1")
			},
		},
		{
			fault: "the Kubernetes API is down after a reset", long: true, reason: v1alpha1.ReasonNodeUnknown, words: "Kubernetes API of the cluster",
			begin: on("cp-1", simulator.FaultKubernetesDown), end: off("cp-1", simulator.FaultKubernetesDown),
		},
	})
	w.removed("w-1")
}

// rebootsAfterReset waits until a machine was sent one more reset and has rebooted after that.
func (w *world) rebootsAfterReset(name string) {
	w.t.Helper()
	w.awaitSent(w.now(), name, "Reset", 1)
	boot := w.box(name).BootID()
	w.await(name+" has rebooted", func() bool { return w.box(name).BootID() != boot && w.box(name).Stage() == "running" })
}

// moveTo gives the object of a machine another address.
func (w *world) moveTo(name, address string) {
	w.t.Helper()
	w.change(name, func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.Address = address })
}

// runPod has a pod run on the worker. It belongs to something, or a drain would not touch it.
func (w *world) runPod(name string, change func(*corev1.Pod)) {
	w.t.Helper()
	ctx, k := context.Background(), w.kubernetes()
	owner, err := k.CoreV1().ConfigMaps(apps).Get(ctx, "owner", metav1.GetOptions{})
	if kerrors.IsNotFound(err) {
		owner, err = k.CoreV1().ConfigMaps(apps).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	}
	must(w.t, err)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: ptr.To(true),
		}}},
		Spec: corev1.PodSpec{
			NodeName: hostname("w-1"), Containers: []corev1.Container{{Name: "main", Image: "registry.example.org/main"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
	change(pod)
	_, err = k.CoreV1().Pods(apps).Create(ctx, pod, metav1.CreateOptions{})
	must(w.t, err)
	w.eventually("pod "+name+" runs", func(ctx context.Context) error {
		p, err := k.CoreV1().Pods(apps).Get(ctx, name, metav1.GetOptions{})
		if err == nil && p.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("it is %s", p.Status.Phase)
		}
		return err
	})
}

// endPod deletes a pod and waits until it is gone: what is told next must not tell of it.
func (w *world) endPod(name string) {
	w.t.Helper()
	pods := w.kubernetes().CoreV1().Pods(apps)
	must(w.t, pods.Delete(context.Background(), name, metav1.DeleteOptions{}))
	w.eventually("pod "+name+" is gone", func(ctx context.Context) error {
		_, err := pods.Get(ctx, name, metav1.GetOptions{})
		if kerrors.IsNotFound(err) {
			return nil
		}
		return cmp.Or(err, errors.New("it is still there"))
	})
}

// leftoverNode makes a Node as it is left behind by a machine that had another hostname before.
func (w *world) leftoverNode(machine, name string) {
	w.t.Helper()
	ctx, nodes := context.Background(), w.kubernetes().CoreV1().Nodes()
	node, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(w.t, err)
	node.Status.NodeInfo.SystemUUID = w.box(machine).UUID()
	_, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{})
	must(w.t, err)
}

// letGo ends what keeps a pod from ending.
func (w *world) letGo(name string) {
	w.t.Helper()
	patch := []byte(`{"metadata":{"annotations":{"` + workload.StopAnnotation + `":null}}}`)
	_, err := w.kubernetes().CoreV1().Pods(apps).Patch(context.Background(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	must(w.t, err)
}
