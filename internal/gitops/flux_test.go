package gitops

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/lab/flux"
)

const (
	namespace = "clusters"
	allowed   = v1alpha1.AnnotationAllowDelete + `: "true"`
)

// TestFluxLosesNothing goes through the life of a cluster in Git with Flux's own controller and the Kustomizations of
// examples/gitops, and with what people do to it by mistake.
func TestFluxLosesNothing(t *testing.T) {
	f := startStory(t)
	f.comesUp()
	f.pruneOfAMachine()
	f.pruneOfAControlPlane()
	f.pruneOfEverything()
	f.deletionOfTheKustomization()
	f.unhealthyIsShown()
	f.removalByCommit()
}

// comesUp: Flux waits for objects that nobody has looked at yet, and is ready when they are.
func (f *fluxStory) comesUp() {
	revision := f.commit(f.files)
	eventually(f.t, "Flux has applied every machine", func(ctx context.Context) (bool, error) {
		return len(f.machines(ctx)) == 4, nil
	})
	f.allReady()
	f.expect(revision, "True", "ReconciliationSucceeded", "Applied revision")
}

// pruneOfAMachine: a line that vanishes from Git removes nothing. The refusal shows once; then Flux has forgotten the machine.
func (f *fluxStory) pruneOfAMachine() {
	worker := f.files["clusters/worker-1.yaml"]
	delete(f.files, "clusters/worker-1.yaml")
	f.expect(f.commit(f.files), "False", "PruneFailed", "NotAllowed", `TalosMachine "worker-1"`, v1alpha1.AnnotationAllowDelete)
	f.expectEvent("PruneFailed", "NotAllowed")
	f.nothingIsDeleted()

	f.reconcile()
	f.expectReady("True", "ReconciliationSucceeded")
	f.nothingIsDeleted()
	f.files["clusters/worker-1.yaml"] = worker
	f.expect(f.commit(f.files), "True", "ReconciliationSucceeded")
}

// pruneOfAControlPlane: a permission does not override what is declared.
func (f *fluxStory) pruneOfAControlPlane() {
	before := f.files["clusters/cp-2.yaml"]
	f.files["clusters/cp-2.yaml"] = machineYAML("cp-2", "controlplane", 2, allowed)
	f.expect(f.commit(f.files), "True", "ReconciliationSucceeded")
	delete(f.files, "clusters/cp-2.yaml")
	f.expect(f.commit(f.files), "False", "PruneFailed", "BelowDeclaredCount", "3")
	f.nothingIsDeleted()
	f.files["clusters/cp-2.yaml"] = before
	f.expect(f.commit(f.files), "True", "ReconciliationSucceeded")
}

// pruneOfEverything: a commit that empties the directory.
func (f *fluxStory) pruneOfEverything() {
	empty := map[string]string{"base/base.yaml": f.files["base/base.yaml"], "clusters/note.yaml": noteYAML}
	f.expect(f.commit(empty), "False", "PruneFailed", `TalosCluster "prod"`, `TalosMachine "cp-1"`, `TalosMachine "worker-1"`)
	f.nothingIsDeleted()
	f.expect(f.commit(f.files), "True", "ReconciliationSucceeded")
}

// deletionOfTheKustomization: as in the example it leaves the cluster alone. With the policy that prunes, it is refused and
// stays until it is changed.
func (f *fluxStory) deletionOfTheKustomization() {
	k := f.kustomization()
	set(k, "MirrorPrune", "spec", "deletionPolicy")
	f.must(f.api.Update(f.t.Context(), k))
	f.reconcile()
	f.expectReady("True", "ReconciliationSucceeded")
	f.must(f.api.Delete(f.t.Context(), f.kustomization()))
	f.expectEvent("", "pruning for deleted resource failed")
	f.nothingIsDeleted()

	k = f.kustomization()
	set(k, "Orphan", "spec", "deletionPolicy")
	f.must(f.api.Update(f.t.Context(), k))
	eventually(f.t, "the Kustomization is gone", func(ctx context.Context) (bool, error) {
		err := f.api.Get(ctx, client.ObjectKeyFromObject(k), k)
		return kerrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	f.nothingIsDeleted()
	f.must(f.api.Create(f.t.Context(), f.example[1].DeepCopy()))
	f.expect(f.commit(f.files), "True", "ReconciliationSucceeded")
}

// unhealthyIsShown: the health checks of the example, asked by Flux itself.
func (f *fluxStory) unhealthyIsShown() {
	f.report(v1alpha1.TalosMachineKind, "worker-1", yes("Synced", "ReconcileSuccess", ""), no("Ready", "Unavailable", ""), no("Reachable", "ForeignCluster", "another PKI"))
	f.expect(f.commit(f.files), "False", "HealthCheckFailed", "TalosMachine/clusters/worker-1", "Failed")
	f.allReady()
	f.expect(f.commit(f.files), "True", "ReconciliationSucceeded")
}

// removalByCommit: first the permission, then the line. The machine is asked to go, and its finalizer keeps it until it has.
func (f *fluxStory) removalByCommit() {
	f.files["clusters/worker-1.yaml"] = machineYAML("worker-1", "worker", 4, allowed)
	f.expect(f.commit(f.files), "True", "ReconciliationSucceeded")
	delete(f.files, "clusters/worker-1.yaml")
	f.expect(f.commit(f.files), "True", "ReconciliationSucceeded")
	for _, m := range f.machines(f.t.Context()) {
		if going := m.GetDeletionTimestamp() != nil; going != (m.GetName() == "worker-1") {
			f.t.Errorf("TalosMachine %q is being deleted: %t", m.GetName(), going)
		}
	}
}

// A fluxStory is a management cluster with Flux, a repository, and what is to be committed next.
type fluxStory struct {
	t       *testing.T
	api     client.Client
	git     *flux.Repository
	files   map[string]string
	example []*unstructured.Unstructured // the Kustomizations of examples/gitops, with the test's own times
	tokens  int
}

func startStory(t *testing.T) *fluxStory {
	t.Helper()
	f := &fluxStory{t: t, api: startManagement(t)}
	f.must(f.api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: flux.Namespace}}))
	var err error
	f.git, err = flux.NewRepository(t.Context(), f.api, "fleet")
	f.must(err)
	t.Cleanup(f.git.Close)
	f.files = map[string]string{
		"base/base.yaml":        "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + namespace + "}\n",
		"clusters/note.yaml":    noteYAML,
		"clusters/cluster.yaml": clusterYAML,
	}
	for i := range 3 {
		name := fmt.Sprintf("cp-%d", i+1)
		f.files["clusters/"+name+".yaml"] = machineYAML(name, "controlplane", i+1, "")
	}
	f.files["clusters/worker-1.yaml"] = machineYAML("worker-1", "worker", 4, "")
	f.files = maps.Clone(f.files)
	content, err := os.ReadFile("../../examples/gitops/flux.yaml")
	f.must(err)
	for _, document := range strings.Split(string(content), "\n---\n") {
		k := &unstructured.Unstructured{}
		f.must(yaml.Unmarshal([]byte(document), &k.Object))
		// What failed stays as it is, so that it can be looked at, until the next commit.
		set(k, "1h", "spec", "interval")
		set(k, "1h", "spec", "retryInterval")
		set(k, "5m", "spec", "timeout")
		f.example = append(f.example, k)
		f.must(f.api.Create(t.Context(), k.DeepCopy()))
	}
	return f
}

const (
	noteYAML = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: note, namespace: clusters}\n"

	clusterYAML = `apiVersion: ichor.maesh.dev/v1alpha1
kind: TalosCluster
metadata: {name: prod, namespace: clusters}
spec:
  forProvider:
    endpoint: https://192.0.2.10:6443
    controlPlane: {count: 3}
    versions: {talos: v1.13.9, kubernetes: v1.35.4}
`
)

func machineYAML(name, role string, number int, annotation string) string {
	return fmt.Sprintf(`apiVersion: ichor.maesh.dev/v1alpha1
kind: TalosMachine
metadata: {name: %s, namespace: clusters, annotations: {%s}}
spec:
  forProvider:
    clusterRef: {name: prod}
    role: %s
    approved: true
    address: 192.0.2.%d
    install: {disk: /dev/sda}
`, name, annotation, role, 10+number)
}

func (f *fluxStory) commit(files map[string]string) string {
	f.t.Helper()
	revision, err := f.git.Commit(f.t.Context(), files)
	f.must(err)
	return revision
}

func (f *fluxStory) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fluxStory) machines(ctx context.Context) []v1alpha1.TalosMachine {
	f.t.Helper()
	list := &v1alpha1.TalosMachineList{}
	f.must(f.api.List(ctx, list, client.InNamespace(namespace)))
	return list.Items
}

// nothingIsDeleted checks that the cluster and its four machines are there, and that nobody asked them to go.
func (f *fluxStory) nothingIsDeleted() {
	f.t.Helper()
	cluster := &v1alpha1.TalosCluster{}
	f.must(f.api.Get(f.t.Context(), client.ObjectKey{Namespace: namespace, Name: "prod"}, cluster))
	machines := f.machines(f.t.Context())
	if len(machines) != 4 || cluster.GetDeletionTimestamp() != nil {
		f.t.Fatalf("%d machines are left of 4, and the cluster is being deleted: %t", len(machines), cluster.GetDeletionTimestamp() != nil)
	}
	for _, m := range machines {
		if m.GetDeletionTimestamp() != nil {
			f.t.Fatalf("TalosMachine %q is being deleted", m.GetName())
		}
	}
}

// allReady reports what the provider would of a cluster that is well, and takes its finalizers.
func (f *fluxStory) allReady() {
	f.t.Helper()
	ready := []change{yes("Ready", "Available", ""), yes("Synced", "ReconcileSuccess", "")}
	f.report(v1alpha1.TalosClusterKind, "prod", ready...)
	for _, m := range f.machines(f.t.Context()) {
		f.report(v1alpha1.TalosMachineKind, m.GetName(), append(ready, yes("ConfigApplied", "InSync", ""))...)
	}
}

func (f *fluxStory) report(kind, name string, conditions ...change) {
	f.t.Helper()
	u := object(kind, conditions...)
	reported, _, err := unstructured.NestedSlice(u.Object, "status", "conditions")
	f.must(err)
	u.SetNamespace(namespace)
	u.SetName(name)
	f.must(f.api.Get(f.t.Context(), client.ObjectKeyFromObject(u), u))
	before := u.DeepCopy()
	u.SetFinalizers([]string{v1alpha1.FinalizerMachine})
	f.must(f.api.Patch(f.t.Context(), u, client.MergeFrom(before)))
	for _, c := range reported {
		c.(map[string]any)["lastTransitionTime"] = time.Now().UTC().Format(time.RFC3339)
		c.(map[string]any)["observedGeneration"] = u.GetGeneration()
	}
	before = u.DeepCopy()
	set(u, reported, "status", "conditions")
	f.must(f.api.Status().Patch(f.t.Context(), u, client.MergeFrom(before)))
}

func (f *fluxStory) kustomization() *unstructured.Unstructured {
	f.t.Helper()
	k := f.example[1].DeepCopy()
	f.must(f.api.Get(f.t.Context(), client.ObjectKeyFromObject(k), k))
	return k
}

// reconcile asks Flux to look again, and waits until it has.
func (f *fluxStory) reconcile() {
	f.t.Helper()
	f.tokens++
	token := fmt.Sprint(f.tokens)
	k := f.kustomization()
	before := k.DeepCopy()
	k.SetAnnotations(map[string]string{"reconcile.fluxcd.io/requestedAt": token})
	f.must(f.api.Patch(f.t.Context(), k, client.MergeFrom(before)))
	eventually(f.t, "Flux has looked again", func(context.Context) (bool, error) {
		handled, _, err := unstructured.NestedString(f.kustomization().Object, "status", "lastHandledReconcileAt")
		return handled == token, err
	})
}

// expect waits until Flux has tried the revision, and checks what it shows.
func (f *fluxStory) expect(revision, status, reason string, says ...string) {
	f.t.Helper()
	eventually(f.t, "Flux has tried "+revision, func(context.Context) (bool, error) {
		k := f.kustomization()
		attempted, _, err := unstructured.NestedString(k.Object, "status", "lastAttemptedRevision")
		return attempted == revision && readyOf(k)["status"] != "Unknown", err
	})
	f.expectReady(status, reason, says...)
}

func (f *fluxStory) expectReady(status, reason string, says ...string) {
	f.t.Helper()
	ready := readyOf(f.kustomization())
	if ready["status"] != status || ready["reason"] != reason {
		f.t.Fatalf("Flux shows Ready %v, want %s because of %s", ready, status, reason)
	}
	for _, s := range says {
		if !strings.Contains(fmt.Sprint(ready["message"]), s) {
			f.t.Errorf("Flux does not show %q:\n%s", s, ready["message"])
		}
	}
}

func readyOf(k *unstructured.Unstructured) map[string]any {
	conditions, _, _ := unstructured.NestedSlice(k.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok && condition["type"] == "Ready" {
			return condition
		}
	}
	return map[string]any{"status": "Unknown"}
}

// expectEvent waits for an event of the Kustomization: what its status has forgotten, its events still tell.
func (f *fluxStory) expectEvent(reason, says string) {
	f.t.Helper()
	eventually(f.t, "Flux has recorded "+says, func(ctx context.Context) (bool, error) {
		list := &corev1.EventList{}
		if err := f.api.List(ctx, list, client.InNamespace(flux.Namespace)); err != nil {
			return false, err
		}
		for _, e := range list.Items {
			if e.InvolvedObject.Kind == "Kustomization" && strings.Contains(e.Message, says) && (reason == "" || e.Reason == reason) {
				return true, nil
			}
		}
		return false, nil
	})
}
