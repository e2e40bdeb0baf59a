package webhook

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/deleteguard"
)

type clusterValidator struct{}

// ValidateCreate admits everything: what one object decides is in the CRD's own rules.
func (*clusterValidator) ValidateCreate(context.Context, *v1alpha1.TalosCluster) (admission.Warnings, error) {
	return nil, nil
}

// ValidateUpdate admits everything: what one object decides is in the CRD's own rules.
func (*clusterValidator) ValidateUpdate(context.Context, *v1alpha1.TalosCluster, *v1alpha1.TalosCluster) (admission.Warnings, error) {
	return nil, nil
}

// ValidateDelete refuses a delete that nobody allowed: it would take the whole cluster down.
func (*clusterValidator) ValidateDelete(_ context.Context, c *v1alpha1.TalosCluster) (admission.Warnings, error) {
	if c.GetDeletionTimestamp() != nil || !c.MayDelete() {
		return nil, nil
	}
	if r := deleteguard.CheckDelete(v1alpha1.TalosClusterKind, c.GetName(), c.GetAnnotations()[v1alpha1.AnnotationAllowDelete] == "true"); r != nil {
		return nil, refusal(r)
	}
	return nil, nil
}
