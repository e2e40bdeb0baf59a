package accidents

import (
	"errors"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/simulator"
)

// hold keeps a removal where it can still be called off.
const hold = v1alpha1.AnnotationHoldPrefix + "storage"

func (w *world) createNamespace(name string) {
	w.t.Helper()
	w.must(w.Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

// removeHeld has the worker removed, up to where it is held.
func (w *world) removeHeld(opts ...client.DeleteOption) *v1alpha1.TalosMachine {
	w.t.Helper()
	m := &v1alpha1.TalosMachine{}
	w.change(m, ns, worker, func() {
		meta.AddAnnotations(m, map[string]string{v1alpha1.AnnotationAllowDelete: "true", hold: "replicas move"})
	})
	w.must(w.Delete(w.ctx, m, opts...))
	w.awaitReason(m, ns, worker, v1alpha1.TypeRemoval, v1alpha1.ReasonHeld)
	if !w.cordoned(worker) {
		w.t.Error("the removal is on its way, and the Node is not cordoned")
	}
	return m
}

func (w *world) dropHold() {
	w.t.Helper()
	m := &v1alpha1.TalosMachine{}
	w.change(m, ns, worker, func() { meta.RemoveAnnotations(m, hold) })
}

// kubernetes opens the cluster that the provider has made, as its users do.
func (w *world) kubernetes() kubernetes.Interface {
	w.t.Helper()
	s := &corev1.Secret{}
	if !w.find(s, ns, cluster+"-connection") {
		w.t.Fatal("there is no connection Secret")
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(s.Data["kubeconfig"])
	w.must(err)
	k, err := kubernetes.NewForConfig(cfg)
	w.must(err)
	return k
}

func (w *world) cordoned(node string) bool {
	w.t.Helper()
	n, err := w.kubernetes().CoreV1().Nodes().Get(w.ctx, node, metav1.GetOptions{})
	w.must(err)
	return n.Spec.Unschedulable
}

// managementPoliciesWithoutDelete: a removal is called off half-way, by taking Delete out. The object goes, and the
// machine serves as before; declared again, it is found and not configured anew.
func (w *world) managementPoliciesWithoutDelete(s *transcript) {
	o := w.watch()
	m := w.removeHeld()
	s.condition("TalosMachine worker-1, held", m, v1alpha1.TypeRemoval)
	w.letGo(worker)
	if w.cordoned(worker) {
		w.t.Error("the removal was called off, and the Node is still cordoned")
	}
	w.apply(workerManifest())
	w.awaitReady(worker)
	o.nothing("m4")
}

// pausedMidRemoval: a removal, by a foreground deletion, is paused half-way. What the object owned is gone by then.
func (w *world) pausedMidRemoval(s *transcript) {
	o := w.watch()
	m := w.removeHeld(client.PropagationPolicy(foreground))
	w.await("what the machine owns is gone", func() error {
		usages := &v1alpha1.ProviderConfigUsageList{}
		w.must(w.List(w.ctx, usages, client.InNamespace(ns)))
		for _, u := range usages.Items {
			if u.GetName() == string(m.GetUID()) {
				return errors.New("its ProviderConfigUsage is there")
			}
		}
		return nil
	})
	w.change(m, ns, worker, func() { meta.AddAnnotations(m, map[string]string{meta.AnnotationKeyReconciliationPaused: "true"}) })
	w.awaitReason(m, ns, worker, xpv2.TypeSynced, xpv2.ReasonReconcilePaused)
	w.dropHold()
	o.nothing("m1")
	w.find(m, ns, worker)
	w.keepsFinalizer(m)
	s.condition("TalosMachine worker-1, paused", m, xpv2.TypeSynced)
	s.condition("TalosMachine worker-1, paused", m, v1alpha1.TypeRemoval)

	w.change(m, ns, worker, func() { meta.RemoveAnnotations(m, meta.AnnotationKeyReconciliationPaused) })
	w.awaitGone(m, ns, worker)
	o.expect("m4 Reset")
	if stage := w.fleet.Machine("m4").Stage(); stage != "maintenance" {
		w.t.Errorf("the finalizer is gone, and the machine is in stage %q", stage)
	}
	w.apply(workerManifest())
	w.awaitReady(worker)
}

// recreatedWhileReset: somebody takes the finalizer off while the machine is being reset, and declares it anew under the
// same name. Nothing is sent to it before it is blank; other removals wait until the lock of the vanished one expires.
func (w *world) recreatedWhileReset(s *transcript) {
	o := w.watch()
	w.must(w.fleet.Machine("m4").SetFault(simulator.FaultResetHangs, true))
	m := &v1alpha1.TalosMachine{}
	w.change(m, ns, worker, func() { meta.AddAnnotations(m, map[string]string{v1alpha1.AnnotationAllowDelete: "true"}) })
	w.must(w.Delete(w.ctx, m))
	w.awaitReason(m, ns, worker, v1alpha1.TypeRemoval, v1alpha1.ReasonWaitingForReset)
	s.condition("TalosMachine worker-1, while the reset hangs", m, v1alpha1.TypeRemoval)
	if out, err := w.kubectl(workerManifest(), "create", "-f", "-"); err == nil {
		w.t.Error("a second object of the same name was created")
	} else {
		s.says("kubectl create, of the same name", out)
	}

	w.change(m, ns, worker, func() { m.SetFinalizers(nil) })
	w.awaitGone(&v1alpha1.TalosMachine{}, ns, worker)
	w.apply(workerManifest())
	w.await("the new object is observed", func() error {
		w.find(m, ns, worker)
		if m.GetCondition(xpv2.TypeReady).Reason == "" {
			return errors.New(conditionsOf(m))
		}
		return nil
	})
	now := w.watch()
	now.nothing("m1")
	w.find(m, ns, worker)
	s.condition("TalosMachine worker-1, declared anew while the machine resets", m, xpv2.TypeReady)
	o.expect("m4 Reset")

	w.must(w.fleet.Machine("m4").SetFault(simulator.FaultResetHangs, false))
	w.fleet.Machine("m4").PowerOff() // What hangs does so until somebody pulls the plug.
	w.fleet.Machine("m4").PowerOn()
	w.awaitReady(worker)
	w.lockOutlivesItsObject(s)
}

// lockOutlivesItsObject: the removal that vanished half-way still holds the lock, until it has expired.
func (w *world) lockOutlivesItsObject(s *transcript) {
	m := &v1alpha1.TalosMachine{}
	w.change(m, ns, worker, func() {
		meta.AddAnnotations(m, map[string]string{v1alpha1.AnnotationAllowDelete: "true", hold: "replicas move"})
	})
	o := w.watch()
	w.must(w.Delete(w.ctx, m))
	w.awaitReason(m, ns, worker, v1alpha1.TypeRemoval, v1alpha1.ReasonWaitingForLock)
	s.condition("TalosMachine worker-1, deleted again", m, v1alpha1.TypeRemoval)
	o.nothing("m1")
	w.clock.step(6 * time.Minute)
	w.awaitReason(m, ns, worker, v1alpha1.TypeRemoval, v1alpha1.ReasonHeld)
	w.letGo(worker)
	w.apply(workerManifest())
	w.awaitReady(worker)
	o.expect()
}
