package act

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

func node(name, uuid string, cordoned bool, by string) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "node-uid", Annotations: map[string]string{"kept": "yes"}},
		Spec:       corev1.NodeSpec{Unschedulable: cordoned},
		Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{SystemUUID: uuid}},
	}
	if by != "" {
		n.Annotations[v1alpha1.AnnotationCordonedBy] = by
	}
	return n
}

// cordonOf is what a Node shows of a cordon.
type cordonOf struct {
	Cordoned bool
	By       string
	Kept     string
}

func cordons(t *testing.T, k *fake.Clientset) map[string]cordonOf {
	t.Helper()
	list, err := k.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]cordonOf{}
	for _, n := range list.Items {
		got[n.Name] = cordonOf{Cordoned: n.Spec.Unschedulable, By: n.Annotations[v1alpha1.AnnotationCordonedBy], Kept: n.Annotations["kept"]}
	}
	return got
}

func TestCordon(t *testing.T) {
	cases := map[string]struct {
		reason  string
		node    *corev1.Node
		want    cordonOf
		refused bool
	}{
		"Signs": {
			reason: "Our cordon is signed, so that it can be undone.",
			node:   node("node-1", uuid, false, ""),
			want:   cordonOf{Cordoned: true, By: "uid-1", Kept: "yes"},
		},
		"Theirs": {
			reason: "A cordon of somebody else is not signed, or it would be undone as if it were ours.",
			node:   node("node-1", uuid, true, ""),
			want:   cordonOf{Cordoned: true, Kept: "yes"},
		},
		"OtherMachine": {
			reason:  "A Node of the same name that another machine runs is left alone.",
			node:    node("node-1", "00000000-0000-4000-8000-000000000002", false, ""),
			want:    cordonOf{Kept: "yes"},
			refused: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			k := fake.NewClientset(tc.node)
			err := newTestActor(t).Cordon(context.Background(), &fakeLock{ledger: &ledger{}}, grant("step"), "step", target, k)
			if (err != nil) != tc.refused {
				t.Errorf("\n%s\nCordon(...): %v, want refused: %t", tc.reason, err, tc.refused)
			}
			if diff := cmp.Diff(map[string]cordonOf{"node-1": tc.want}, cordons(t, k)); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestUncordonUndoesOnlyOurs(t *testing.T) {
	k := fake.NewClientset(
		node("node-1", uuid, true, "uid-1"),
		node("node-2", "", true, "uid-2"),
		node("node-3", "", true, ""),
	)
	if err := Uncordon(context.Background(), k, "uid-1"); err != nil {
		t.Fatal(err)
	}
	want := map[string]cordonOf{
		"node-1": {Kept: "yes"},
		"node-2": {Cordoned: true, By: "uid-2", Kept: "yes"},
		"node-3": {Cordoned: true, Kept: "yes"},
	}
	if diff := cmp.Diff(want, cordons(t, k)); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestDeleteNode(t *testing.T) {
	a, lock := newTestActor(t), &fakeLock{ledger: &ledger{}}
	ctx := context.Background()

	k := fake.NewClientset(node("node-1", "00000000-0000-4000-8000-000000000002", false, ""))
	err := a.DeleteNode(ctx, lock, grant("step"), "step", target, k)
	if identity := (*IdentityError)(nil); !errors.As(err, &identity) {
		t.Errorf("the Node of another machine was deleted: %v", err)
	}

	k = fake.NewClientset(node("node-1", uuid, false, ""))
	if err := a.DeleteNode(ctx, lock, grant("step"), "step", target, k); err != nil {
		t.Fatal(err)
	}
	if _, err := k.CoreV1().Nodes().Get(ctx, "node-1", metav1.GetOptions{}); !kerrors.IsNotFound(err) {
		t.Errorf("the Node is still there: %v", err)
	}
	if err := a.DeleteNode(ctx, lock, grant("step"), "step", target, k); err != nil {
		t.Errorf("a Node that is gone is an error: %v", err)
	}
}

// TestCordonIsOfTheNodeThatWasRead: a Node that somebody cordoned since must not be signed as ours, nor one that somebody
// cordoned anew be uncordoned.
func TestCordonIsOfTheNodeThatWasRead(t *testing.T) {
	ours := node("node-1", uuid, true, "uid-1")
	free := node("node-1", uuid, false, "")
	for name, tc := range map[string]struct {
		node *corev1.Node
		do   func(*Actor, *fake.Clientset) error
	}{
		"Cordon": {free, func(a *Actor, k *fake.Clientset) error {
			return a.Cordon(context.Background(), &fakeLock{ledger: &ledger{}}, grant("step"), "step", target, k)
		}},
		"Uncordon": {ours, func(_ *Actor, k *fake.Clientset) error { return Uncordon(context.Background(), k, target.ID) }},
	} {
		tc.node.ResourceVersion = "7"
		k := fake.NewClientset(tc.node)
		var patch []byte
		k.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
			patch = a.(clienttesting.PatchAction).GetPatch()
			return true, nil, kerrors.NewConflict(corev1.Resource("nodes"), "node-1", errBoom)
		})
		if err := tc.do(newTestActor(t), k); !kerrors.IsConflict(err) {
			t.Errorf("%s: the Node was changed meanwhile, and the error is %v", name, err)
		}
		sent := corev1.Node{}
		if err := json.Unmarshal(patch, &sent); err != nil || sent.ResourceVersion != "7" {
			t.Errorf("%s: the patch is of any version of the Node: %s, %v", name, patch, err)
		}
	}
}

// TestGoneNodes: a Node that went meanwhile needs no uncordon, and was never cordoned.
func TestGoneNodes(t *testing.T) {
	goes := func(k *fake.Clientset) {
		k.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, kerrors.NewNotFound(corev1.Resource("nodes"), "node-1")
		})
	}
	k := fake.NewClientset(node("node-1", uuid, true, "uid-1"))
	goes(k)
	if err := Uncordon(context.Background(), k, target.ID); err != nil {
		t.Errorf("uncordon: %v", err)
	}
	k = fake.NewClientset(node("node-1", uuid, false, ""))
	goes(k)
	err := newTestActor(t).Cordon(context.Background(), &fakeLock{ledger: &ledger{}}, grant("step"), "step", target, k)
	if !kerrors.IsNotFound(err) {
		t.Errorf("cordon: %v", err)
	}
}

// TestNodeErrorsAreTold: nothing is taken for done that the Kubernetes API did not answer.
func TestNodeErrorsAreTold(t *testing.T) {
	ctx, lock := context.Background(), &fakeLock{ledger: &ledger{}}
	for verb, do := range map[string]func(*Actor, *fake.Clientset) error{
		"list nodes":  func(_ *Actor, k *fake.Clientset) error { return Uncordon(ctx, k, target.ID) },
		"patch nodes": func(_ *Actor, k *fake.Clientset) error { return Uncordon(ctx, k, target.ID) },
		"get nodes": func(a *Actor, k *fake.Clientset) error {
			return a.DeleteNode(ctx, lock, grant("step"), "step", target, k)
		},
		"delete nodes": func(a *Actor, k *fake.Clientset) error {
			return a.DeleteNode(ctx, lock, grant("step"), "step", target, k)
		},
		"list pods": func(a *Actor, k *fake.Clientset) error {
			return a.Drain(ctx, lock, grant("step"), "step", target, k, DrainOptions{})
		},
	} {
		k := fake.NewClientset(node("node-1", uuid, true, "uid-1"), pod("a"))
		what, resource, _ := strings.Cut(verb, " ")
		k.PrependReactor(what, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errBoom })
		if err := do(newTestActor(t), k); !errors.Is(err, errBoom) {
			t.Errorf("%s failed, and the error is %v", verb, err)
		}
	}
}

// TestDeleteNodeDeletesTheVeryNode: one of the same name that registered since is another machine's, perhaps the
// replacement's.
func TestDeleteNodeDeletesTheVeryNode(t *testing.T) {
	k := fake.NewClientset(node("node-1", uuid, false, ""))
	var of metav1.DeleteOptions
	k.PrependReactor("delete", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		of = a.(clienttesting.DeleteActionImpl).DeleteOptions
		return true, nil, kerrors.NewNotFound(corev1.Resource("nodes"), "node-1")
	})
	if err := newTestActor(t).DeleteNode(context.Background(), &fakeLock{ledger: &ledger{}}, grant("step"), "step", target, k); err != nil {
		t.Errorf("a Node that went between the look and the call is an error: %v", err)
	}
	if of.Preconditions == nil || of.Preconditions.UID == nil || *of.Preconditions.UID != "node-uid" {
		t.Errorf("any Node of that name is deleted: %+v", of)
	}
}

// TestNodeThatTellsNothing is known by its name, which the survey found.
func TestNodeThatTellsNothing(t *testing.T) {
	if err := proveNode(target, node("node-1", "", false, "")); err != nil {
		t.Error(err)
	}
}
