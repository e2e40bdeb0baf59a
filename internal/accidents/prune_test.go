package accidents

import (
	"slices"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// left is what an object says that is to be let go without touching its machine.
var left = xpv2.ManagementPolicies{
	xpv2.ManagementActionObserve, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate, xpv2.ManagementActionLateInitialize,
}

// deletedBeforeTheFirstObserve: an approved machine is declared and deleted while no provider runs. There is no finalizer
// yet to keep it, so admission alone stands in the way; past it the object goes, and with it all that was to be done.
func (w *world) deletedBeforeTheFirstObserve(s *transcript) {
	w.createNamespace(ns)
	w.apply(workerManifest())
	out, err := w.kubectl("", "delete", "talosmachine", worker, "-n", ns)
	if err == nil {
		w.t.Error("nobody was there to allow it, and the delete was admitted")
	}
	s.says("kubectl delete, while no provider runs", out)

	w.removeWebhooks()
	if out, err := w.kubectl("", "delete", "talosmachine", worker, "-n", ns); err != nil {
		w.t.Errorf("an object that nothing holds was not deleted: %s", out)
	}
	w.installWebhooks()
	w.startProvider()
	defer w.stop()
	// Another object is observed, so this one would have been.
	w.apply(machineManifest(ns, cluster, "canary", "worker", 1))
	w.awaitReason(&v1alpha1.TalosMachine{}, ns, "canary", xpv2.TypeReady, v1alpha1.ReasonAwaitingCluster)
	observer{w: w}.expect()
	w.letGo("canary")
}

// letGo of objects, as the refusals say: take Delete out of the policies, and delete them.
func (w *world) letGo(names ...string) {
	w.t.Helper()
	for _, name := range names {
		m := &v1alpha1.TalosMachine{}
		w.change(m, ns, name, func() { m.SetManagementPolicies(left) })
		if m.GetDeletionTimestamp() == nil {
			w.must(w.Delete(w.ctx, m))
		}
	}
	for _, name := range names {
		w.awaitGone(&v1alpha1.TalosMachine{}, ns, name)
	}
}

func (w *world) removeWebhooks() {
	w.t.Helper()
	w.must(w.DeleteAllOf(w.ctx, &admissionv1.ValidatingWebhookConfiguration{}))
}

// prune applies what a bad merge has left of the manifests: everything but the control planes.
func (w *world) prune() (string, error) {
	w.t.Helper()
	return w.kubectl(prodManifest()+"---\n"+workerManifest(),
		"apply", "-f", "-", "--prune", "-l", "app="+cluster, "-n", ns, "--prune-allowlist=ichor.maesh.dev/v1alpha1/TalosMachine")
}

// pruneOfAllControlPlanes: a bad merge loses the manifests of all control planes.
func (w *world) pruneOfAllControlPlanes(s *transcript) {
	o, voters := w.watch(), w.members("m1")
	out, err := w.prune()
	if err == nil {
		w.t.Error("the prune was admitted")
	}
	s.says("kubectl apply --prune, of all control planes", out)
	for _, name := range controlPlanes {
		m := &v1alpha1.TalosMachine{}
		if !w.find(m, ns, name) || m.GetDeletionTimestamp() != nil {
			w.t.Errorf("%s is being deleted", name)
		}
	}
	w.unharmed(o, voters)
}

// unharmed expects that nothing was sent to any machine and that etcd is what it was.
func (w *world) unharmed(o observer, voters []string) {
	w.t.Helper()
	o.nothing("m1")
	if diff := cmp.Diff(voters, w.members("m1")); diff != "" {
		w.t.Errorf("the members of etcd: -before, +after:\n%s", diff)
	}
}

// prunePastTheWebhooks: the same where somebody has removed the webhooks, so that every delete is admitted. What was said
// at admission is said again in the machines' own conditions, and holds.
func (w *world) prunePastTheWebhooks(s *transcript) {
	o, voters := w.watch(), w.members("m1")
	w.removeWebhooks()
	if out, err := w.prune(); err != nil {
		w.t.Fatalf("the prune was refused without webhooks: %s", out)
	}
	for _, name := range controlPlanes {
		m := &v1alpha1.TalosMachine{}
		w.awaitReason(m, ns, name, v1alpha1.TypeRemoval, v1alpha1.ReasonNotAllowed)
		w.keepsFinalizer(m)
	}
	m := &v1alpha1.TalosMachine{}
	w.find(m, ns, "cp-1")
	s.condition("TalosMachine cp-1, deleted without permission", m, v1alpha1.TypeRemoval)
	for _, name := range controlPlanes {
		w.change(m, ns, name, func() { meta.AddAnnotations(m, map[string]string{v1alpha1.AnnotationAllowDelete: "true"}) })
		w.awaitReason(m, ns, name, v1alpha1.TypeRemoval, v1alpha1.ReasonBelowDeclaredCount)
	}
	s.condition("TalosMachine cp-3, with a permission that every manifest has", m, v1alpha1.TypeRemoval)
	w.unharmed(o, voters)

	w.letGo(controlPlanes...)
	w.installWebhooks()
	w.apply(controlPlaneManifests()...)
	w.awaitReady(controlPlanes...)
	w.unharmed(o, voters)
}

func (w *world) keepsFinalizer(m *v1alpha1.TalosMachine) {
	w.t.Helper()
	if !slices.Contains(m.GetFinalizers(), v1alpha1.FinalizerMachine) {
		w.t.Errorf("%s has lost its finalizer: %s", m.GetName(), strings.Join(m.GetFinalizers(), ", "))
	}
}

// foreground is how Crossplane deletes what vanished from a composition: what an object owns goes before it does.
const foreground = metav1.DeletePropagationForeground
