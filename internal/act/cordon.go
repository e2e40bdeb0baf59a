package act

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/permit"
)

// Cordon keeps new pods off the target's Node and signs the cordon with the target's ID, so that only a cordon of our
// own is ever undone. A Node that somebody else cordoned stays theirs.
func (a *Actor) Cordon(ctx context.Context, lock Lock, p permit.Permit, step string, t Target, k kubernetes.Interface) error {
	if err := a.permitted(ctx, lock, p, t, step); err != nil {
		return err
	}
	n, err := k.CoreV1().Nodes().Get(ctx, t.Node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("cannot get Node %q: %w", t.Node, err)
	}
	if err := proveNode(t, n); err != nil {
		return fmt.Errorf("cannot cordon Node %q: %w", t.Node, err)
	}
	if n.Spec.Unschedulable {
		return nil
	}
	id := string(t.ID)
	return patchNode(ctx, k, n, "cordon", true, &id)
}

// Uncordon undoes every cordon that is signed with the given ID, and no other. It needs neither lock nor permit: nothing
// is disturbed by it. A Node that somebody cordoned anew keeps its signature until it is undone here, too.
func Uncordon(ctx context.Context, k kubernetes.Interface, id facts.MachineID) error {
	list, err := k.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("cannot list Nodes: %w", err)
	}
	var errs []error
	for i := range list.Items {
		if n := &list.Items[i]; n.GetAnnotations()[v1alpha1.AnnotationCordonedBy] == string(id) {
			errs = append(errs, patchNode(ctx, k, n, "uncordon", false, nil))
		}
	}
	return errors.Join(errs...)
}

// patchNode changes both the cordon and its signature at once, or neither: a cordon without a signature would stay
// forever, a signature without a cordon would undo somebody else's. A Node that is gone has no cordon to undo.
func patchNode(ctx context.Context, k kubernetes.Interface, n *corev1.Node, verb string, unschedulable bool, id *string) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"resourceVersion": n.GetResourceVersion(),
			"annotations":     map[string]any{v1alpha1.AnnotationCordonedBy: id},
		},
		"spec": map[string]any{"unschedulable": unschedulable},
	})
	if err != nil {
		return fmt.Errorf("cannot encode the patch of Node %q: %w", n.GetName(), err)
	}
	_, err = k.CoreV1().Nodes().Patch(ctx, n.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && (unschedulable || !kerrors.IsNotFound(err)) {
		return fmt.Errorf("cannot %s Node %q: %w", verb, n.GetName(), err)
	}
	return nil
}

// proveNode returns an error if the Node tells that it is another machine than the target. A Node that tells nothing is
// known by its name, which the survey found.
func proveNode(t Target, n *corev1.Node) error {
	if uuid := n.Status.NodeInfo.SystemUUID; uuid != "" && t.UUID != "" && !strings.EqualFold(uuid, t.UUID) {
		return &IdentityError{Name: t.Name, Want: t.UUID, Got: uuid}
	}
	return nil
}
