package accidents

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// auditPolicy has the API server write down every request of the provider.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, users: [` + user + `]}
  - {level: None}
`

// role is all that the provider is granted, from the file that people apply.
func role(t *testing.T) *rbacv1.ClusterRole {
	t.Helper()
	data, err := os.ReadFile(root("cluster", "rbac", "clusterrole.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	r := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict(data, r); err != nil {
		t.Fatal(err)
	}
	return r
}

// grant gives the provider its role and nothing else.
func (w *world) grant() {
	w.t.Helper()
	r := role(w.t)
	w.must(w.Create(w.ctx, r))
	w.must(w.Create(w.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: r.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: r.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}))
}

// granted are the permissions of a role, as "verb resource.group".
func granted(r *rbacv1.ClusterRole) []string {
	var all []string
	for _, rule := range r.Rules {
		for _, group := range rule.APIGroups {
			for _, res := range rule.Resources {
				for _, verb := range rule.Verbs {
					all = append(all, permission(verb, res, group))
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

func permission(verb, res, group string) string {
	return strings.TrimSuffix(verb+" "+res+"."+group, ".")
}

// used are the permissions that the provider has asked for so far, and those of them that it did not have.
func (w *world) used() (all, forbidden []string) {
	w.t.Helper()
	file, err := os.Open(w.path("audit.log"))
	w.must(err)
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Verb      string
			ObjectRef *struct{ Resource, Subresource, APIGroup string }
			// Annotations say what the authorizer decided: other things forbid as well, such as the end of a namespace.
			Annotations map[string]string
		}
		w.must(json.Unmarshal(lines.Bytes(), &e))
		if e.ObjectRef == nil {
			continue // Discovery.
		}
		res := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			res += "/" + e.ObjectRef.Subresource
		}
		p := permission(e.Verb, res, e.ObjectRef.APIGroup)
		all = append(all, p)
		if e.Annotations["authorization.k8s.io/decision"] == "forbid" {
			forbidden = append(forbidden, p)
		}
	}
	w.must(lines.Err())
	slices.Sort(all)
	slices.Sort(forbidden)
	return slices.Compact(all), slices.Compact(forbidden)
}

// expectLeastPrivilege checks that the provider could do all that it tried, and may do nothing that it did not.
func (w *world) expectLeastPrivilege() {
	w.t.Helper()
	used, forbidden := w.used()
	if len(forbidden) > 0 {
		w.t.Errorf("the role does not grant what the provider needs: %q", forbidden)
	}
	// Before it watches for kinds, the provider's command asks whether it may do this to them as well.
	want := append(used, "get customresourcedefinitions.apiextensions.k8s.io")
	for _, p := range used {
		if what, watched := strings.CutPrefix(p, "watch "); watched {
			want = append(want, "list "+what) // API servers that do not stream lists are asked for them.
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(slices.Compact(want), granted(role(w.t))); diff != "" {
		w.t.Errorf("permissions: -needed, +granted:\n%s", diff)
	}
}

// TestCrossplaneGrantsEnough checks that nobody has to add anything to what Crossplane's RBAC manager grants a provider
// that declares safe-start, and that none of it comes from a wildcard.
func TestCrossplaneGrantsEnough(t *testing.T) {
	verbs := map[string][]string{
		v1alpha1.Group:         {"get", "list", "watch", "update", "patch", "create"}, // of every kind, and of its status
		"apiextensions.k8s.io": {"get", "list", "watch"},
	}
	whole := []string{" secrets", " configmaps", " events", " leases.coordination.k8s.io"} // every verb
	for _, rule := range role(t).Rules {
		if len(rule.ResourceNames)+len(rule.NonResourceURLs) > 0 || slices.Contains(slices.Concat(rule.Verbs, rule.Resources, rule.APIGroups), "*") {
			t.Errorf("%+v: nothing is granted by a wildcard or by name", rule)
		}
	}
	for _, p := range granted(role(t)) {
		verb, what, _ := strings.Cut(p, " ")
		_, group, _ := strings.Cut(what, ".")
		if !slices.Contains(whole, " "+what) && !slices.Contains(verbs[group], verb) {
			t.Errorf("Crossplane does not grant %q", p)
		}
	}
}
