package topology

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// A tester is a test, or a case of a property.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// A core does with a response what Crossplane's core does: it deletes what is observed and not desired, refers to what is
// desired, and applies it. Objects live by their name within the topology.
type core struct {
	t       tester
	xr      *unstructured.Unstructured
	objects map[string]*unstructured.Unstructured
	refs    []string
	// blind is true while Crossplane cannot look for what the function requires.
	blind bool
	// connection is what the cluster published.
	connection map[string][]byte
	// req and rsp are the last request, with what the function requires, and its answer.
	req *fnv1.RunFunctionRequest
	rsp *fnv1.RunFunctionResponse
}

func newCore(t tester) *core {
	xr := &unstructured.Unstructured{Object: map[string]any{}}
	xr.SetAPIVersion("topology.ichor.maesh.dev/v1alpha1")
	xr.SetKind("TalosTopology")
	xr.SetName("prod")
	xr.SetNamespace("default")
	xr.SetUID("uid-of-the-topology")
	return &core{t: t, xr: xr, objects: map[string]*unstructured.Unstructured{}}
}

// request for the function, as it is before what it requires was looked for.
func (c *core) request() *fnv1.RunFunctionRequest {
	req := &fnv1.RunFunctionRequest{
		Meta: &fnv1.RequestMeta{Tag: "t"},
		Observed: &fnv1.State{
			Composite: &fnv1.Resource{Resource: toStruct(c.t, c.xr)},
			Resources: map[string]*fnv1.Resource{},
		},
	}
	for _, name := range c.refs {
		if o, there := c.objects[name]; there {
			r := &fnv1.Resource{Resource: toStruct(c.t, o)}
			if name == nameCluster {
				r.ConnectionDetails = c.connection
			}
			req.Observed.Resources[name] = r
		}
	}
	return req
}

// run the function until it has what it requires.
func (c *core) run(req *fnv1.RunFunctionRequest) *fnv1.RunFunctionResponse {
	for range 5 {
		before := proto.Clone(req)
		rsp, err := NewFunction(logging.NewNopLogger()).RunFunction(context.Background(), req)
		if err != nil {
			c.t.Fatalf("the function failed: %v", err)
		}
		if !proto.Equal(before, req) {
			c.t.Fatal("the function changed its request")
		}
		if c.blind || fatal(rsp) != "" || len(rsp.GetRequirements().GetResources()) == len(req.GetRequiredResources()) {
			return rsp
		}
		req.RequiredResources = map[string]*fnv1.Resources{}
		for name, selector := range rsp.GetRequirements().GetResources() {
			req.RequiredResources[name] = c.find(selector)
		}
	}
	c.t.Fatal("the function is never content with what it requires")
	return nil
}

func (c *core) find(s *fnv1.ResourceSelector) *fnv1.Resources {
	found := &fnv1.Resources{}
	for _, name := range c.names() {
		o := c.objects[name]
		match := o.GetAPIVersion() == s.GetApiVersion() && o.GetKind() == s.GetKind() && o.GetNamespace() == s.GetNamespace()
		for key, value := range s.GetMatchLabels().GetLabels() {
			match = match && o.GetLabels()[key] == value
		}
		if match {
			found.Items = append(found.Items, &fnv1.Resource{Resource: toStruct(c.t, o)})
		}
	}
	return found
}

// pass is one reconcile of the topology. It returns what changed, one change a line.
func (c *core) pass() []string {
	c.req = c.request()
	rsp := c.run(c.req)
	c.rsp = rsp
	if message := fatal(rsp); message != "" {
		return []string{"fatal: " + message}
	}
	var changes []string
	desired := rsp.GetDesired().GetResources()
	for _, name := range c.refs {
		if o, there := c.objects[name]; there && desired[name] == nil {
			changes = append(changes, c.remove(name, o))
		}
	}
	c.refs = c.refs[:0]
	for name := range desired {
		c.refs = append(c.refs, name)
	}
	slices.Sort(c.refs)
	for _, name := range c.refs {
		if change := c.apply(name, desired[name].GetResource()); change != "" {
			changes = append(changes, change)
		}
	}
	return changes
}

// remove does what DELETE does: a machine stays until the provider is done with it.
func (c *core) remove(name string, o *unstructured.Unstructured) string {
	if o.GetKind() != v1alpha1.TalosMachineKind {
		delete(c.objects, name)
		return "- " + o.GetKind() + " " + o.GetName()
	}
	if o.GetDeletionTimestamp() == nil && o.GetAnnotations()[v1alpha1.AnnotationAllowDelete] != "true" {
		c.t.Errorf("%s was dropped without permission", name)
	}
	o.SetDeletionTimestamp(ptr.To(metav1.Unix(1, 0)))
	return "- " + o.GetKind() + " " + o.GetName()
}

// apply does what server-side apply does with one owner: what was desired before and is not any more goes.
func (c *core) apply(name string, s *structpb.Struct) string {
	want := &unstructured.Unstructured{Object: s.AsMap()}
	annotations := want.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotationResourceName] = name
	want.SetAnnotations(annotations)
	want.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: c.xr.GetAPIVersion(), Kind: c.xr.GetKind(), Name: c.xr.GetName(), UID: c.xr.GetUID(), Controller: ptr.To(true),
	}})
	before, there := c.objects[name]
	c.objects[name] = want
	if !there {
		want.SetUID(types.UID("uid-of-" + name))
		return "+ " + want.GetKind() + " " + want.GetName()
	}
	want.SetUID(before.GetUID())
	want.SetDeletionTimestamp(before.GetDeletionTimestamp())
	if status, ok := before.Object["status"]; ok {
		want.Object["status"] = status
	}
	return difference(before, want)
}

// difference in what matters to a story: the permission, and the spec.
func difference(before, want *unstructured.Unstructured) string {
	was, is := before.GetAnnotations()[v1alpha1.AnnotationAllowDelete], want.GetAnnotations()[v1alpha1.AnnotationAllowDelete]
	var parts []string
	if was != is {
		parts = append(parts, fmt.Sprintf("allow-delete=%q", is))
	}
	if !proto.Equal(mustStruct(before.Object["spec"]), mustStruct(want.Object["spec"])) {
		parts = append(parts, "spec")
	}
	if len(parts) == 0 {
		return ""
	}
	return "~ " + want.GetKind() + " " + want.GetName() + " " + strings.Join(parts, " ")
}

func (c *core) names() []string {
	names := make([]string, 0, len(c.objects))
	for name := range c.objects {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// machines of the topology that there are.
func (c *core) machines() []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, name := range c.names() {
		if c.objects[name].GetKind() == v1alpha1.TalosMachineKind {
			out = append(out, c.objects[name])
		}
	}
	return out
}

func fatal(rsp *fnv1.RunFunctionResponse) string {
	for _, r := range rsp.GetResults() {
		if r.GetSeverity() == fnv1.Severity_SEVERITY_FATAL {
			return r.GetMessage()
		}
	}
	return ""
}

func toStruct(t tester, u *unstructured.Unstructured) *structpb.Struct {
	t.Helper()
	raw, err := u.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	s := &structpb.Struct{}
	if err := s.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	return s
}

func mustStruct(o any) *structpb.Value {
	v, err := structpb.NewValue(o)
	if err != nil {
		panic(err)
	}
	return v
}

func yamlOf(t tester, m json.Marshaler) string {
	t.Helper()
	raw, err := m.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	out, err := yaml.JSONToYAML(raw)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
