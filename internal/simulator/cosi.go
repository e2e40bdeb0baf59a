package simulator

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	metaspec "github.com/cosi-project/runtime/pkg/resource/meta/spec"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	"github.com/cosi-project/runtime/pkg/state/registry"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/cri"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/files"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/kubespan"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/perf"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	"github.com/siderolabs/talos/pkg/machinery/resources/security"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// namespaces are the ones that Talos registers, with what `talosctl get namespaces` would tell of them.
var namespaces = map[resource.Namespace]string{
	v1alpha1.NamespaceName:        "Machine state",
	cluster.NamespaceName:         "Cluster members",
	cluster.RawNamespaceName:      "Cluster members before merging",
	config.NamespaceName:          "Machine configuration",
	etcd.NamespaceName:            "etcd",
	files.NamespaceName:           "Files",
	hardware.NamespaceName:        "Hardware",
	k8s.NamespaceName:             "Kubernetes",
	k8s.ControlPlaneNamespaceName: "Kubernetes control plane",
	kubespan.NamespaceName:        "KubeSpan",
	network.NamespaceName:         "Network",
	network.ConfigNamespaceName:   "Network configuration",
	cri.NamespaceName:             "Container runtime",
	secrets.NamespaceName:         "Secrets",
	security.NamespaceName:        "Security",
	perf.NamespaceName:            "Performance",
}

// definitions holds the namespaces and resource definitions. They are the same for every machine, so all share one copy:
// five hundred machines would otherwise hold seventy thousand of them.
var definitions = sync.OnceValues(buildDefinitions)

type definitionSet struct {
	meta        state.CoreState
	namespaces  map[resource.Namespace]bool
	sensitivity map[string]metaspec.Sensitivity // by lower-case type
}

func buildDefinitions() (*definitionSet, error) {
	ctx := context.Background()
	d := &definitionSet{
		meta:        inmem.Build(meta.NamespaceName),
		namespaces:  map[resource.Namespace]bool{},
		sensitivity: map[string]metaspec.Sensitivity{},
	}
	st := state.WrapCore(d.meta)

	nr := registry.NewNamespaceRegistry(st)
	if err := nr.RegisterDefault(ctx); err != nil {
		return nil, fmt.Errorf("cannot register namespaces: %w", err)
	}
	for ns, doc := range namespaces {
		if err := nr.Register(ctx, ns, doc); err != nil {
			return nil, fmt.Errorf("cannot register namespace %q: %w", ns, err)
		}
	}
	rr := registry.NewResourceRegistry(st)
	if err := rr.RegisterDefault(ctx); err != nil {
		return nil, fmt.Errorf("cannot register resource types: %w", err)
	}
	for _, r := range resourceTypes() {
		if err := rr.Register(ctx, r); err != nil {
			return nil, fmt.Errorf("cannot register resource type: %w", err)
		}
	}
	return d, d.index(ctx, st)
}

// index copies what the access policy asks for on every call out of the state.
func (d *definitionSet) index(ctx context.Context, st state.State) error {
	nss, err := safe.StateListAll[*meta.Namespace](ctx, st)
	if err != nil {
		return fmt.Errorf("cannot list namespaces: %w", err)
	}
	for ns := range nss.All() {
		d.namespaces[ns.Metadata().ID()] = true
	}
	rds, err := safe.StateListAll[*meta.ResourceDefinition](ctx, st)
	if err != nil {
		return fmt.Errorf("cannot list resource definitions: %w", err)
	}
	for rd := range rds.All() {
		d.sensitivity[rd.Metadata().ID()] = rd.TypedSpec().Sensitivity
	}
	return nil
}

// newResources makes the resource state of one boot. It is empty but for the definitions.
func newResources(d *definitionSet) state.State {
	return state.WrapCore(namespaced.NewState(func(ns resource.Namespace) state.CoreState {
		if ns == meta.NamespaceName {
			return d.meta
		}
		return inmem.Build(ns)
	}))
}

// accessPolicy is Talos's: nobody writes, unknown types and namespaces are refused, secrets are for admins.
func (d *definitionSet) accessPolicy(ctx context.Context, access state.Access) error {
	if !access.Verb.Readonly() {
		return status.Error(codes.PermissionDenied, "write access is not allowed")
	}
	sensitivity, ok := d.sensitivity[strings.ToLower(access.ResourceType)]
	if !ok {
		return status.Errorf(codes.PermissionDenied, "resource type %q is not supported", access.ResourceType)
	}
	if sensitivity == meta.Sensitive && !rolesOf(ctx).Includes(role.Admin) {
		return errNotAuthorized
	}
	if !d.namespaces[access.ResourceNamespace] {
		return status.Errorf(codes.PermissionDenied, "namespace %q is not supported", access.ResourceNamespace)
	}
	return nil
}
