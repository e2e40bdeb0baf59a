package v1alpha1

import (
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// A TalosTopology is a whole Kubernetes cluster on Talos machines: its endpoint, its versions, its control planes and its
// pools of workers.
//
// +kubebuilder:object:root=true
type TalosTopology struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   TalosTopologySpec   `json:"spec"`
	Status TalosTopologyStatus `json:"status,omitempty"`
}

// A TalosTopologySpec declares a cluster and its machines.
//
// +kubebuilder:validation:XValidation:rule="has(self.secretsRef) == has(oldSelf.secretsRef) && (!has(self.secretsRef) || self.secretsRef == oldSelf.secretsRef)",message="spec.secretsRef is immutable: the PKI of a cluster is decided when the cluster is created"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.network) || (has(self.network) && self.network == oldSelf.network)",message="spec.network is immutable once set: Kubernetes cannot change its networks in place"
type TalosTopologySpec struct {
	// Endpoint is the https URL of the Kubernetes API of the cluster, as nodes and users reach it: a virtual IP, a load
	// balancer or, for a single control plane, the machine itself. For example https://192.0.2.10:6443.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() == 'https' && url(self).getHostname() != '' && url(self).getPort() != ''",message="spec.endpoint must be an https URL with host and port, such as https://192.0.2.10:6443"
	Endpoint string `json:"endpoint"`

	// Versions of Talos and Kubernetes that the machines should run.
	Versions v1alpha1.ClusterVersions `json:"versions"`

	// ControlPlanes of the cluster.
	ControlPlanes ControlPlanes `json:"controlPlanes"`

	// Pools of workers. Default: none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Pools []Pool `json:"pools,omitempty"`

	// Removals names the machines that are to be removed from the cluster and left blank. A machine that merely vanishes
	// from its list is kept: only a name in here removes it. Removals are let through one at a time, in this order, when
	// the cluster is settled and what was added has joined. Whoever is named here is not created again, even if listed:
	// take the name out once its machine is gone.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=40
	Removals []string `json:"removals,omitempty"`

	// Installer names the image that installs Talos. Without it, the official installer of versions.talos is used.
	// +optional
	Installer *v1alpha1.Installer `json:"installer,omitempty"`

	// Network of the cluster. Immutable once set.
	// +optional
	Network *v1alpha1.ClusterNetwork `json:"network,omitempty"`

	// CertSANs are further names and addresses that the Kubernetes API and Talos API certificates are valid for.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	CertSANs []string `json:"certSANs,omitempty"`

	// SecretsRef names a Secret in the namespace of the cluster with an existing Talos secrets bundle, to import the PKI
	// of a cluster that exists already. Immutable. Without it a new PKI is created, once.
	// +optional
	SecretsRef *v1alpha1.SecretsBundleReference `json:"secretsRef,omitempty"`

	// ConfigPatches change the generated configuration of the machines in their scope, in order.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	ConfigPatches []v1alpha1.ClusterConfigPatch `json:"configPatches,omitempty"`

	// ProviderConfigRef names the ProviderConfig, in the namespace of the cluster, or the ClusterProviderConfig that the
	// cluster and its machines use. Default: the ClusterProviderConfig default.
	// +optional
	ProviderConfigRef *xpv2.ProviderConfigReference `json:"providerConfigRef,omitempty"`
}

// ControlPlanes are the machines that run etcd and the Kubernetes control plane.
//
// +kubebuilder:validation:XValidation:rule="has(self.install) || self.machines.all(m, has(m.install))",message="spec.controlPlanes.install must be set, or install of each machine"
type ControlPlanes struct {
	// Count of control planes that the cluster has when nothing is being replaced: 1, 3 or 5. To replace one, list the new
	// one beside it, and name the old one in removals: it goes when the new one has joined, and never before.
	// +kubebuilder:validation:Enum=1;3;5
	Count int `json:"count"`

	Settings `json:",inline"`

	// Machines are the control planes.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Machines []Machine `json:"machines"`
}

// A Pool is a set of workers with common settings.
//
// +kubebuilder:validation:XValidation:rule="has(self.install) || self.machines.all(m, has(m.install))",message="install of a pool must be set, or install of each of its machines"
type Pool struct {
	// Name of the pool. It becomes the label topology.ichor.maesh.dev/pool of its TalosMachines.
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	Settings `json:",inline"`

	// Machines of the pool.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=512
	Machines []Machine `json:"machines"`
}

// Settings of machines. Those of a machine win over those of its pool as a whole, but for node, whose labels, annotations
// and taints are added, and configPatches, which come after those of the pool.
type Settings struct {
	// Install says where Talos is installed.
	// +optional
	Install *v1alpha1.MachineInstall `json:"install,omitempty"`

	// Node is what the Kubernetes Nodes carry.
	// +optional
	Node *v1alpha1.MachineNode `json:"node,omitempty"`

	// ConfigPatches change the machine configuration, after those of the cluster, in order.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	ConfigPatches []v1alpha1.ConfigPatch `json:"configPatches,omitempty"`

	// Drain says how a Node is drained before a removal or a reboot.
	// +optional
	Drain *v1alpha1.MachineDrain `json:"drain,omitempty"`

	// Reset says what a removal wipes.
	// +optional
	Reset *v1alpha1.MachineReset `json:"reset,omitempty"`

	// Unreachable says what a removal does with a machine that does not answer.
	// +optional
	Unreachable *v1alpha1.MachineUnreachable `json:"unreachable,omitempty"`
}

// A Machine is one machine of the cluster.
type Machine struct {
	// Name of the machine within the topology, such as cp-1: unique over control planes and all pools. Its TalosMachine is
	// named after the topology and the machine, such as prod-cp-1.
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// Address of the machine's Talos API: an IP address or a host name, with a port if it is not 50000.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!self.contains('/') && !self.contains(' ')",message="address must be an IP address or host name, with a port if it is not 50000, such as 192.0.2.11"
	Address string `json:"address"`

	// Approved says that the machine may be given its configuration. Nothing is sent to a machine before it is true. It
	// cannot be taken back. Default: false.
	// +optional
	Approved bool `json:"approved,omitempty"`

	// Zone that the machine is in. It becomes the label topology.kubernetes.io/zone of its Node.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$`
	Zone string `json:"zone,omitempty"`

	// UUID pins the machine by its SMBIOS UUID.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`
	UUID string `json:"uuid,omitempty"`

	// MaintenanceFingerprint pins the certificate that the machine shows in maintenance mode.
	// +optional
	MaintenanceFingerprint string `json:"maintenanceFingerprint,omitempty"`

	// Hostname of the machine. Default: the name of its TalosMachine.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Hostname string `json:"hostname,omitempty"`

	Settings `json:",inline"`
}

// A TalosTopologyStatus is what is observed of a topology.
type TalosTopologyStatus struct {
	// Cluster is the name of the TalosCluster, in the namespace of the topology or of its claim.
	// +optional
	Cluster string `json:"cluster,omitempty"`

	// ControlPlanes counts the control planes that are composed.
	// +optional
	ControlPlanes Counts `json:"controlPlanes,omitempty"`

	// Workers counts the workers that are composed.
	// +optional
	Workers Counts `json:"workers,omitempty"`

	// Kept names the machines that are kept although they are not listed.
	// +optional
	// +listType=set
	Kept []string `json:"kept,omitempty"`

	// Removing is the name of the machine whose removal is let through now.
	// +optional
	Removing string `json:"removing,omitempty"`
}

// Counts of machines.
type Counts struct {
	// Composed is how many there are, with those that are kept.
	Composed int `json:"composed"`
	// Ready is how many of them are ready.
	Ready int `json:"ready"`
	// Summary is both, as ready/composed.
	Summary string `json:"summary"`
}
