package v1alpha1

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ResolveReferences writes the name of the one TalosCluster that spec.forProvider.clusterSelector selects to
// spec.forProvider.clusterRef and persists it. A reference that is there already is never changed: a machine does not
// move to another cluster because labels moved. None and more than one are errors: guessing could give a machine to the
// wrong cluster.
func (m *TalosMachine) ResolveReferences(ctx context.Context, c client.Reader) error {
	p := &m.Spec.ForProvider
	if p.ClusterRef != nil || p.ClusterSelector == nil {
		return nil
	}
	list := &TalosClusterList{}
	if err := c.List(ctx, list, client.InNamespace(m.GetNamespace()), client.MatchingLabels(p.ClusterSelector.MatchLabels)); err != nil {
		return fmt.Errorf("cannot list TalosClusters: %w", err)
	}
	var names []string
	for i := range list.Items {
		if m.mayReferTo(&list.Items[i]) {
			names = append(names, list.Items[i].GetName())
		}
	}
	slices.Sort(names)
	switch len(names) {
	case 0:
		return fmt.Errorf("cannot resolve spec.forProvider.clusterSelector: no TalosCluster in namespace %q matches it", m.GetNamespace())
	case 1:
		p.ClusterRef = &ClusterReference{Name: names[0]}
		return nil
	}
	return fmt.Errorf("cannot resolve spec.forProvider.clusterSelector: more than one TalosCluster matches it: %s", strings.Join(names, ", "))
}

// mayReferTo tells whether the selector's matchControllerRef lets the machine refer to c.
func (m *TalosMachine) mayReferTo(c *TalosCluster) bool {
	match := m.Spec.ForProvider.ClusterSelector.MatchControllerRef
	if match == nil || !*match {
		return true
	}
	return meta.HaveSameController(m, c)
}
