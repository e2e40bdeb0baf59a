package accidents

import (
	"errors"
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/simulator/workload"
)

const (
	apps = "default"
	// ours is the provider's own pod, where the management cluster is the very cluster that it manages.
	ours = "provider-ichor"
	// slow is a pod that does not end, so that the drain cannot be over before the provider's own pod is gone.
	slow = "slow"
)

// ownPodOnTheVictim: the provider's own pod runs on the worker that is removed. The drain evicts it as any other, and the
// process ends with it; one that were spared would never let its machine go. The next one, elsewhere, goes on where it was.
func (w *world) ownPodOnTheVictim(s *transcript) {
	o := w.watch()
	w.runPod(ours, nil)
	w.runPod(slow, map[string]string{workload.StopAnnotation: workload.StopNever})
	m := &v1alpha1.TalosMachine{}
	w.change(m, ns, worker, func() { meta.AddAnnotations(m, map[string]string{v1alpha1.AnnotationAllowDelete: "true"}) })
	w.must(w.Delete(w.ctx, m))
	w.await("the provider's own pod is evicted", func() error {
		if p := w.pod(ours); p != nil && p.GetDeletionTimestamp() == nil {
			return errors.New("it runs")
		}
		return nil
	})
	w.stop()
	o.expect()
	if !w.cordoned(worker) {
		w.t.Error("pods are evicted from a Node that is not cordoned")
	}
	w.await("its pod is gone", func() error {
		if w.pod(ours) != nil {
			return errors.New("it is there")
		}
		return nil
	})
	before := w.pod(slow)

	w.startProvider()
	w.awaitMessage(m, ns, worker, v1alpha1.TypeRemoval, "pods left (1): "+apps+"/"+slow)
	s.condition("TalosMachine worker-1, as the provider's next pod sees it", m, v1alpha1.TypeRemoval)
	after := w.pod(slow)
	if before.GetDeletionTimestamp() != nil && !before.GetDeletionTimestamp().Equal(after.GetDeletionTimestamp()) {
		w.t.Errorf("a pod that was evicted was evicted again: to end at %s, and then at %s", before.GetDeletionTimestamp(), after.GetDeletionTimestamp())
	}
	o.expect()
	w.letPodEnd(slow)
	w.awaitGone(m, ns, worker)
	o.expect("m4 Reset")
	w.apply(workerManifest())
	w.awaitReady(worker)
}

// runPod has a pod run on the worker. It belongs to something, or a drain would not touch it.
func (w *world) runPod(name string, annotations map[string]string) {
	w.t.Helper()
	k := w.kubernetes()
	owner, err := k.CoreV1().ConfigMaps(apps).Create(w.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	w.must(err)
	_, err = k.CoreV1().Pods(apps).Create(w.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: ptr.To(true),
		}}},
		Spec: corev1.PodSpec{
			NodeName: worker, Containers: []corev1.Container{{Name: "main", Image: "registry.example.org/main"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}, metav1.CreateOptions{})
	w.must(err)
	w.await("pod "+name+" runs", func() error {
		if p := w.pod(name); p == nil || p.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("it is %+v", p)
		}
		return nil
	})
}

// pod returns a pod of the worker, or nil once it is gone.
func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	list, err := w.kubernetes().CoreV1().Pods(apps).List(w.ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	w.must(err)
	if len(list.Items) == 0 {
		return nil
	}
	return &list.Items[0]
}

// letPodEnd ends what keeps a pod from ending.
func (w *world) letPodEnd(name string) {
	w.t.Helper()
	patch := []byte(`{"metadata":{"annotations":{"` + workload.StopAnnotation + `":null}}}`)
	_, err := w.kubernetes().CoreV1().Pods(apps).Patch(w.ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	w.must(err)
}
