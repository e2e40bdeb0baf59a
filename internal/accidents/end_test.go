package accidents

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/connect"
	"github.com/maesh/provider-ichor/internal/simulator"
)

// awaitMessage waits until a condition of an object says something, and reads the object.
func (w *world) awaitMessage(o interface {
	client.Object
	GetCondition(t xpv2.ConditionType) xpv2.Condition
}, namespace, name string, t xpv2.ConditionType, says string) {
	w.t.Helper()
	w.await(fmt.Sprintf("%s of %s says %q", t, name, says), func() error {
		w.find(o, namespace, name)
		if !strings.Contains(o.GetCondition(t).Message, says) {
			return errors.New(conditionsOf(o))
		}
		return nil
	})
}

// pkiSecretDeleted: the Secret with the keys to everything is deleted, and then its finalizer is taken off as well. No
// other PKI is ever made, and the one from the backup is all that it takes to go on.
func (w *world) pkiSecretDeleted(s *transcript) {
	o, voters := w.watch(), w.members("m1")
	pki, c := &corev1.Secret{}, &v1alpha1.TalosCluster{}
	name := connect.PKISecretName(cluster)
	w.find(pki, ns, name)
	backup := pki.DeepCopy()
	w.must(w.Delete(w.ctx, pki))
	w.awaitMessage(c, ns, cluster, xpv2.TypeSynced, name)
	s.condition("TalosCluster prod, after kubectl delete of its PKI Secret", c, xpv2.TypeSynced)
	w.awaitReady(controlPlanes...) // The finalizer keeps the Secret, and all goes on.

	w.change(pki, ns, name, func() { pki.SetFinalizers(nil) })
	w.awaitReason(c, ns, cluster, xpv2.TypeReady, v1alpha1.ReasonPKIMissing)
	s.condition("TalosCluster prod, after the finalizer was taken off as well", c, xpv2.TypeReady)
	m := &v1alpha1.TalosMachine{}
	w.change(m, ns, worker, func() { meta.AddAnnotations(m, map[string]string{v1alpha1.AnnotationAllowDelete: "true"}) })
	w.must(w.Delete(w.ctx, m))
	w.awaitMessage(m, ns, worker, v1alpha1.TypeRemoval, "PKI")
	s.condition("TalosMachine worker-1, deleted meanwhile", m, v1alpha1.TypeRemoval)
	w.keepsFinalizer(m)
	if w.find(pki, ns, name) {
		w.t.Fatal("another PKI was made")
	}
	o.expect()

	// As the message says: the key and the label.
	w.must(w.Create(w.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{v1alpha1.LabelCluster: cluster}},
		Data:       map[string][]byte{connect.PKISecretKey: backup.Data[connect.PKISecretKey]},
	}))
	w.awaitGone(m, ns, worker) // The removal goes on.
	w.awaitReady(controlPlanes...)
	o.expect("m4 Reset")
	if w.find(pki, ns, name); !slices.Contains(pki.GetFinalizers(), v1alpha1.FinalizerPKI) {
		w.t.Errorf("the PKI from the backup is not kept: finalizers %q", pki.GetFinalizers())
	}
	if got := w.members("m1"); !slices.Equal(got, voters) {
		w.t.Errorf("the members of etcd are %q, were %q", got, voters)
	}
	w.apply(workerManifest())
	w.awaitReady(worker)
}

// clusterDeletedMidRemoval: the whole cluster is taken down while a worker is on its way out, after what a teardown might
// have wanted to read was deleted: its ProviderConfig and its connection Secret.
func (w *world) clusterDeletedMidRemoval(s *transcript) {
	w.tellsNoSecret() // While all that has happened so far can still be seen.
	w.removeHeld()
	w.must(w.Delete(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: cluster + "-connection"}}))
	config := &v1alpha1.ProviderConfig{}
	w.find(config, ns, site)
	w.must(w.Delete(w.ctx, config))
	w.await("the ProviderConfig that somebody insists on deleting is gone", func() error {
		if !w.find(config, ns, site) {
			return nil
		}
		config.SetFinalizers(nil)
		return errors.Join(w.Update(w.ctx, config), errors.New("it is there"))
	})

	o, c := w.watch(), &v1alpha1.TalosCluster{}
	out, err := w.kubectl("", "delete", "taloscluster", cluster, "-n", ns, "--cascade=foreground", "--wait=false")
	if err == nil {
		w.t.Fatal("the delete of a cluster that nobody allowed was admitted")
	}
	s.says("kubectl delete --cascade=foreground, of the TalosCluster", out)
	w.change(c, ns, cluster, func() { meta.AddAnnotations(c, map[string]string{v1alpha1.AnnotationAllowDelete: "true"}) })
	w.must(w.Delete(w.ctx, c, client.PropagationPolicy(foreground)))
	w.awaitReason(c, ns, cluster, v1alpha1.TypeRemoval, v1alpha1.ReasonAwaitingMachines)
	s.condition("TalosCluster prod, while the removal of a worker is held", c, v1alpha1.TypeRemoval)
	m := &v1alpha1.TalosMachine{}
	w.awaitReason(m, ns, "cp-1", v1alpha1.TypeRemoval, v1alpha1.ReasonAwaitingWorkers)
	s.condition("TalosMachine cp-1", m, v1alpha1.TypeRemoval)
	w.find(m, ns, worker)
	s.condition("TalosMachine worker-1", m, v1alpha1.TypeRemoval)
	o.expect()

	w.dropHold()
	w.awaitGone(c, ns, cluster)
	w.awaitGone(&corev1.Secret{}, ns, connect.PKISecretName(cluster))
	w.tornDownInOrder(o)
	for _, name := range controlPlanes {
		w.awaitGone(&v1alpha1.TalosMachine{}, ns, name) // By the garbage collector.
	}
}

// tornDownInOrder: the worker first, then one control plane after another, each out of etcd before it is reset, but for
// the last one, which has nobody to leave.
func (w *world) tornDownInOrder(o observer) {
	w.t.Helper()
	sent := o.sent()
	var steps []string
	for _, s := range sent {
		if strings.HasSuffix(s, " Reset") || strings.HasSuffix(s, "LeaveCluster") {
			_, method, _ := strings.Cut(s, " ")
			steps = append(steps, method)
		}
	}
	want := []string{"Reset", "EtcdLeaveCluster", "Reset", "EtcdLeaveCluster", "Reset", "Reset"}
	if !slices.Equal(steps, want) || sent[0] != "m4 Reset" {
		w.t.Errorf("the teardown sent %q", sent)
	}
	for _, m := range w.fleet.Machines() {
		if m.Stage() != "maintenance" {
			w.t.Errorf("the cluster is gone, and %s is in stage %q", m.Name(), m.Stage())
		}
	}
}

// clusterDeletedAfterALeave: a cluster is taken down while a control plane that has left etcd is not wiped yet. There is no
// way back for that one: it is finished first, as it was begun, and only then does the teardown touch another one.
func (w *world) clusterDeletedAfterALeave(s *transcript) {
	const space, small = "spare", "small"
	c, m := &v1alpha1.TalosCluster{}, &v1alpha1.TalosMachine{}
	names := []string{"first", "second", "third"} // on m1, m2 and m3
	w.startProvider()
	w.createNamespace(space)
	w.apply(clusterConfig, clusterManifest(space, small, v1alpha1.ClusterProviderConfigKind+", name: default", 1))
	for i, name := range names {
		w.apply(machineManifest(space, small, name, "controlplane", i+1))
		w.awaitReason(m, space, name, xpv2.TypeReady, xpv2.ReasonAvailable)
	}
	w.learnSecrets(space, small)

	o, allow := w.watch(), map[string]string{v1alpha1.AnnotationAllowDelete: "true"}
	w.must(w.fleet.Machine("m3").SetFault(simulator.FaultResetLocked, true))
	w.change(m, space, "third", func() { meta.AddAnnotations(m, allow) })
	w.must(w.Delete(w.ctx, m))
	w.awaitMessage(m, space, "third", v1alpha1.TypeRemoval, "did not begin")
	w.change(c, space, small, func() { meta.AddAnnotations(c, allow) })
	w.must(w.Delete(w.ctx, c))
	w.awaitReason(c, space, small, v1alpha1.TypeRemoval, v1alpha1.ReasonAwaitingMachines)
	s.condition("TalosCluster small, while a control plane that has left etcd cannot be reset", c, v1alpha1.TypeRemoval)
	for _, name := range names[:2] {
		w.awaitReason(m, space, name, v1alpha1.TypeRemoval, v1alpha1.ReasonWaitingForLock)
		s.condition("TalosMachine "+name, m, v1alpha1.TypeRemoval)
	}
	w.awaitMessage(m, space, "third", v1alpha1.TypeRemoval, "did not begin")
	s.condition("TalosMachine third, which has left etcd", m, v1alpha1.TypeRemoval)
	w.keepsFinalizer(m)
	if got := w.members("m1"); len(got) != 2 {
		w.t.Errorf("the members of etcd are %q, want those of the other two", got)
	}

	w.must(w.fleet.Machine("m3").SetFault(simulator.FaultResetLocked, false))
	w.awaitGone(c, space, small)
	for _, name := range names {
		w.awaitGone(m, space, name)
	}
	w.finishedFirst(o)
}

// finishedFirst: the third machine left etcd once and was reset, however often that had to be asked for; then one of the
// others, and then the last one, which has nobody to leave.
func (w *world) finishedFirst(o observer) {
	w.t.Helper()
	sent := slices.DeleteFunc(o.sent(), func(s string) bool { return !strings.HasSuffix(s, " Reset") && !strings.HasSuffix(s, "LeaveCluster") })
	sent = slices.Compact(sent)
	one, other := []string{"m1 EtcdLeaveCluster", "m1 Reset", "m2 Reset"}, []string{"m2 EtcdLeaveCluster", "m2 Reset", "m1 Reset"}
	third := []string{"m3 EtcdLeaveCluster", "m3 Reset"}
	if !slices.Equal(sent, slices.Concat(third, one)) && !slices.Equal(sent, slices.Concat(third, other)) {
		w.t.Errorf("what was sent to machines: %q", sent)
	}
	for _, name := range []string{"m1", "m2", "m3"} {
		if stage := w.fleet.Machine(name).Stage(); stage != "maintenance" {
			w.t.Errorf("the cluster is gone, and %s is in stage %q", name, stage)
		}
	}
}

// namespaceDeleted: the namespace of a cluster is deleted. Kubernetes takes all that nothing keeps, the lock included, and
// nothing new can be created there, so no machine may be disturbed any more; they all run on.
func (w *world) namespaceDeleted(s *transcript) {
	const doomed, lone = "doomed", "lone"
	w.startProvider()
	w.createNamespace(doomed)
	w.apply(clusterConfig, clusterManifest(doomed, lone, v1alpha1.ClusterProviderConfigKind+", name: default", 1), machineManifest(doomed, lone, "only", "controlplane", 1))
	c, m := &v1alpha1.TalosCluster{}, &v1alpha1.TalosMachine{}
	w.awaitReason(c, doomed, lone, xpv2.TypeReady, xpv2.ReasonAvailable)
	w.awaitReason(m, doomed, "only", xpv2.TypeReady, xpv2.ReasonAvailable)
	w.learnSecrets(doomed, lone)
	o, voters := w.watch(), w.members("m1")

	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: doomed}}
	w.must(w.Delete(w.ctx, space))
	w.await("Kubernetes says why the namespace stays", func() error {
		w.find(space, "", doomed)
		for _, is := range space.Status.Conditions {
			if is.Type == corev1.NamespaceDeletionContentFailure && strings.Contains(is.Message, "NotAllowed") {
				return nil
			}
		}
		return fmt.Errorf("%+v", space.Status.Conditions)
	})
	w.awaitMessage(c, doomed, lone, xpv2.TypeReady, connect.PKISecretName(lone))
	s.condition("TalosCluster lone, whose namespace is being deleted", c, xpv2.TypeReady)
	s.condition("TalosCluster lone, whose namespace is being deleted", c, xpv2.TypeSynced)
	w.find(m, doomed, "only")
	s.condition("TalosMachine only", m, xpv2.TypeReady)
	s.condition("TalosMachine only", m, xpv2.TypeSynced)
	if c.GetDeletionTimestamp() != nil || m.GetDeletionTimestamp() != nil {
		w.t.Error("the end of a namespace has deleted what nobody allowed to be deleted")
	}

	for _, obj := range []client.Object{c, m} { // the cluster first, or the webhook keeps its last control plane
		w.change(obj, doomed, obj.GetName(), func() { meta.AddAnnotations(obj, map[string]string{v1alpha1.AnnotationAllowDelete: "true"}) })
		w.must(w.Delete(w.ctx, obj))
	}
	w.awaitReason(m, doomed, "only", v1alpha1.TypeRemoval, v1alpha1.ReasonNamespaceTerminating)
	s.condition("TalosMachine only, with permission", m, v1alpha1.TypeRemoval)
	w.keepsFinalizer(m)
	o.nothing("m1")
	if got := w.members("m1"); !slices.Equal(got, voters) {
		w.t.Errorf("the members of etcd are %q, were %q", got, voters)
	}

	// The cluster first: with its last machine it would take its PKI down.
	w.change(c, doomed, lone, func() { c.SetManagementPolicies(left) })
	w.awaitGone(c, doomed, lone)
	w.change(m, doomed, "only", func() { m.SetManagementPolicies(left) })
	w.awaitGone(m, doomed, "only")
	pki := &corev1.Secret{}
	if !w.find(pki, doomed, connect.PKISecretName(lone)) || len(pki.Data[connect.PKISecretKey]) == 0 {
		w.t.Fatal("the keys to machines that run were lost")
	}
	w.change(pki, doomed, pki.GetName(), func() { pki.SetFinalizers(nil) })
	w.awaitGone(space, "", doomed)
	o.expect()
}
