package talosmachine

import (
	"context"
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// An initializer makes each machine an object that its cluster owns, but does not control: the garbage collector then
// takes the objects of the machines of a cluster that was taken down. It holds up nothing: a cluster's deletion does not
// wait for it.
type initializer struct{ kube client.Client }

// Initialize a TalosMachine.
func (i *initializer) Initialize(ctx context.Context, obj resource.Managed) error {
	mg, ok := obj.(*v1alpha1.TalosMachine)
	if !ok {
		return fmt.Errorf("cannot initialize a %T: not a TalosMachine", obj)
	}
	if meta.WasDeleted(mg) || mg.ClusterName() == "" {
		return nil
	}
	cluster := &v1alpha1.TalosCluster{}
	if err := i.kube.Get(ctx, clusterOf(mg), cluster); err != nil {
		return errors.Wrap(client.IgnoreNotFound(err), "cannot get the TalosCluster")
	}
	owned, err := controllerutil.HasOwnerReference(mg.GetOwnerReferences(), cluster, i.kube.Scheme())
	if err != nil || owned || meta.WasDeleted(cluster) {
		return errors.Wrap(err, "cannot read the owners of the TalosMachine")
	}
	patch := client.MergeFromWithOptions(mg.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err := controllerutil.SetOwnerReference(cluster, mg, i.kube.Scheme()); err != nil {
		return errors.Wrap(err, "cannot make the TalosCluster an owner of the TalosMachine")
	}
	err = i.kube.Patch(ctx, mg, patch)
	if kerrors.IsConflict(err) {
		return err // Repeated silently.
	}
	return errors.Wrap(err, "cannot make the TalosCluster an owner of the TalosMachine")
}
