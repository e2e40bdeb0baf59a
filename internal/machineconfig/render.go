package machineconfig

import (
	"errors"
	"fmt"
	"maps"

	coreconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"go.yaml.in/yaml/v4"
)

// Render returns the configuration of a machine. The same input gives the same bytes. Errors are of type *FieldError or
// *PatchError where a person can mend them, and hold no secret.
func Render(in Input) ([]byte, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	generated, err := in.generate()
	if err != nil {
		return nil, err
	}
	if err := validate(generated); err != nil {
		return nil, fmt.Errorf("cannot render the configuration of %q: %w", in.Hostname, err)
	}
	patched, err := in.patch(generated)
	if err != nil {
		return nil, err
	}
	return encode(patched)
}

func encode(c coreconfig.Encoder) ([]byte, error) {
	data, err := c.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return nil, fmt.Errorf("cannot encode a machine configuration%s", where(err))
	}
	return data, nil
}

// generate makes the configuration without patches.
func (in *Input) generate() (coreconfig.Provider, error) {
	contract, err := in.contract()
	if err != nil {
		return nil, err
	}
	kubernetes, err := in.kubernetes()
	if err != nil {
		return nil, err
	}
	options := []generate.Option{
		generate.WithSecretsBundle(in.Bundle.secrets),
		generate.WithVersionContract(contract),
		generate.WithInstallDisk(in.InstallDisk),
		generate.WithInstallImage(in.InstallImage),
		generate.WithAdditionalSubjectAltNames(in.CertSANs),
	}
	if in.Network.DNSDomain != "" {
		options = append(options, generate.WithDNSDomain(in.Network.DNSDomain))
	}
	if in.Network.CNI != "" {
		options = append(options, generate.WithClusterCNIConfig(&v1alpha1.CNIConfig{CNIName: in.Network.CNI}))
	}
	g, err := generate.NewInput(in.ClusterName, in.Endpoint, kubernetes, options...)
	if err != nil {
		return nil, fmt.Errorf("cannot render the configuration of %q: %w", in.Hostname, err)
	}
	if len(in.Network.PodCIDRs) > 0 {
		g.PodNet = in.Network.PodCIDRs
	}
	if len(in.Network.ServiceCIDRs) > 0 {
		g.ServiceNet = in.Network.ServiceCIDRs
	}
	made, err := g.Config(in.machineType())
	if err != nil {
		return nil, fmt.Errorf("cannot render the configuration of %q: %w", in.Hostname, err)
	}
	return in.complete(made)
}

func (in *Input) machineType() machine.Type {
	if in.Role == RoleControlPlane {
		return machine.TypeControlPlane
	}
	return machine.TypeWorker
}

// complete sets what the generator has no option for.
func (in *Input) complete(c coreconfig.Provider) (coreconfig.Provider, error) {
	var documents []config.Document
	named := false
	for _, d := range c.Clone().Documents() {
		switch d := d.(type) {
		case *v1alpha1.Config:
			if err := in.completeMain(d); err != nil {
				return nil, err
			}
		case *network.HostnameConfigV1Alpha1:
			d.ConfigAuto, d.ConfigHostname = nil, in.Hostname
			named = true
		}
		documents = append(documents, d)
	}
	whole, err := container.New(documents...)
	if err != nil {
		return nil, fmt.Errorf("cannot render the configuration of %q: %w", in.Hostname, err)
	}
	if named {
		return whole, nil
	}
	// Before version 1.12 the hostname is part of the main document.
	return whole.PatchV1Alpha1(func(c *v1alpha1.Config) error {
		if c.MachineConfig.MachineNetwork == nil { //nolint:staticcheck // The only place that an older Talos reads.
			c.MachineConfig.MachineNetwork = &v1alpha1.NetworkConfig{} //nolint:staticcheck // As above.
		}
		c.MachineConfig.MachineNetwork.NetworkHostname = in.Hostname //nolint:staticcheck // As above.
		return nil
	})
}

func (in *Input) completeMain(c *v1alpha1.Config) error {
	m := c.MachineConfig
	if s := in.InstallDiskSelector; s != nil {
		m.MachineInstall.InstallDiskSelector = &v1alpha1.InstallDiskSelector{
			Model: s.Model, Serial: s.Serial, WWID: s.WWID, BusPath: s.BusPath, Type: v1alpha1.InstallDiskType(s.Type),
		}
		if s.Size != "" {
			size := &v1alpha1.InstallDiskSizeMatcher{}
			if err := yaml.Unmarshal([]byte(fmt.Sprintf("%q", s.Size)), size); err != nil {
				return &FieldError{Field: "install.diskSelector.size", Value: s.Size, Problem: "it must be a condition such as >= 100GB"}
			}
			m.MachineInstall.InstallDiskSelector.Size = size
		}
	}
	m.MachineNodeLabels = joined(m.MachineNodeLabels, in.NodeLabels)
	m.MachineNodeAnnotations = joined(m.MachineNodeAnnotations, in.NodeAnnotations)
	in.taint(m)
	// The generator writes no encryption secret at all if a cluster that began with an older Talos has the older kind.
	if s := in.Bundle.secrets.Secrets; in.Role == RoleControlPlane && s.SecretboxEncryptionSecret == "" {
		c.ClusterConfig.ClusterAESCBCEncryptionSecret = s.AESCBCEncryptionSecret
	} else if in.Role == RoleControlPlane {
		c.ClusterConfig.ClusterSecretboxEncryptionSecret = s.SecretboxEncryptionSecret
	}
	return nil
}

// taint sets the taints of the Node. Kubernetes lets a worker set its own only when it registers.
func (in *Input) taint(m *v1alpha1.MachineConfig) {
	if len(in.NodeTaints) == 0 {
		return
	}
	if in.Role == RoleControlPlane {
		m.MachineNodeTaints = map[string]string{}
		for _, t := range in.NodeTaints {
			m.MachineNodeTaints[t.Key] = t.Value + ":" + t.Effect
		}
		return
	}
	var all []any
	for _, t := range in.NodeTaints {
		all = append(all, map[string]any{"key": t.Key, "value": t.Value, "effect": t.Effect})
	}
	m.MachineKubelet.KubeletExtraConfig = v1alpha1.Unstructured{Object: map[string]any{"registerWithTaints": all}}
}

func joined(a, b map[string]string) map[string]string {
	if len(a)+len(b) == 0 {
		return nil
	}
	all := map[string]string{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// metal is how Talos judges a configuration for a machine that it is installed on.
type metal struct{}

func (metal) String() string        { return "metal" }
func (metal) RequiresInstall() bool { return true }
func (metal) InContainer() bool     { return false }

// validate returns an error unless Talos would accept the configuration, as far as can be told without the machine. Its
// text is raw: it may hold what the configuration holds.
func validate(c coreconfig.Provider) error {
	if _, err := c.Validate(metal{}); err != nil {
		return errors.New(oneLine(err))
	}
	return nil
}
