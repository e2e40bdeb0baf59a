package v1alpha1

import (
	"reflect"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TalosClusterParameters are what a user declares of a Talos cluster.
//
// +kubebuilder:validation:XValidation:rule="has(self.secretsRef) == has(oldSelf.secretsRef) && (!has(self.secretsRef) || self.secretsRef == oldSelf.secretsRef)",messageExpression="'spec.forProvider.secretsRef is immutable and cannot become ' + (has(self.secretsRef) ? self.secretsRef.name + '/' + self.secretsRef.key : 'unset') + ': the PKI of a cluster is decided when the cluster is created; create another TalosCluster to use another one'",message="spec.forProvider.secretsRef is immutable: the PKI of a cluster is decided when the cluster is created; create another TalosCluster to use another one"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.network) || (has(self.network) && self.network == oldSelf.network)",message="spec.forProvider.network is immutable once set: Kubernetes cannot change its networks in place"
type TalosClusterParameters struct {
	// Endpoint is the https URL of the Kubernetes API of the cluster, as nodes and users reach it: a virtual IP, a load
	// balancer or, for a single control plane, the machine itself. For example https://192.0.2.10:6443.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() == 'https' && url(self).getHostname() != '' && url(self).getPort() != ''",messageExpression="'spec.forProvider.endpoint ' + self + ' must be an https URL with host and port, such as https://192.0.2.10:6443'",message="endpoint must be an https URL with host and port, such as https://192.0.2.10:6443"
	Endpoint string `json:"endpoint"`

	// ControlPlane says how many control planes the cluster has.
	ControlPlane ControlPlaneParameters `json:"controlPlane"`

	// Versions of Talos and Kubernetes that the machines should run.
	Versions ClusterVersions `json:"versions"`

	// Installer names the image that installs Talos. Without it, the official installer of versions.talos is used.
	// +optional
	Installer *Installer `json:"installer,omitempty"`

	// Network of the cluster. Immutable once set: Kubernetes cannot change it in place.
	// +optional
	Network *ClusterNetwork `json:"network,omitempty"`

	// CertSANs are further names and addresses that the Kubernetes API and Talos API certificates are valid for.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	CertSANs []string `json:"certSANs,omitempty"`

	// SecretsRef names a Secret in the same namespace with an existing Talos secrets bundle, to import the PKI of a
	// cluster that exists already. Immutable. Without it a new PKI is created, once.
	// +optional
	SecretsRef *SecretsBundleReference `json:"secretsRef,omitempty"`

	// ConfigPatches change the generated machine configuration, in order.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	ConfigPatches []ClusterConfigPatch `json:"configPatches,omitempty"`
}

// ControlPlaneParameters say how many control planes a cluster has.
type ControlPlaneParameters struct {
	// Count of control planes: 1, 3 or 5. Even counts have no more tolerance than the odd count below them. A removal
	// that would leave fewer approved control planes than this is refused, so a replacement is added first.
	// +kubebuilder:validation:Enum=1;3;5
	Count int `json:"count"`
}

// ClusterVersions are the versions that the machines of a cluster should run.
type ClusterVersions struct {
	// Talos version, such as v1.13.9.
	// +kubebuilder:validation:Pattern=`^v1\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`
	Talos string `json:"talos"`

	// Kubernetes version, such as v1.35.4.
	// +kubebuilder:validation:Pattern=`^v1\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`
	Kubernetes string `json:"kubernetes"`
}

// Installer names the image that installs Talos: whole, or as a schematic of an image factory.
//
// +kubebuilder:validation:XValidation:rule="has(self.image) != has(self.schematic)",message="exactly one of spec.forProvider.installer.image and spec.forProvider.installer.schematic must be set"
type Installer struct {
	// Image is the whole reference of the installer image, with its tag.
	// +optional
	Image string `json:"image,omitempty"`

	// Schematic is the ID of an image factory schematic: 64 hexadecimal digits.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	Schematic string `json:"schematic,omitempty"`

	// Factory is the host of the image factory. Default: that of the ProviderConfig, else factory.talos.dev.
	// +optional
	Factory string `json:"factory,omitempty"`
}

// ClusterNetwork is the network of a cluster.
type ClusterNetwork struct {
	// PodCIDRs are the address ranges of pods. Default: 10.244.0.0/16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="must be a CIDR such as 10.244.0.0/16"
	PodCIDRs []string `json:"podCIDRs,omitempty"`

	// ServiceCIDRs are the address ranges of Services. Default: 10.96.0.0/12.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="must be a CIDR such as 10.96.0.0/12"
	ServiceCIDRs []string `json:"serviceCIDRs,omitempty"`

	// DNSDomain of the cluster. Default: cluster.local.
	// +optional
	DNSDomain string `json:"dnsDomain,omitempty"`

	// CNI that Talos deploys: flannel (default) or none (bring your own).
	// +optional
	// +kubebuilder:validation:Enum=flannel;none
	CNI string `json:"cni,omitempty"`
}

// A SecretsBundleReference names a Talos secrets bundle (`talosctl gen secrets`) in a Secret of the same namespace.
type SecretsBundleReference struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// Key of the Secret whose value is the bundle in YAML. Default: secrets.yaml.
	// +optional
	// +kubebuilder:default="secrets.yaml"
	Key string `json:"key,omitempty"`
}

// PatchScope says to which machines of a cluster a patch applies.
// +kubebuilder:validation:Enum=All;ControlPlane;Worker
type PatchScope string

// Scopes of a patch.
const (
	// PatchScopeAll applies a patch to every machine.
	PatchScopeAll PatchScope = "All"
	// PatchScopeControlPlane applies a patch to control planes only.
	PatchScopeControlPlane PatchScope = "ControlPlane"
	// PatchScopeWorker applies a patch to workers only.
	PatchScopeWorker PatchScope = "Worker"
)

// A ClusterConfigPatch changes the configuration of the machines in its scope.
type ClusterConfigPatch struct {
	// Scope of the patch: All (default), ControlPlane or Worker.
	// +optional
	// +kubebuilder:default=All
	Scope PatchScope `json:"scope,omitempty"`

	ConfigPatch `json:",inline"`
}

// A ConfigPatch changes a machine configuration: a strategic merge patch (YAML documents as talosctl takes them) or a
// JSON 6902 patch (a YAML or JSON list of operations), inline or from a Secret.
//
// +kubebuilder:validation:XValidation:rule="has(self.inline) != has(self.secretKeyRef)",message="exactly one of inline and secretKeyRef must be set in each entry of configPatches"
type ConfigPatch struct {
	// Inline is the patch itself. Keys and tokens do not belong here: use secretKeyRef.
	// +optional
	Inline string `json:"inline,omitempty"`

	// SecretKeyRef selects a key of a Secret in the same namespace whose value is the patch.
	// +optional
	SecretKeyRef *xpv2.LocalSecretKeySelector `json:"secretKeyRef,omitempty"`
}

// TalosClusterObservation is what is observed of a Talos cluster.
type TalosClusterObservation struct {
	// ClusterID is the ID of the cluster from its secrets bundle. It is no secret.
	// +optional
	ClusterID string `json:"clusterID,omitempty"`

	// BootstrappedBy is the SMBIOS UUID of the machine that Bootstrap was sent to.
	// +optional
	BootstrappedBy string `json:"bootstrappedBy,omitempty"`

	// ControlPlanes counts control planes.
	// +optional
	ControlPlanes ControlPlaneCounts `json:"controlPlanes,omitempty"`

	// Etcd is what the control planes say of etcd.
	// +optional
	Etcd EtcdObservation `json:"etcd,omitempty"`

	// Disruption is the disruptive work that holds the lock of this cluster now, if any.
	// +optional
	Disruption *DisruptionObservation `json:"disruption,omitempty"`

	// Versions that the machines were seen to run, each once, in order.
	// +optional
	Versions ObservedVersions `json:"versions,omitempty"`

	// CredentialsExpireAt is when the published kubeconfig and talosconfig expire. They are renewed at half of their
	// life.
	// +optional
	CredentialsExpireAt *metav1.Time `json:"credentialsExpireAt,omitempty"`

	// Removal is the state of the teardown of a cluster that is being deleted.
	// +optional
	Removal *RemovalObservation `json:"removal,omitempty"`
}

// ControlPlaneCounts counts control planes of a cluster.
type ControlPlaneCounts struct {
	// Declared in spec.forProvider.controlPlane.count.
	Declared int `json:"declared"`
	// Approved TalosMachines of role controlplane.
	Approved int `json:"approved"`
	// Voters in etcd; -1 if unknown.
	Voters int `json:"voters"`
	// HealthyVoters in etcd; -1 if unknown.
	HealthyVoters int `json:"healthyVoters"`
}

// EtcdObservation is what the control planes say of etcd.
type EtcdObservation struct {
	// Leader is the name of the machine that leads, or its member ID in hexadecimal if the machine is not known.
	// +optional
	Leader string `json:"leader,omitempty"`

	// Members of etcd, in the order of their IDs.
	// +optional
	// +listType=map
	// +listMapKey=id
	Members []EtcdMemberObservation `json:"members,omitempty"`
}

// EtcdMemberObservation is what is observed of one etcd member.
type EtcdMemberObservation struct {
	// ID of the member in hexadecimal.
	ID string `json:"id"`
	// Machine is the name of the TalosMachine that runs the member; empty if none is known.
	// +optional
	Machine string `json:"machine,omitempty"`
	// Learner is true while the member has no vote.
	// +optional
	Learner bool `json:"learner,omitempty"`
	// Healthy is yes, no or unknown.
	// +kubebuilder:validation:Enum=yes;no;unknown
	Healthy string `json:"healthy"`
	// Alarms that are raised for the member.
	// +optional
	Alarms []string `json:"alarms,omitempty"`
}

// DisruptionObservation is the disruptive work that holds the lock of a cluster.
type DisruptionObservation struct {
	// Holder is the object for which the work is done, as kind/name.
	Holder string `json:"holder"`
	// For is what is being done.
	For string `json:"for"`
	// Since is when the lock was taken. Absent if the lock does not tell.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// ObservedVersions are the versions that the machines of a cluster were seen to run.
type ObservedVersions struct {
	// Talos versions.
	// +optional
	// +listType=set
	Talos []string `json:"talos,omitempty"`
	// Kubernetes versions of kubelets.
	// +optional
	// +listType=set
	Kubernetes []string `json:"kubernetes,omitempty"`
}

// A TalosClusterSpec declares a Talos cluster.
type TalosClusterSpec struct {
	xpv2.ManagedResourceSpec `json:",inline"`
	ForProvider              TalosClusterParameters `json:"forProvider"`
}

// A TalosClusterStatus is what is observed of a Talos cluster.
type TalosClusterStatus struct {
	xpv2.ManagedResourceStatus `json:",inline"`
	// AtProvider is what was observed.
	// +optional
	AtProvider TalosClusterObservation `json:"atProvider,omitempty"`
}

// A TalosCluster is a Kubernetes cluster on Talos Linux machines: its PKI, its bootstrap and its credentials.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories={crossplane,managed,ichor},shortName=tc
// +kubebuilder:printcolumn:name="READY",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="SYNCED",type="string",JSONPath=".status.conditions[?(@.type=='Synced')].status"
// +kubebuilder:printcolumn:name="DECLARED",type="integer",JSONPath=".spec.forProvider.controlPlane.count"
// +kubebuilder:printcolumn:name="APPROVED",type="integer",JSONPath=".status.atProvider.controlPlanes.approved"
// +kubebuilder:printcolumn:name="VOTERS",type="integer",JSONPath=".status.atProvider.controlPlanes.voters"
// +kubebuilder:printcolumn:name="HEALTHY",type="integer",JSONPath=".status.atProvider.controlPlanes.healthyVoters"
// +kubebuilder:printcolumn:name="ETCD",type="string",JSONPath=".status.conditions[?(@.type=='EtcdHealthy')].reason"
// +kubebuilder:printcolumn:name="TRANSITIONING",type="string",JSONPath=".status.conditions[?(@.type=='Transitioning')].status"
// +kubebuilder:printcolumn:name="DISRUPTION",type="string",JSONPath=".status.atProvider.disruption.holder"
// +kubebuilder:printcolumn:name="ENDPOINT",type="string",JSONPath=".spec.forProvider.endpoint",priority=1
// +kubebuilder:printcolumn:name="TALOS",type="string",JSONPath=".spec.forProvider.versions.talos",priority=1
// +kubebuilder:printcolumn:name="KUBERNETES",type="string",JSONPath=".spec.forProvider.versions.kubernetes",priority=1
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 50",message="metadata.name of a TalosCluster must be at most 50 characters: names of Secrets and Leases are made from it"
type TalosCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   TalosClusterSpec   `json:"spec"`
	Status TalosClusterStatus `json:"status,omitempty"`
}

// TalosClusterList is a list of TalosClusters.
//
// +kubebuilder:object:root=true
type TalosClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TalosCluster `json:"items"`
}

// Kind metadata of TalosCluster.
var (
	TalosClusterKind             = reflect.TypeFor[TalosCluster]().Name()
	TalosClusterGroupKind        = schema.GroupKind{Group: Group, Kind: TalosClusterKind}
	TalosClusterGroupVersionKind = SchemeGroupVersion.WithKind(TalosClusterKind)
)

func init() {
	SchemeBuilder.Register(&TalosCluster{}, &TalosClusterList{})
}
