package topology

import (
	"fmt"
	"maps"
	"slices"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	protection "github.com/crossplane/crossplane/apis/v2/protection/v1beta1"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"google.golang.org/protobuf/types/known/structpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	topology "github.com/maesh/provider-ichor/apis/topology/v1alpha1"
	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// secretType is that of every connection Secret of Crossplane.
const secretType corev1.SecretType = "connection.crossplane.io/v1alpha1"

// Render the objects of a plan, each under its name within the topology.
func Render(f Facts, p Plan) (map[string]*fnv1.Resource, error) {
	out := map[string]*fnv1.Resource{}
	objects := map[string]object{nameCluster: {cluster(f), f.Cluster.Ready.True()}}
	maps.Copy(objects, guards(f))
	if secret := connection(f); secret != nil {
		objects[nameConnection] = object{secret, f.Secret != nil}
	}
	for _, m := range p.Machines {
		if m.Listed != nil {
			objects[prefixMachine+m.Name] = object{listed(f, m), m.Ready()}
			continue
		}
		s, err := structpb.NewStruct(kept(f, m))
		if err != nil {
			return nil, fmt.Errorf("cannot keep TalosMachine %q as it is: %w", m.Name, err)
		}
		out[prefixMachine+m.Name] = &fnv1.Resource{Resource: s, Ready: ready(m.Ready())}
	}
	for name, o := range objects {
		s, err := structOf(o.object)
		if err != nil {
			return nil, fmt.Errorf("cannot render %q: %w", name, err)
		}
		out[name] = &fnv1.Resource{Resource: s, Ready: ready(o.ready)}
	}
	return out, nil
}

// An object and whether it is ready.
type object struct {
	object any
	ready  bool
}

func ready(is bool) fnv1.Ready {
	if is {
		return fnv1.Ready_READY_TRUE
	}
	return fnv1.Ready_READY_FALSE
}

func cluster(f Facts) *v1alpha1.TalosCluster {
	s := f.Spec
	return &v1alpha1.TalosCluster{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.TalosClusterKind},
		ObjectMeta: metav1.ObjectMeta{
			Name: f.Owner.Base(), Namespace: f.Owner.Namespace,
			Labels:      map[string]string{topology.LabelTopology: f.Owner.Base()},
			Annotations: permission(f.Owner.AllowDelete),
		},
		Spec: v1alpha1.TalosClusterSpec{
			ManagedResourceSpec: xpv2.ManagedResourceSpec{
				ProviderConfigReference:          s.ProviderConfigRef,
				WriteConnectionSecretToReference: &xpv2.LocalSecretReference{Name: f.Owner.Base() + "-cluster-connection"},
			},
			ForProvider: v1alpha1.TalosClusterParameters{
				Endpoint:      s.Endpoint,
				ControlPlane:  v1alpha1.ControlPlaneParameters{Count: s.ControlPlanes.Count},
				Versions:      s.Versions,
				Installer:     s.Installer,
				Network:       s.Network,
				CertSANs:      s.CertSANs,
				SecretsRef:    s.SecretsRef,
				ConfigPatches: s.ConfigPatches,
			},
		},
	}
}

// listed is a machine as it is declared.
func listed(f Facts, p Planned) *v1alpha1.TalosMachine {
	parameters := p.Listed.Parameters
	parameters.ClusterRef = &v1alpha1.ClusterReference{Name: f.Owner.Base()}
	return &v1alpha1.TalosMachine{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.TalosMachineKind},
		ObjectMeta: metav1.ObjectMeta{
			Name: machineName(f, p.Name), Namespace: f.Owner.Namespace,
			Labels:      labels(f, p.Listed.Pool),
			Annotations: permission(p.Allow),
		},
		Spec: v1alpha1.TalosMachineSpec{
			ManagedResourceSpec: xpv2.ManagedResourceSpec{ProviderConfigReference: f.Spec.ProviderConfigRef},
			ForProvider:         parameters,
		},
	}
}

// kept is a machine as it is, without what is not ours to say: its policies, its status, annotations of other people.
func kept(f Facts, p Planned) map[string]any {
	metadata := map[string]any{
		"name":      machineName(f, p.Name),
		"namespace": f.Owner.Namespace,
		"labels":    anyMap(labels(f, p.Seen.Pool)),
	}
	if annotations := permission(p.Allow); annotations != nil {
		metadata["annotations"] = anyMap(annotations)
	}
	spec := map[string]any{"forProvider": p.Seen.ForProvider}
	if len(p.Seen.ProviderConfigRef) > 0 {
		spec["providerConfigRef"] = p.Seen.ProviderConfigRef
	}
	return map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(),
		"kind":       v1alpha1.TalosMachineKind,
		"metadata":   metadata,
		"spec":       spec,
	}
}

func machineName(f Facts, name string) string { return f.Owner.Base() + "-" + name }

func labels(f Facts, pool string) map[string]string {
	l := map[string]string{topology.LabelTopology: f.Owner.Base()}
	if pool != "" {
		l[topology.LabelPool] = pool
	}
	return l
}

func permission(allow bool) map[string]string {
	if !allow {
		return nil
	}
	return map[string]string{v1alpha1.AnnotationAllowDelete: "true"}
}

// connection is the Secret with what the cluster published, for a topology without a claim: Crossplane publishes that of a
// claim itself. What was published once is kept while the cluster tells nothing.
func connection(f Facts) *corev1.Secret {
	data := details(f)
	if f.Owner.Claim != "" || (len(data) == 0 && f.Secret == nil) {
		return nil
	}
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Name: f.Owner.Base() + "-connection", Namespace: f.Owner.Namespace,
			Labels: map[string]string{topology.LabelTopology: f.Owner.Base()},
		},
		Type: secretType,
		Data: data,
	}
}

// details are what the cluster published, or had.
func details(f Facts) map[string][]byte {
	if len(f.Cluster.Connection) > 0 {
		return f.Cluster.Connection
	}
	return f.Secret
}

// guards protect the topology, and its claim, from being deleted until a person allows that. Crossplane drops a topology at
// once and leaves what it composed to the garbage collector: without a guard, a refused teardown would leave a running
// cluster without its topology.
func guards(f Facts) map[string]object {
	if f.Owner.AllowDelete {
		return nil
	}
	o := f.Owner
	_, seen := f.Guards[nameGuard]
	if o.Claim == "" {
		return map[string]object{nameGuard: {usage(f, o.Name, o.APIVersion, o.Kind), seen}}
	}
	_, claimSeen := f.Guards[nameClaimGuard]
	return map[string]object{
		nameClaimGuard: {usage(f, o.Claim, o.ClaimAPIVersion, o.ClaimKind), claimSeen},
		nameGuard: {&protection.ClusterUsage{
			TypeMeta:   metav1.TypeMeta{APIVersion: protection.SchemeGroupVersion.String(), Kind: protection.ClusterUsageKind},
			ObjectMeta: metav1.ObjectMeta{Name: o.Name + "-deletion-guard"},
			Spec: protection.ClusterUsageSpec{
				Of:     protection.Resource{APIVersion: o.APIVersion, Kind: o.Kind, ResourceRef: &protection.ResourceRef{Name: o.Name}},
				Reason: ptr.To(guardReason(o.ClaimKind, o.Claim)),
			},
		}, seen},
	}
}

func usage(f Facts, name, apiVersion, kind string) *protection.Usage {
	return &protection.Usage{
		TypeMeta:   metav1.TypeMeta{APIVersion: protection.SchemeGroupVersion.String(), Kind: protection.UsageKind},
		ObjectMeta: metav1.ObjectMeta{Name: f.Owner.Base() + "-deletion-guard", Namespace: f.Owner.Namespace},
		Spec: protection.UsageSpec{
			Of:     protection.NamespacedResource{APIVersion: apiVersion, Kind: kind, ResourceRef: &protection.NamespacedResourceRef{Name: name}},
			Reason: ptr.To(guardReason(kind, name)),
		},
	}
}

func guardReason(kind, name string) string {
	return fmt.Sprintf("It is a running Talos cluster. To take the whole cluster down and wipe its machines, annotate the %s %s with %s: \"true\" and delete it again",
		kind, name, v1alpha1.AnnotationAllowDelete)
}

// structOf turns a Go object into what Crossplane applies: only what is set, since it would own every empty value as well.
func structOf(o any) (*structpb.Struct, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	delete(m, "status")
	return structpb.NewStruct(withoutEmpty(m))
}

// withoutEmpty takes out what is null, an empty object or an empty list.
func withoutEmpty(m map[string]any) map[string]any {
	for key, value := range m {
		switch v := value.(type) {
		case nil:
			delete(m, key)
		case []any:
			if len(v) == 0 {
				delete(m, key)
			}
		case map[string]any:
			if len(withoutEmpty(v)) == 0 {
				delete(m, key)
			}
		}
	}
	return m
}

func anyMap(m map[string]string) map[string]any {
	out := make(map[string]any, len(m))
	for _, key := range slices.Collect(maps.Keys(m)) {
		out[key] = m[key]
	}
	return out
}
