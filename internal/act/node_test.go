package act

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

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
