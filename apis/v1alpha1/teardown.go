package v1alpha1

import (
	"slices"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
)

// TearingDown tells whether the whole cluster is being taken down: its object is being deleted, a person allowed that,
// and its management policies do not say that the cluster is to be left alone. Quorum guards stand aside only then.
func (c *TalosCluster) TearingDown() bool {
	return c.GetDeletionTimestamp() != nil && c.GetAnnotations()[AnnotationAllowDelete] == "true" &&
		mayDelete(c.GetManagementPolicies())
}

// MayDelete tells whether the management policies let the cluster be taken down when its object is deleted.
func (c *TalosCluster) MayDelete() bool { return mayDelete(c.GetManagementPolicies()) }

// LeftAlone tells whether the management policies say that the machine is not to be removed: it is neither reset when
// its object is deleted nor when its cluster is taken down.
func (m *TalosMachine) LeftAlone() bool { return !mayDelete(m.GetManagementPolicies()) }

// mayDelete tells whether the policies include deletion. None at all is Crossplane's way to pause a resource.
func mayDelete(p xpv2.ManagementPolicies) bool {
	return slices.Contains(p, xpv2.ManagementActionAll) || slices.Contains(p, xpv2.ManagementActionDelete)
}
