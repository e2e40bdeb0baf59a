package topology

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"google.golang.org/protobuf/types/known/structpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	topology "github.com/maesh/provider-ichor/apis/topology/v1alpha1"
	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// Names of composed resources within the topology. They are what ties an object to its place in the desired state, so they
// must never change.
const (
	nameCluster    = "cluster"
	nameConnection = "connection"
	nameGuard      = "deletion-guard"
	nameClaimGuard = "claim-deletion-guard"
	prefixMachine  = "machine-"

	// annotationResourceName is where Crossplane writes the name of a composed resource.
	annotationResourceName = "crossplane.io/composition-resource-name"

	// requiredMachines is the requirement under which Crossplane looks for every TalosMachine of the topology.
	requiredMachines = "machines"
)

// An xr is what is read of a topology, whichever of its kinds it has.
type xr struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Spec            struct {
		topology.TalosTopologySpec `json:",inline"`
		ClaimRef                   *struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Name       string `json:"name"`
			Namespace  string `json:"namespace"`
		} `json:"claimRef"`
	} `json:"spec"`
}

// Parse a request. An error says what is wrong with what is declared, or with what was observed: nothing may be changed then.
func Parse(req *fnv1.RunFunctionRequest) (Facts, error) {
	x := &xr{}
	if err := into(req.GetObserved().GetComposite().GetResource(), x); err != nil {
		return Facts{}, fmt.Errorf("cannot read the topology: %w", err)
	}
	owner, err := ownerOf(x)
	if err != nil {
		return Facts{}, err
	}
	f := Facts{Owner: owner, Spec: x.Spec.TalosTopologySpec, Guards: map[string]Condition{}}
	for name, r := range req.GetObserved().GetResources() {
		if err := f.observe(name, r); err != nil {
			return Facts{}, err
		}
	}
	if err := f.complete(req); err != nil {
		return Facts{}, err
	}
	slices.SortFunc(f.Machines, func(a, b Machine) int { return strings.Compare(a.Name, b.Name) })
	f.Listed = list(f.Spec)
	return f, f.check()
}

// ownerOf the composed resources.
func ownerOf(x *xr) (Owner, error) {
	o := Owner{
		APIVersion:  x.APIVersion,
		Kind:        x.Kind,
		Name:        x.Metadata.Name,
		UID:         string(x.Metadata.UID),
		Namespace:   x.Metadata.Namespace,
		AllowDelete: x.Metadata.Annotations[v1alpha1.AnnotationAllowDelete] == "true",
	}
	if ref := x.Spec.ClaimRef; ref != nil {
		o.Claim, o.ClaimAPIVersion, o.ClaimKind, o.Namespace = ref.Name, ref.APIVersion, ref.Kind, ref.Namespace
	}
	switch {
	case o.Name == "":
		return o, fmt.Errorf("the topology has no metadata.name")
	case o.Namespace == "":
		return o, fmt.Errorf("a %s without a claim has no namespace to compose a cluster in: create a %s, or a %s, instead",
			o.Kind, topology.KindClaim, topology.KindTopology)
	}
	return o, nil
}

// observe one composed resource. Those of other functions are none of ours.
func (f *Facts) observe(name string, r *fnv1.Resource) error {
	machine, isMachine := strings.CutPrefix(name, prefixMachine)
	switch {
	case name == nameCluster:
		return f.observeCluster(r)
	case name == nameConnection:
		return f.observeSecret(r)
	case name == nameGuard || name == nameClaimGuard:
		g := &guard{}
		if err := into(r.GetResource(), g); err != nil {
			return fmt.Errorf("cannot read the composed resource %q: %w", name, err)
		}
		f.Guards[name] = conditionOf(g, xpv2.TypeReady)
	case isMachine:
		m, err := machineOf(machine, r.GetResource())
		if err != nil {
			return err
		}
		m.Referenced = true
		f.Machines = append(f.Machines, m)
	}
	return nil
}

// complete the machines by those that Crossplane found by their label: what was dropped and is not gone. Whoever else wears
// the label is left alone.
func (f *Facts) complete(req *fnv1.RunFunctionRequest) error {
	found, ok := req.GetRequiredResources()[requiredMachines]
	f.Complete = ok
	for _, r := range found.GetItems() {
		u := &unstructured.Unstructured{Object: r.GetResource().AsMap()}
		name, isMachine := strings.CutPrefix(u.GetAnnotations()[annotationResourceName], prefixMachine)
		if _, referenced := f.machine(name); referenced || !isMachine || !controlledBy(u, f.Owner.UID) {
			continue
		}
		m, err := machineOf(name, r.GetResource())
		if err != nil {
			return err
		}
		f.Machines = append(f.Machines, m)
	}
	return nil
}

func controlledBy(u *unstructured.Unstructured, uid string) bool {
	c := metav1.GetControllerOf(u)
	return c != nil && uid != "" && string(c.UID) == uid
}

func (f *Facts) observeCluster(r *fnv1.Resource) error {
	c := &v1alpha1.TalosCluster{}
	if err := intoKind(r.GetResource(), c, nameCluster, v1alpha1.TalosClusterKind); err != nil {
		return err
	}
	f.Cluster = Cluster{
		Exists:        true,
		Deleting:      c.GetDeletionTimestamp() != nil,
		Bootstrapped:  c.GetAnnotations()[v1alpha1.AnnotationBootstrapped] != "" || c.Status.AtProvider.BootstrappedBy != "",
		Ready:         conditionOf(c, xpv2.TypeReady),
		Synced:        conditionOf(c, xpv2.TypeSynced),
		Transitioning: conditionOf(c, v1alpha1.TypeTransitioning),
		Approved:      c.Status.AtProvider.ControlPlanes.Approved,
		Connection:    r.GetConnectionDetails(),
	}
	if d := c.Status.AtProvider.Disruption; d != nil {
		f.Cluster.Disruption = fmt.Sprintf("%s, %s", d.Holder, d.For)
	}
	return nil
}

func (f *Facts) observeSecret(r *fnv1.Resource) error {
	data, _, err := unstructured.NestedStringMap(r.GetResource().AsMap(), "data")
	if err != nil {
		return fmt.Errorf("cannot read the connection Secret: %w", err)
	}
	f.Secret = map[string][]byte{}
	for key, value := range data {
		raw, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			return fmt.Errorf("cannot read the key %q of the connection Secret: it is not base64", key)
		}
		f.Secret[key] = raw
	}
	return nil
}

// machineOf reads a TalosMachine.
func machineOf(name string, s *structpb.Struct) (Machine, error) {
	o := &v1alpha1.TalosMachine{}
	if err := intoKind(s, o, prefixMachine+name, v1alpha1.TalosMachineKind); err != nil {
		return Machine{}, err
	}
	m := Machine{
		Name:      name,
		Role:      o.Spec.ForProvider.Role,
		Pool:      o.GetLabels()[topology.LabelPool],
		Approved:  o.Spec.ForProvider.Approved,
		Deleting:  o.GetDeletionTimestamp() != nil,
		Allowed:   o.GetAnnotations()[v1alpha1.AnnotationAllowDelete] == "true",
		Ready:     conditionOf(o, xpv2.TypeReady),
		Removable: conditionOf(o, v1alpha1.TypeRemovable),
		Removal:   conditionOf(o, v1alpha1.TypeRemoval),
	}
	if m.Role != v1alpha1.RoleControlPlane && m.Role != v1alpha1.RoleWorker {
		return Machine{}, fmt.Errorf("TalosMachine %q has the role %q", o.GetName(), m.Role)
	}
	silent := conditionOf(o, v1alpha1.TypeReachable).Status == corev1.ConditionFalse
	m.Joined = m.Ready.True() || (silent && o.Status.AtProvider.NodeName != "")
	m.ForProvider, _, _ = unstructured.NestedMap(s.AsMap(), "spec", "forProvider")
	m.ProviderConfigRef, _, _ = unstructured.NestedMap(s.AsMap(), "spec", "providerConfigRef")
	return m, nil
}

// intoKind reads an object of one of our kinds. A composed resource under a name of ours that is of another kind was made by
// somebody else, and must not be changed into ours.
func intoKind(s *structpb.Struct, o any, name, kind string) error {
	u := &unstructured.Unstructured{Object: s.AsMap()}
	if u.GetKind() != kind || !strings.HasPrefix(u.GetAPIVersion(), v1alpha1.Group+"/") {
		return fmt.Errorf("the composed resource %q is a %s of %s and not a %s of %s", name, u.GetKind(), u.GetAPIVersion(), kind, v1alpha1.Group)
	}
	if err := into(s, o); err != nil {
		return fmt.Errorf("cannot read %s %q: %w", kind, u.GetName(), err)
	}
	return nil
}

// into reads a JSON object into a Go value. What a newer version has added is left out of the value.
func into(s *structpb.Struct, o any) error {
	raw, err := json.Marshal(s.AsMap())
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, o)
}

// A conditioned object says something of itself.
type conditioned interface {
	GetGeneration() int64
	GetCondition(t xpv2.ConditionType) xpv2.Condition
}

// conditionOf an object. One that was observed at an older generation than the object has is stale.
func conditionOf(o conditioned, t xpv2.ConditionType) Condition {
	c := o.GetCondition(t)
	return Condition{Status: c.Status, Reason: c.Reason, Message: c.Message, Stale: c.ObservedGeneration < o.GetGeneration()}
}

// A guard is what is read of a Usage or a ClusterUsage.
type guard struct {
	metav1.ObjectMeta `json:"metadata"`

	Status xpv2.ConditionedStatus `json:"status"`
}

// GetCondition of this guard.
func (g *guard) GetCondition(t xpv2.ConditionType) xpv2.Condition { return g.Status.GetCondition(t) }
