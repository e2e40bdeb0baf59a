package machineconfig

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
)

// Roles of a machine.
const (
	RoleControlPlane = "controlplane"
	RoleWorker       = "worker"
)

// Input is what the configuration of a machine is rendered from.
type Input struct {
	// Bundle of the cluster.
	Bundle *Bundle
	// ClusterName, for people.
	ClusterName string
	// Endpoint is the https URL of the Kubernetes API.
	Endpoint string
	// KubernetesVersion that is declared, such as v1.35.4.
	KubernetesVersion string
	// TalosVersion that is declared, such as v1.13.9.
	TalosVersion string
	// ContractVersion is the version of Talos that the machine runs; empty if it is not known. What is rendered suits the
	// older of this and TalosVersion: a machine refuses fields that it does not know.
	ContractVersion string
	// Role: controlplane or worker.
	Role string
	// Hostname of the machine.
	Hostname string
	// InstallDisk is the device path of the disk that Talos is installed on, such as /dev/sda.
	InstallDisk string
	// InstallDiskSelector selects that disk instead.
	InstallDiskSelector *DiskSelector
	// InstallImage is the whole reference of the installer image.
	InstallImage string
	// CertSANs are further names and addresses of the Kubernetes API and the Talos API.
	CertSANs []string
	// Network of the cluster.
	Network Network
	// NodeLabels and NodeAnnotations of the Node.
	NodeLabels, NodeAnnotations map[string]string
	// NodeTaints of the Node. Those of a worker take effect when its Node registers.
	NodeTaints []Taint
	// Patches in the order in which they apply.
	Patches []Patch
}

// A DiskSelector is what is known of a disk: every field that is set must match.
type DiskSelector struct {
	// Size is a condition such as ">= 100GB".
	Size string
	// Model, Serial, WWID and BusPath may hold `*`.
	Model, Serial, WWID, BusPath string
	// Type: ssd, hdd, nvme or sd.
	Type string
}

// Network of a cluster. What is empty is Talos's own default.
type Network struct {
	// PodCIDRs and ServiceCIDRs such as 10.244.0.0/16.
	PodCIDRs, ServiceCIDRs []string
	// DNSDomain such as cluster.local.
	DNSDomain string
	// CNI: flannel or none.
	CNI string
}

// A Taint of a Node.
type Taint struct {
	Key, Value, Effect string
}

// A Patch changes a configuration: a strategic merge patch, or a list of JSON 6902 operations.
type Patch struct {
	// Name of the field that it comes from, such as spec.forProvider.configPatches[1].
	Name string
	// Data of the patch in YAML or JSON.
	Data []byte
}

// A FieldError says that a declared value cannot be used.
type FieldError struct {
	// Field as it is called in the declaration, such as versions.talos.
	Field string
	// Value of the field. It is never a secret.
	Value string
	// Problem as a sentence without its end.
	Problem string
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("cannot use %s %q: %s", e.Field, e.Value, e.Problem)
}

// A PatchError says that a patch cannot be used. It shows nothing of what the patch sets.
type PatchError struct {
	// Name of the field that the patch comes from.
	Name string
	// Problem as a sentence without its end.
	Problem string
}

func (e *PatchError) Error() string { return fmt.Sprintf("cannot use %s: %s", e.Name, e.Problem) }

var (
	hostname          = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	domain            = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	kubernetesVersion = regexp.MustCompile(`^v?\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)
)

// check returns an error that names the first field that cannot be used.
func (in *Input) check() error {
	bad := func(field, value, problem string) error {
		return &FieldError{Field: field, Value: value, Problem: problem}
	}
	switch u, err := url.Parse(in.Endpoint); {
	case in.Bundle == nil:
		return bad("secrets bundle", "", "there is none")
	case in.ClusterName == "":
		return bad("cluster name", in.ClusterName, "it must not be empty")
	case err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Port() == "":
		return bad("endpoint", in.Endpoint, "it must be an https URL with host and port, such as https://192.0.2.10:6443")
	case in.Role != RoleControlPlane && in.Role != RoleWorker:
		return bad("role", in.Role, "it must be controlplane or worker")
	case len(in.Hostname) > 63 || !hostname.MatchString(in.Hostname):
		return bad("hostname", in.Hostname, "it must be one label of a host name: at most 63 lower-case letters, digits and dashes")
	case in.InstallImage == "":
		return bad("installer image", in.InstallImage, "it must not be empty")
	case (in.InstallDisk == "") == (in.InstallDiskSelector == nil):
		return bad("install.disk", in.InstallDisk, "exactly one of install.disk and install.diskSelector must be set")
	case in.InstallDiskSelector != nil && *in.InstallDiskSelector == DiskSelector{}:
		return bad("install.diskSelector", "", "it must not be empty, or it would select any disk")
	}
	if err := in.Network.check(); err != nil {
		return err
	}
	return in.checkTaints()
}

func (n Network) check() error {
	if err := checkCIDRs("network.podCIDRs", n.PodCIDRs); err != nil {
		return err
	}
	if err := checkCIDRs("network.serviceCIDRs", n.ServiceCIDRs); err != nil {
		return err
	}
	if n.DNSDomain != "" && !domain.MatchString(n.DNSDomain) {
		return &FieldError{Field: "network.dnsDomain", Value: n.DNSDomain, Problem: "it must be a domain name such as cluster.local"}
	}
	if n.CNI != "" && n.CNI != "flannel" && n.CNI != "none" {
		return &FieldError{Field: "network.cni", Value: n.CNI, Problem: "it must be flannel or none"}
	}
	return nil
}

func checkCIDRs(field string, all []string) error {
	for i, c := range all {
		if p, err := netip.ParsePrefix(c); err != nil || p != p.Masked() {
			return &FieldError{Field: fmt.Sprintf("%s[%d]", field, i), Value: c, Problem: "it must be a CIDR such as 10.244.0.0/16"}
		}
	}
	return nil
}

// checkTaints refuses what Talos would drop without a word.
func (in *Input) checkTaints() error {
	seen := map[string]bool{}
	for i, t := range in.NodeTaints {
		field := fmt.Sprintf("node.taints[%d]", i)
		switch t.Effect {
		case "NoSchedule", "PreferNoSchedule", "NoExecute":
		default:
			return &FieldError{Field: field + ".effect", Value: t.Effect, Problem: "it must be NoSchedule, PreferNoSchedule or NoExecute"}
		}
		id := t.Key
		if in.Role == RoleWorker {
			id += ":" + t.Effect
		}
		if t.Key == "" || seen[id] {
			return &FieldError{Field: field + ".key", Value: t.Key, Problem: "it must not be empty, and Talos keeps one taint for each key"}
		}
		seen[id] = true
	}
	return nil
}

// contract is what to render: for the older of the declared and the running version.
func (in *Input) contract() (*config.VersionContract, error) {
	c, err := contractOf("versions.talos", in.TalosVersion)
	if err != nil || in.ContractVersion == "" {
		return c, err
	}
	running, err := contractOf("running version of Talos", in.ContractVersion)
	if err != nil {
		return nil, err
	}
	if c.Greater(running) {
		return running, nil
	}
	return c, nil
}

// kubernetes is the declared version as images have it, without its v.
func (in *Input) kubernetes() (string, error) {
	if !kubernetesVersion.MatchString(in.KubernetesVersion) {
		return "", &FieldError{Field: "versions.kubernetes", Value: in.KubernetesVersion, Problem: "it is not a version of Kubernetes such as v1.35.4"}
	}
	return strings.TrimPrefix(in.KubernetesVersion, "v"), nil
}
