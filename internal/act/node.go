package act

import (
	"context"
	"fmt"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/maesh/provider-ichor/internal/decide/permit"
)

// DeleteNode deletes the target's Node object, which Talos never does. The very Node that proved to be the target's is
// deleted, and no other of the same name that may have registered since. A Node that is gone is no error.
func (a *Actor) DeleteNode(ctx context.Context, lock Lock, p permit.Permit, step string, t Target, k kubernetes.Interface) error {
	if err := a.permitted(ctx, lock, p, t, step); err != nil {
		return err
	}
	n, err := k.CoreV1().Nodes().Get(ctx, t.Node, metav1.GetOptions{})
	if kerrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot get Node %q: %w", t.Node, err)
	}
	if err := proveNode(t, n); err != nil {
		return fmt.Errorf("cannot delete Node %q: %w", t.Node, err)
	}
	err = k.CoreV1().Nodes().Delete(ctx, t.Node, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(n.GetUID())}})
	if err != nil && !kerrors.IsNotFound(err) {
		return fmt.Errorf("cannot delete Node %q: %w", t.Node, err)
	}
	return nil
}
