package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A kubelet stands for the one on a machine.
type kubelet struct {
	node Node

	// registered says that it has made or taken over its Node since it started.
	registered bool
}

// attend does one heartbeat's work of a kubelet: its Node, its lease, its static pods.
func (s *session) attend(ctx context.Context, k kubelet) error {
	node, err := s.nodes.Get(k.node.Name)
	switch {
	case kerrors.IsNotFound(err) && k.registered:
		// Somebody deleted the Node. Only the next start of the kubelet registers it again.
		return nil
	case kerrors.IsNotFound(err):
		if node, err = s.register(ctx, k.node); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		if node, err = s.refresh(ctx, k.node, node); err != nil {
			return err
		}
	}
	if !k.registered {
		s.c.markRegistered(k.node)
		s.enqueueNode(k.node.Name)
	}
	if err := s.renewLease(ctx, node); err != nil {
		return err
	}
	if !k.node.ControlPlane {
		return nil
	}
	return s.mirrorStaticPods(ctx, k.node, node)
}

func (s *session) register(ctx context.Context, n Node) (*corev1.Node, error) {
	object := &corev1.Node{}
	if err := n.shape(object, time.Now()); err != nil {
		return nil, err
	}
	created, err := s.c.client.CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot register: %w", err)
	}
	return created, nil
}

// refresh writes what has changed about the machine, or has been changed by others and is ours to say.
func (s *session) refresh(ctx context.Context, n Node, have *corev1.Node) (*corev1.Node, error) {
	want := have.DeepCopy()
	if err := n.shape(want, time.Now()); err != nil {
		return nil, err
	}
	client := s.c.client.CoreV1().Nodes()
	if !equality.Semantic.DeepEqual(have.ObjectMeta, want.ObjectMeta) || !equality.Semantic.DeepEqual(have.Spec, want.Spec) {
		updated, err := client.Update(ctx, want, metav1.UpdateOptions{})
		if err != nil {
			return nil, fmt.Errorf("cannot update the Node: %w", err)
		}
		want.ObjectMeta = updated.ObjectMeta
	}
	if !equality.Semantic.DeepEqual(have.Status, want.Status) {
		if _, err := client.UpdateStatus(ctx, want, metav1.UpdateOptions{}); err != nil {
			return nil, fmt.Errorf("cannot update the Node's status: %w", err)
		}
	}
	return want, nil
}

// leaseSeconds is what kubelets write into their leases. Nobody reads it: the node controller has its own grace period.
const leaseSeconds = 40

func (s *session) renewLease(ctx context.Context, node *corev1.Node) error {
	leases := s.c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"renewTime": now}})
	if err != nil {
		return fmt.Errorf("cannot renew the lease: %w", err)
	}
	_, err = leases.Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if kerrors.IsNotFound(err) {
		holder, seconds := node.Name, int32(leaseSeconds)
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: node.Name, OwnerReferences: []metav1.OwnerReference{ownedByNode(node)}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("cannot renew the lease: %w", err)
	}
	return nil
}

func ownedByNode(node *corev1.Node) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
}
