package webhook

import (
	"context"
	"fmt"
	"testing"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// finalizer stands for the provider's own, which no webhook looks at.
const finalizer = "test.ichor.maesh.dev/keep"

func allow(o client.Object) {
	o.SetAnnotations(map[string]string{v1alpha1.AnnotationAllowDelete: "true"})
}

func allowed(m *v1alpha1.TalosMachine)    { allow(m) }
func kept(m *v1alpha1.TalosMachine)       { m.SetFinalizers([]string{finalizer}) }
func unapproved(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.Approved = false }
func worker(m *v1alpha1.TalosMachine)     { m.Spec.ForProvider.Role = v1alpha1.RoleWorker }

func leftAlone(m *v1alpha1.TalosMachine) {
	m.Spec.ManagementPolicies = xpv2.ManagementPolicies{xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate}
}

func unresolved(m *v1alpha1.TalosMachine) {
	m.Spec.ForProvider.ClusterRef = nil
	m.Spec.ForProvider.ClusterSelector = &xpv2.Selector{MatchLabels: map[string]string{"cluster": "prod"}}
}

// recorded is a machine whose removal wrote down this record.
func recorded(record string) func(*v1alpha1.TalosMachine) {
	return func(m *v1alpha1.TalosMachine) {
		m.SetAnnotations(map[string]string{v1alpha1.AnnotationRemovalRecord: record, v1alpha1.AnnotationAllowDelete: "true"})
	}
}

// forbidden takes the permission off again: what the garbage collector takes after a teardown never had one.
func forbidden(m *v1alpha1.TalosMachine) { delete(m.Annotations, v1alpha1.AnnotationAllowDelete) }

// expectGone checks that an admitted delete had its effect: a finalizer keeps the object, but not from being deleted.
func expectGone(t *testing.T, o client.Object) {
	t.Helper()
	hasFinalizer := len(o.GetFinalizers()) > 0
	err := api.Get(t.Context(), client.ObjectKeyFromObject(o), o)
	switch {
	case hasFinalizer && (err != nil || o.GetDeletionTimestamp() == nil):
		t.Errorf("%q has no deletionTimestamp (%v)", o.GetName(), err)
	case !hasFinalizer && !kerrors.IsNotFound(err):
		t.Errorf("%q is still there (%v)", o.GetName(), err)
	}
}

// expectUntouched checks that a refused delete left the object as it was.
func expectUntouched(t *testing.T, o client.Object) {
	t.Helper()
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil || o.GetDeletionTimestamp() != nil {
		t.Errorf("%q was touched: deletionTimestamp %v, %v", o.GetName(), o.GetDeletionTimestamp(), err)
	}
}

func TestDeleteOfMachine(t *testing.T) {
	type changes = []func(*v1alpha1.TalosMachine)
	cases := map[string]struct {
		declared int // 0: there is no TalosCluster
		others   int // approved control planes beside the target
		target   changes
		refusal  []string // none: admitted
	}{
		"NobodyAllowed": {declared: 3, others: 3, refusal: []string{
			`NotAllowed: Nobody allowed the deletion of TalosMachine "target"`, `annotate it with ichor.maesh.dev/allow-delete: "true"`, "spec.managementPolicies",
		}},
		"AllowedOtherThanTrue": {declared: 3, others: 3, target: changes{func(m *v1alpha1.TalosMachine) {
			m.SetAnnotations(map[string]string{v1alpha1.AnnotationAllowDelete: "yes"})
		}}, refusal: []string{"NotAllowed: "}},
		"ThreeOfThree": {declared: 3, others: 2, target: changes{allowed}, refusal: []string{
			"BelowDeclaredCount: 3 control planes are approved now, and 2 would be left of 3 that are declared",
			"Approve a replacement first", "spec.forProvider.controlPlane.count",
		}},
		"FourOfThree":           {declared: 3, others: 3, target: changes{allowed}},
		"FourOfThreeFinalizer":  {declared: 3, others: 3, target: changes{allowed, kept}},
		"Last":                  {declared: 1, target: changes{allowed}, refusal: []string{"LastControlPlane: ", "1 is approved now, and none would be left", "delete its TalosCluster"}},
		"Unapproved":            {declared: 3, others: 3, target: changes{unapproved, allowed}},
		"UnapprovedLast":        {declared: 1, target: changes{unapproved, allowed}},
		"UnapprovedNotAllowed":  {declared: 3, others: 3, target: changes{unapproved}, refusal: []string{"NotAllowed: "}},
		"Worker":                {declared: 3, others: 3, target: changes{worker, allowed}},
		"WorkerOfAWholeCluster": {declared: 1, others: 1, target: changes{worker, allowed}},
		"WorkerNotAllowed":      {declared: 3, others: 3, target: changes{worker}, refusal: []string{"NotAllowed: "}},
		"LeftAlone":             {declared: 3, others: 2, target: changes{leftAlone}},
		"LeftAloneLast":         {declared: 1, target: changes{leftAlone}},
		"NoCluster": {others: 4, target: changes{allowed}, refusal: []string{
			"UnknownCount: ", `there is no TalosCluster "prod"`, "spec.managementPolicies",
		}},
		"Unresolved":           {declared: 3, others: 2, target: changes{unresolved, allowed}},
		"UnresolvedNotAllowed": {declared: 3, others: 2, target: changes{unresolved}, refusal: []string{"NotAllowed: "}},
		"RemovedAlready":       {declared: 3, others: 2, target: changes{recorded(`{"uuid":"u","completed":true}`), forbidden}},
		"RemovalBegun":         {declared: 3, others: 2, target: changes{recorded(`{"uuid":"u"}`)}, refusal: []string{"BelowDeclaredCount: "}},
		"UnreadableRecord":     {declared: 3, others: 3, target: changes{recorded("{")}, refusal: []string{v1alpha1.AnnotationRemovalRecord, `"target"`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ns := newNamespace(t)
			if tc.declared > 0 {
				create(t, newCluster(ns, "prod", tc.declared))
			}
			for i := range tc.others {
				create(t, newMachine(ns, fmt.Sprintf("other-%d", i)))
			}
			target := newMachine(ns, "target", tc.target...)
			create(t, target)
			err := api.Delete(t.Context(), target)
			if tc.refusal != nil {
				expectRefusal(t, err, tc.refusal...)
				expectUntouched(t, target)
				return
			}
			expectAdmitted(t, err)
			expectGone(t, target)
		})
	}
}

// TestSequentialDeletes is the case of the decision record: each delete by itself leaves what is declared, and the second
// would still take the quorum.
func TestSequentialDeletes(t *testing.T) {
	ns := newNamespace(t)
	a, b, c := newMachine(ns, "a", allowed), newMachine(ns, "b", allowed), newMachine(ns, "c", allowed)
	create(t, newCluster(ns, "prod", 1), a, b, c)

	expectAdmitted(t, api.Delete(t.Context(), a))
	expectGone(t, a)
	for _, m := range []*v1alpha1.TalosMachine{b, c} {
		expectRefusal(t, api.Delete(t.Context(), m), "QuorumWouldBreak: 2 control planes are approved now, and 1 would be left: a quorum of 2 needs 2",
			"Approve another control plane first")
		expectUntouched(t, m)
	}
}

// TestOtherClustersDoNotCount has control planes enough everywhere but in the machine's own cluster.
func TestOtherClustersDoNotCount(t *testing.T) {
	ns, elsewhere := newNamespace(t), newNamespace(t)
	target := newMachine(ns, "target", allowed)
	create(t, newCluster(ns, "prod", 1), target)
	for i := range 3 {
		other := newMachine(ns, fmt.Sprintf("other-%d", i))
		other.Spec.ForProvider.ClusterRef.Name = "staging"
		create(t, other, newMachine(elsewhere, fmt.Sprintf("other-%d", i)))
	}
	expectRefusal(t, api.Delete(t.Context(), target), "LastControlPlane: ")
	expectUntouched(t, target)
}

func TestDeleteOfDeletingMachine(t *testing.T) {
	ns := newNamespace(t)
	m := newMachine(ns, "m", leftAlone, kept)
	create(t, newCluster(ns, "prod", 1), m)
	expectAdmitted(t, api.Delete(t.Context(), m))
	expectGone(t, m)

	m.Spec.ManagementPolicies = xpv2.ManagementPolicies{xpv2.ManagementActionAll}
	expectAdmitted(t, api.Update(t.Context(), m))
	expectAdmitted(t, api.Delete(t.Context(), m)) // It changes nothing, whatever the guards would say by now.
}

func TestDeleteOfDeletingCluster(t *testing.T) {
	ns := newNamespace(t)
	c := newCluster(ns, "prod", 1, func(c *v1alpha1.TalosCluster) { allow(c); c.SetFinalizers([]string{finalizer}) })
	create(t, c)
	expectAdmitted(t, api.Delete(t.Context(), c))
	expectGone(t, c)

	c.SetAnnotations(nil)
	expectAdmitted(t, api.Update(t.Context(), c))
	expectAdmitted(t, api.Delete(t.Context(), c)) // It changes nothing, and the garbage collector asks again and again.
}

func TestDeleteOfCluster(t *testing.T) {
	cases := map[string]struct {
		change  func(*v1alpha1.TalosCluster)
		refusal []string
	}{
		"NobodyAllowed": {change: func(*v1alpha1.TalosCluster) {}, refusal: []string{
			`NotAllowed: Nobody allowed the deletion of TalosCluster "prod"`, `ichor.maesh.dev/allow-delete: "true"`, "spec.managementPolicies",
		}},
		"Allowed": {change: func(c *v1alpha1.TalosCluster) { allow(c) }},
		"AllowedOtherThanTrue": {change: func(c *v1alpha1.TalosCluster) {
			c.SetAnnotations(map[string]string{v1alpha1.AnnotationAllowDelete: "yes"})
		}, refusal: []string{"NotAllowed: "}},
		"LeftAlone": {change: func(c *v1alpha1.TalosCluster) {
			c.Spec.ManagementPolicies = xpv2.ManagementPolicies{xpv2.ManagementActionObserve}
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ns := newNamespace(t)
			c := newCluster(ns, "prod", 3, tc.change)
			create(t, c, newMachine(ns, "m"))
			err := api.Delete(t.Context(), c)
			if tc.refusal != nil {
				expectRefusal(t, err, tc.refusal...)
				expectUntouched(t, c)
				return
			}
			expectAdmitted(t, err)
			expectGone(t, c)
		})
	}
}

// TestTeardownLetsMachinesGo has both halves: a cluster that is taken down lets its machines go, the last control plane
// too; one whose object merely goes, with the cluster left alone, does not.
func TestTeardownLetsMachinesGo(t *testing.T) {
	for _, alone := range []bool{false, true} {
		t.Run(fmt.Sprintf("LeftAlone=%t", alone), func(t *testing.T) {
			ns := newNamespace(t)
			c := newCluster(ns, "prod", 1, func(c *v1alpha1.TalosCluster) {
				allow(c)
				c.SetFinalizers([]string{finalizer})
				if alone {
					c.Spec.ManagementPolicies = xpv2.ManagementPolicies{xpv2.ManagementActionObserve}
				}
			})
			last, w := newMachine(ns, "last"), newMachine(ns, "worker", worker)
			create(t, c, last, w)
			expectRefusal(t, api.Delete(t.Context(), last), "NotAllowed: ")
			expectAdmitted(t, api.Delete(t.Context(), c))
			expectGone(t, c)
			for _, m := range []*v1alpha1.TalosMachine{w, last} {
				err := api.Delete(t.Context(), m)
				if alone {
					expectRefusal(t, err, "NotAllowed: ")
					expectUntouched(t, m)
					continue
				}
				expectAdmitted(t, err)
				expectGone(t, m)
			}
		})
	}
}

// TestDeleteCollectionIsGuarded has a prune that deletes all at once: each object is asked for by itself.
func TestDeleteCollectionIsGuarded(t *testing.T) {
	ns := newNamespace(t)
	a, b, c := newMachine(ns, "a", allowed), newMachine(ns, "b", allowed), newMachine(ns, "c", allowed)
	create(t, newCluster(ns, "prod", 3), a, b, c)
	expectRefusal(t, api.DeleteAllOf(t.Context(), &v1alpha1.TalosMachine{}, client.InNamespace(ns)), "BelowDeclaredCount: ")
	for _, m := range []*v1alpha1.TalosMachine{a, b, c} {
		expectUntouched(t, m)
	}
}

// TestWebhookThatIsDown has the two failure policies: no delete goes through without an answer, and nobody's pipeline
// stands still for want of one.
func TestWebhookThatIsDown(t *testing.T) {
	ns := newNamespace(t)
	c := newCluster(ns, "prod", 1, func(c *v1alpha1.TalosCluster) { allow(c) })
	w := newMachine(ns, "worker", worker, allowed)
	create(t, c, w)
	if err := hook.stop(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := hook.start(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
		// Only that the server was down had kept them.
		ctx := context.WithoutCancel(t.Context())
		if err := api.Delete(ctx, w); err != nil {
			t.Error(err)
		}
		if err := api.Delete(ctx, c); err != nil {
			t.Error(err)
		}
	})
	expectRefusal(t, api.Delete(t.Context(), w), "failed calling webhook", "delete.talosmachines.ichor.maesh.dev")
	expectUntouched(t, w)
	expectRefusal(t, api.Delete(t.Context(), c), "failed calling webhook", "delete.talosclusters.ichor.maesh.dev")
	expectUntouched(t, c)

	create(t, newMachine(ns, "new"))
	w.SetLabels(map[string]string{"changed": "true"})
	expectAdmitted(t, api.Update(t.Context(), w))
}

// TestRefusalIsForbidden has what programs see: a final no, and not an error that is worth another try.
func TestRefusalIsForbidden(t *testing.T) {
	ns := newNamespace(t)
	m := newMachine(ns, "m")
	create(t, newCluster(ns, "prod", 1), m)
	err := api.Delete(t.Context(), m)
	if !kerrors.IsForbidden(err) {
		t.Errorf("got %v, want Forbidden", err)
	}
}
