package v1alpha1

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
)

// The methods that make managed resources of our kinds are written by hand: the generator that knows the current types
// cannot be verified against the checksum database. The assertions keep them complete.
var (
	_ resource.ModernManaged            = &TalosCluster{}
	_ resource.ManagedList              = &TalosClusterList{}
	_ resource.ModernManaged            = &TalosMachine{}
	_ resource.ManagedList              = &TalosMachineList{}
	_ reconcileRequestHandler           = &TalosCluster{}
	_ reconcileRequestHandler           = &TalosMachine{}
	_ resource.ProviderConfig           = &ProviderConfig{}
	_ resource.ProviderConfig           = &ClusterProviderConfig{}
	_ resource.TypedProviderConfigUsage = &ProviderConfigUsage{}
	_ resource.ProviderConfigUsageList  = &ProviderConfigUsageList{}
)

// A reconcileRequestHandler acknowledges the annotation crossplane.io/reconcile-requested-at. The managed reconciler
// looks for these methods on the managed resource itself; without them a request is served but never acknowledged.
type reconcileRequestHandler interface {
	GetLastHandledReconcileAt() string
	SetLastHandledReconcileAt(token string)
}

// GetCondition of this TalosCluster.
func (c *TalosCluster) GetCondition(ct xpv2.ConditionType) xpv2.Condition {
	return c.Status.GetCondition(ct)
}

// SetConditions of this TalosCluster.
func (c *TalosCluster) SetConditions(cs ...xpv2.Condition) { c.Status.SetConditions(cs...) }

// GetManagementPolicies of this TalosCluster.
func (c *TalosCluster) GetManagementPolicies() xpv2.ManagementPolicies {
	return c.Spec.ManagementPolicies
}

// SetManagementPolicies of this TalosCluster.
func (c *TalosCluster) SetManagementPolicies(p xpv2.ManagementPolicies) {
	c.Spec.ManagementPolicies = p
}

// GetProviderConfigReference of this TalosCluster.
func (c *TalosCluster) GetProviderConfigReference() *xpv2.ProviderConfigReference {
	return c.Spec.ProviderConfigReference
}

// SetProviderConfigReference of this TalosCluster.
func (c *TalosCluster) SetProviderConfigReference(p *xpv2.ProviderConfigReference) {
	c.Spec.ProviderConfigReference = p
}

// GetWriteConnectionSecretToReference of this TalosCluster.
func (c *TalosCluster) GetWriteConnectionSecretToReference() *xpv2.LocalSecretReference {
	return c.Spec.WriteConnectionSecretToReference
}

// SetWriteConnectionSecretToReference of this TalosCluster.
func (c *TalosCluster) SetWriteConnectionSecretToReference(s *xpv2.LocalSecretReference) {
	c.Spec.WriteConnectionSecretToReference = s
}

// GetLastHandledReconcileAt returns the token of the last reconcile request that was handled.
func (c *TalosCluster) GetLastHandledReconcileAt() string {
	return c.Status.GetLastHandledReconcileAt()
}

// SetLastHandledReconcileAt sets the token of the last reconcile request that was handled.
func (c *TalosCluster) SetLastHandledReconcileAt(token string) {
	c.Status.SetLastHandledReconcileAt(token)
}

// GetItems of this TalosClusterList.
func (l *TalosClusterList) GetItems() []resource.Managed {
	items := make([]resource.Managed, len(l.Items))
	for i := range l.Items {
		items[i] = &l.Items[i]
	}
	return items
}

// GetCondition of this TalosMachine.
func (m *TalosMachine) GetCondition(ct xpv2.ConditionType) xpv2.Condition {
	return m.Status.GetCondition(ct)
}

// SetConditions of this TalosMachine.
func (m *TalosMachine) SetConditions(cs ...xpv2.Condition) { m.Status.SetConditions(cs...) }

// GetManagementPolicies of this TalosMachine.
func (m *TalosMachine) GetManagementPolicies() xpv2.ManagementPolicies {
	return m.Spec.ManagementPolicies
}

// SetManagementPolicies of this TalosMachine.
func (m *TalosMachine) SetManagementPolicies(p xpv2.ManagementPolicies) {
	m.Spec.ManagementPolicies = p
}

// GetProviderConfigReference of this TalosMachine.
func (m *TalosMachine) GetProviderConfigReference() *xpv2.ProviderConfigReference {
	return m.Spec.ProviderConfigReference
}

// SetProviderConfigReference of this TalosMachine.
func (m *TalosMachine) SetProviderConfigReference(p *xpv2.ProviderConfigReference) {
	m.Spec.ProviderConfigReference = p
}

// GetWriteConnectionSecretToReference of this TalosMachine.
func (m *TalosMachine) GetWriteConnectionSecretToReference() *xpv2.LocalSecretReference {
	return m.Spec.WriteConnectionSecretToReference
}

// SetWriteConnectionSecretToReference of this TalosMachine.
func (m *TalosMachine) SetWriteConnectionSecretToReference(s *xpv2.LocalSecretReference) {
	m.Spec.WriteConnectionSecretToReference = s
}

// GetLastHandledReconcileAt returns the token of the last reconcile request that was handled.
func (m *TalosMachine) GetLastHandledReconcileAt() string {
	return m.Status.GetLastHandledReconcileAt()
}

// SetLastHandledReconcileAt sets the token of the last reconcile request that was handled.
func (m *TalosMachine) SetLastHandledReconcileAt(token string) {
	m.Status.SetLastHandledReconcileAt(token)
}

// GetItems of this TalosMachineList.
func (l *TalosMachineList) GetItems() []resource.Managed {
	items := make([]resource.Managed, len(l.Items))
	for i := range l.Items {
		items[i] = &l.Items[i]
	}
	return items
}

// GetCondition of this ProviderConfig.
func (p *ProviderConfig) GetCondition(ct xpv2.ConditionType) xpv2.Condition {
	return p.Status.GetCondition(ct)
}

// SetConditions of this ProviderConfig.
func (p *ProviderConfig) SetConditions(cs ...xpv2.Condition) { p.Status.SetConditions(cs...) }

// GetUsers of this ProviderConfig.
func (p *ProviderConfig) GetUsers() int64 { return p.Status.Users }

// SetUsers of this ProviderConfig.
func (p *ProviderConfig) SetUsers(i int64) { p.Status.Users = i }

// GetCondition of this ClusterProviderConfig.
func (p *ClusterProviderConfig) GetCondition(ct xpv2.ConditionType) xpv2.Condition {
	return p.Status.GetCondition(ct)
}

// SetConditions of this ClusterProviderConfig.
func (p *ClusterProviderConfig) SetConditions(cs ...xpv2.Condition) { p.Status.SetConditions(cs...) }

// GetUsers of this ClusterProviderConfig.
func (p *ClusterProviderConfig) GetUsers() int64 { return p.Status.Users }

// SetUsers of this ClusterProviderConfig.
func (p *ClusterProviderConfig) SetUsers(i int64) { p.Status.Users = i }

// GetProviderConfigReference of this ProviderConfigUsage.
func (p *ProviderConfigUsage) GetProviderConfigReference() xpv2.ProviderConfigReference {
	return p.ProviderConfigReference
}

// SetProviderConfigReference of this ProviderConfigUsage.
func (p *ProviderConfigUsage) SetProviderConfigReference(r xpv2.ProviderConfigReference) {
	p.ProviderConfigReference = r
}

// GetResourceReference of this ProviderConfigUsage.
func (p *ProviderConfigUsage) GetResourceReference() xpv2.TypedReference { return p.ResourceReference }

// SetResourceReference of this ProviderConfigUsage.
func (p *ProviderConfigUsage) SetResourceReference(r xpv2.TypedReference) { p.ResourceReference = r }

// GetItems of this ProviderConfigUsageList.
func (l *ProviderConfigUsageList) GetItems() []resource.ProviderConfigUsage {
	items := make([]resource.ProviderConfigUsage, len(l.Items))
	for i := range l.Items {
		items[i] = &l.Items[i]
	}
	return items
}
