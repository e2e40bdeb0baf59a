package v1alpha1

import (
	"context"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestRemovalRecord(t *testing.T) {
	m := &TalosMachine{}
	if r, err := m.RemovalRecord(); r != nil || err != nil {
		t.Errorf("a machine whose removal has not begun: %v, %v", r, err)
	}
	want := &RemovalRecord{UUID: "u", BootID: "b", MemberID: FormatMemberID(0x8e9e05c52164694d), Reset: true, Completed: true}
	if err := m.SetRemovalRecord(*want); err != nil {
		t.Fatal(err)
	}
	got, err := m.RemovalRecord()
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, -want, +got:\n%s", err, diff)
	}
	if id, err := got.Member(); id != 0x8e9e05c52164694d || err != nil {
		t.Errorf("Member(): %x, %v", id, err)
	}
	for _, broken := range []string{"", "{", `{"memberID":"xyz"}`} {
		m.SetAnnotations(map[string]string{AnnotationRemovalRecord: broken})
		if r, err := m.RemovalRecord(); err == nil {
			t.Errorf("record %q was taken for %v: a record that cannot be read must not be taken for none", broken, r)
		}
	}
}

func TestMemberIDZeroIsNone(t *testing.T) {
	if s := FormatMemberID(0); s != "" {
		t.Errorf("FormatMemberID(0): %q", s)
	}
	if id, err := ParseMemberID(""); id != 0 || err != nil {
		t.Errorf("ParseMemberID of nothing: %d, %v", id, err)
	}
}

func TestPinnedUUID(t *testing.T) {
	m := &TalosMachine{}
	if got := m.PinnedUUID(); got != "" {
		t.Errorf("nothing is pinned: %q", got)
	}
	meta.SetExternalName(m, "ABCD")
	if got := m.PinnedUUID(); got != "abcd" {
		t.Errorf("the UUID that was seen: %q", got)
	}
	m.Spec.ForProvider.UUID = "EF01"
	if got := m.PinnedUUID(); got != "ef01" {
		t.Errorf("what is declared comes first: %q", got)
	}
}

func TestTearingDown(t *testing.T) {
	all, observe := xpv2.ManagementPolicies{xpv2.ManagementActionAll}, xpv2.ManagementPolicies{xpv2.ManagementActionObserve, xpv2.ManagementActionCreate}
	cases := map[string]struct {
		reason            string
		deleting, allowed bool
		policies          xpv2.ManagementPolicies
		want              bool
	}{
		"Yes":      {reason: "It is deleted and allowed.", deleting: true, allowed: true, policies: all, want: true},
		"Explicit": {reason: "Delete may be named.", deleting: true, allowed: true, policies: xpv2.ManagementPolicies{xpv2.ManagementActionObserve, xpv2.ManagementActionDelete}, want: true},
		"There":    {reason: "It is not deleted.", allowed: true, policies: all},
		"Refused":  {reason: "Nobody allowed it.", deleting: true, policies: all},
		"Orphaned": {reason: "A cluster that is given up is left running.", deleting: true, allowed: true, policies: observe},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &TalosCluster{}
			c.SetManagementPolicies(tc.policies)
			if tc.deleting {
				c.SetDeletionTimestamp(ptr.To(metav1.Now()))
			}
			if tc.allowed {
				c.SetAnnotations(map[string]string{AnnotationAllowDelete: "true"})
			}
			if got := c.TearingDown(); got != tc.want {
				t.Errorf("\n%s\nTearingDown(): %t", tc.reason, got)
			}
		})
	}
}

func TestResolveReferences(t *testing.T) {
	labelled := func(name string, labels map[string]string) client.Object {
		return &TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: name, Labels: labels}}
	}
	prod := map[string]string{"env": "prod"}
	cases := map[string]struct {
		reason   string
		clusters []client.Object
		ref      *ClusterReference
		want     string
		fails    bool
	}{
		"One":     {reason: "The one that matches is referred to.", clusters: []client.Object{labelled("a", prod), labelled("b", nil)}, want: "a"},
		"Kept":    {reason: "A machine does not move because labels moved.", clusters: []client.Object{labelled("a", prod)}, ref: &ClusterReference{Name: "b"}, want: "b"},
		"None":    {reason: "None is an error.", clusters: []client.Object{labelled("b", nil)}, fails: true},
		"Two":     {reason: "Guessing could give a machine to the wrong cluster.", clusters: []client.Object{labelled("a", prod), labelled("b", prod)}, fails: true},
		"Foreign": {reason: "Another namespace is never looked at.", clusters: []client.Object{&TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "a", Labels: prod}}}, fails: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := runtime.NewScheme()
			if err := SchemeBuilder.AddToScheme(s); err != nil {
				t.Fatal(err)
			}
			c := fake.NewClientBuilder().WithScheme(s).WithObjects(tc.clusters...).Build()
			m := &TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "m"}}
			m.Spec.ForProvider.ClusterRef = tc.ref
			m.Spec.ForProvider.ClusterSelector = &xpv2.Selector{MatchLabels: prod}
			err := m.ResolveReferences(context.Background(), c)
			if (err != nil) != tc.fails || m.ClusterName() != tc.want {
				t.Errorf("\n%s\nResolveReferences(...): %q, %v", tc.reason, m.ClusterName(), err)
			}
		})
	}
}

func TestResolveReferencesMatchesController(t *testing.T) {
	s := runtime.NewScheme()
	if err := SchemeBuilder.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	owned := func(name, by string) *TalosCluster {
		return &TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "example.org/v1", Kind: "Topology", Name: by, UID: "uid-of-topology", Controller: ptr.To(by == "mine"),
		}}}}
	}
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(owned("a", "mine"), owned("b", "theirs")).Build()
	m := &TalosMachine{ObjectMeta: owned("m", "mine").ObjectMeta}
	m.Spec.ForProvider.ClusterSelector = &xpv2.Selector{MatchControllerRef: ptr.To(true)}
	if err := m.ResolveReferences(context.Background(), c); err != nil || m.ClusterName() != "a" {
		t.Errorf("the cluster of the same composite: %q, %v", m.ClusterName(), err)
	}
}
