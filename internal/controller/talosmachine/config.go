package talosmachine

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/configchange"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/machineconfig"
)

// render returns the configuration that is declared for a machine that runs the given version of Talos.
func (e *external) render(ctx context.Context, mg *v1alpha1.TalosMachine, running facts.Known[string]) ([]byte, error) {
	bundle := e.doors.Bundle()
	if bundle == nil {
		return nil, fmt.Errorf("cannot render the configuration of %q: the provider does not have the PKI of TalosCluster %q", mg.GetName(), e.cluster.GetName())
	}
	patches, err := e.patches(ctx, mg)
	if err != nil {
		return nil, err
	}
	in := e.input(mg)
	in.Bundle, in.Patches = bundle, patches
	in.ContractVersion, _ = running.Get()
	config, err := machineconfig.Render(in)
	return config, errors.Wrapf(err, "cannot render the configuration of %q", mg.GetName())
}

// input is what the two objects say.
func (e *external) input(mg *v1alpha1.TalosMachine) machineconfig.Input {
	c, m := e.cluster.Spec.ForProvider, mg.Spec.ForProvider
	in := machineconfig.Input{
		ClusterName:       e.cluster.GetName(),
		Endpoint:          c.Endpoint,
		KubernetesVersion: c.Versions.Kubernetes,
		TalosVersion:      c.Versions.Talos,
		Role:              string(m.Role),
		Hostname:          mg.Hostname(),
		InstallDisk:       m.Install.Disk,
		InstallImage:      e.installImage(c),
		CertSANs:          certSANs(c.CertSANs, m.Address),
		NodeLabels:        m.Node.Labels,
		NodeAnnotations:   m.Node.Annotations,
	}
	if d := m.Install.DiskSelector; d != nil {
		in.InstallDiskSelector = &machineconfig.DiskSelector{
			Size: d.Size, Model: d.Model, Serial: d.Serial, WWID: d.WWID, BusPath: d.BusPath, Type: d.Type,
		}
	}
	if n := c.Network; n != nil {
		in.Network = machineconfig.Network{PodCIDRs: n.PodCIDRs, ServiceCIDRs: n.ServiceCIDRs, DNSDomain: n.DNSDomain, CNI: n.CNI}
	}
	for _, t := range m.Node.Taints {
		in.NodeTaints = append(in.NodeTaints, machineconfig.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	return in
}

func (e *external) installImage(c v1alpha1.TalosClusterParameters) string {
	i := c.Installer
	if i == nil {
		i = &v1alpha1.Installer{}
	}
	return machineconfig.InstallImage(c.Versions.Talos, i.Schematic, cmp.Or(i.Factory, e.doors.ImageFactory()), i.Image)
}

// certSANs are the declared names and the address at which the machine is asked. Talos knows its own addresses, but
// neither a name for them nor an address that is translated on the way: without it the machine could not be asked again.
func certSANs(declared []string, address string) []string {
	host := address
	if h, _, err := net.SplitHostPort(address); err == nil {
		host = h
	}
	if slices.Contains(declared, host) {
		return declared
	}
	return append(slices.Clone(declared), host)
}

// compare says how what the machine runs, and what is on its disk, compare to what is declared. It computes on this side:
// a dry run would change the machine, by cancelling the rollback of a configuration that is being tried.
func (e *external) compare(ctx context.Context, mg *v1alpha1.TalosMachine) error {
	actual, ok := e.seen.Config.Get()
	switch unknown := (configchange.Config{BootID: e.seen.Live.BootID}); {
	case !ok:
		unknown.Active = facts.Unknown[bool](e.seen.Config.Why())
		e.seen.config = unknown
		return nil
	case e.doors.Bundle() == nil:
		unknown.Active = facts.Unknown[bool](fmt.Sprintf("the provider does not have the PKI of TalosCluster %q", e.cluster.GetName()))
		e.seen.config = unknown
		return nil
	}
	desired, err := e.render(ctx, mg, e.seen.Live.TalosVersion)
	if err != nil {
		return err
	}
	active, err := machineconfig.Compare(desired, actual.Active)
	if err != nil {
		return errors.Wrap(err, "cannot compare the running configuration")
	}
	e.seen.desired = desired
	e.seen.config = configchange.Config{
		BootID:      e.seen.Live.BootID,
		Active:      facts.Of(active.Equal),
		Persistent:  facts.Unknown[bool]("the machine tells of no configuration on its disk"),
		NeedsReboot: known(active.NeedsReboot),
	}
	mg.Status.AtProvider.Config.Diff = active.Diff
	if len(actual.Persistent) == 0 {
		return nil
	}
	persistent, err := machineconfig.Compare(desired, actual.Persistent)
	if err != nil {
		return errors.Wrap(err, "cannot compare the configuration on disk")
	}
	e.seen.config.Persistent = facts.Of(persistent.Equal)
	return nil
}

// known is what machineconfig's answer means to decide.
func known(a machineconfig.Answer) facts.Known[bool] {
	switch a {
	case machineconfig.Yes:
		return facts.Of(true)
	case machineconfig.No:
		return facts.Of(false)
	case machineconfig.Unknown:
	}
	return facts.Unknown[bool]("it is not known whether Talos can change this without a reboot")
}

// patches collects the patches of a machine in the order in which they apply: those of its cluster, then its own. Each is
// named by the field that it is in, so that an error names the line that a person has to change.
func (e *external) patches(ctx context.Context, mg *v1alpha1.TalosMachine) ([]machineconfig.Patch, error) {
	var all []machineconfig.Patch
	for i, p := range e.cluster.Spec.ForProvider.ConfigPatches {
		if !applies(p.Scope, mg.Spec.ForProvider.Role) {
			continue
		}
		patch, err := e.patch(ctx, mg.GetNamespace(), fmt.Sprintf("spec.forProvider.configPatches[%d] of TalosCluster %q", i, e.cluster.GetName()), p.ConfigPatch)
		if err != nil {
			return nil, err
		}
		all = append(all, patch)
	}
	for i, p := range mg.Spec.ForProvider.ConfigPatches {
		patch, err := e.patch(ctx, mg.GetNamespace(), fmt.Sprintf("spec.forProvider.configPatches[%d]", i), p)
		if err != nil {
			return nil, err
		}
		all = append(all, patch)
	}
	return all, nil
}

// patch reads one patch. Its Secret is read uncached: the provider does not cache Secrets.
func (e *external) patch(ctx context.Context, namespace, name string, p v1alpha1.ConfigPatch) (machineconfig.Patch, error) {
	if p.SecretKeyRef == nil {
		return machineconfig.Patch{Name: name, Data: []byte(p.Inline)}, nil
	}
	data, err := e.secretValue(ctx, namespace, *p.SecretKeyRef)
	return machineconfig.Patch{Name: name, Data: data}, errors.Wrapf(err, "cannot read %s", name)
}

func (e *external) secretValue(ctx context.Context, namespace string, ref xpv2.LocalSecretKeySelector) ([]byte, error) {
	s := &corev1.Secret{}
	if err := e.reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: ref.Name}, s); err != nil {
		return nil, errors.Wrapf(err, "cannot get Secret %q", ref.Name)
	}
	data, ok := s.Data[ref.Key]
	if !ok {
		return nil, fmt.Errorf("there is no key %q in Secret %q", ref.Key, ref.Name)
	}
	return data, nil
}

// applies tells whether a patch of the cluster is meant for machines of a role.
func applies(s v1alpha1.PatchScope, r v1alpha1.MachineRole) bool {
	switch s {
	case v1alpha1.PatchScopeControlPlane:
		return r == v1alpha1.RoleControlPlane
	case v1alpha1.PatchScopeWorker:
		return r == v1alpha1.RoleWorker
	case v1alpha1.PatchScopeAll, "":
		return true
	}
	return false
}
