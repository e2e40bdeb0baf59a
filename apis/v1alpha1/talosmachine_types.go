package v1alpha1

import (
	"reflect"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// MachineRole is what a machine does in its cluster.
// +kubebuilder:validation:Enum=controlplane;worker
type MachineRole string

// Roles of a machine.
const (
	// RoleControlPlane machines run etcd and the Kubernetes control plane.
	RoleControlPlane MachineRole = "controlplane"
	// RoleWorker machines run workloads only.
	RoleWorker MachineRole = "worker"
)

// TalosMachineParameters are what a user declares of a Talos machine.
//
// +kubebuilder:validation:XValidation:rule="has(self.clusterRef) || has(self.clusterSelector)",message="one of spec.forProvider.clusterRef and spec.forProvider.clusterSelector must be set"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.clusterRef) || (has(self.clusterRef) && self.clusterRef.name == oldSelf.clusterRef.name)",messageExpression="'spec.forProvider.clusterRef is immutable and cannot become ' + (has(self.clusterRef) ? self.clusterRef.name : 'unset') + ': remove the machine and declare it anew to move it to another cluster'",message="spec.forProvider.clusterRef is immutable: remove the machine and declare it anew to move it to another cluster"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.approved) || !oldSelf.approved || (has(self.approved) && self.approved)",message="spec.forProvider.approved cannot be taken back to false: the machine has its configuration; delete the TalosMachine to remove it"
type TalosMachineParameters struct {
	// ClusterRef names the TalosCluster, in the same namespace, that the machine belongs to.
	// +optional
	ClusterRef *ClusterReference `json:"clusterRef,omitempty"`

	// ClusterSelector selects the TalosCluster, in the same namespace, by its labels. The name that it finds is written
	// to clusterRef.
	// +optional
	ClusterSelector *xpv2.Selector `json:"clusterSelector,omitempty"`

	// Role of the machine: controlplane or worker. Immutable.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.forProvider.role is immutable: remove the machine and declare it anew to change its role"
	Role MachineRole `json:"role"`

	// Approved says that the machine may be given its configuration. Nothing is sent to a machine before it is true.
	// It cannot be taken back.
	// +optional
	Approved bool `json:"approved,omitempty"`

	// Address of the machine's Talos API: an IP address or a host name, with a port if it is not 50000.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!self.contains('/') && !self.contains(' ')",message="spec.forProvider.address must be an IP address or host name, with a port if it is not 50000, such as 192.0.2.11"
	Address string `json:"address"`

	// UUID pins the machine by its SMBIOS UUID. Without it, the UUID that is seen when the machine gets its first
	// configuration is pinned.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`
	UUID string `json:"uuid,omitempty"`

	// MaintenanceFingerprint pins the certificate that the machine shows in maintenance mode: the SPKI fingerprint that
	// Talos prints on its console. It changes with every boot.
	// +optional
	MaintenanceFingerprint string `json:"maintenanceFingerprint,omitempty"`

	// Hostname of the machine. Default: the name of the TalosMachine.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Hostname string `json:"hostname,omitempty"`

	// Install says where Talos is installed.
	Install MachineInstall `json:"install"`

	// Node is what the machine's Kubernetes Node carries.
	// +optional
	Node MachineNode `json:"node,omitzero"`

	// ConfigPatches change the configuration of this machine, after those of its cluster, in order.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	ConfigPatches []ConfigPatch `json:"configPatches,omitempty"`

	// Drain says how the machine's Node is drained before a removal or a reboot.
	// +optional
	Drain MachineDrain `json:"drain,omitzero"`

	// Reset says what a removal wipes.
	// +optional
	Reset MachineReset `json:"reset,omitzero"`

	// Unreachable says what a removal does with a machine that does not answer.
	// +optional
	Unreachable MachineUnreachable `json:"unreachable,omitzero"`
}

// A ClusterReference names a TalosCluster in the same namespace.
type ClusterReference struct {
	// Name of the TalosCluster.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// MachineInstall says where Talos is installed.
//
// +kubebuilder:validation:XValidation:rule="has(self.disk) != has(self.diskSelector)",messageExpression="'exactly one of spec.forProvider.install.disk and spec.forProvider.install.diskSelector must be set, and ' + (has(self.disk) ? 'disk ' + self.disk + ' and a diskSelector are' : 'neither is')",message="exactly one of spec.forProvider.install.disk and spec.forProvider.install.diskSelector must be set"
type MachineInstall struct {
	// Disk is the device path, such as /dev/sda.
	// +optional
	// +kubebuilder:validation:Pattern=`^/dev/`
	Disk string `json:"disk,omitempty"`

	// DiskSelector selects the disk by what is known of it.
	// +optional
	DiskSelector *DiskSelector `json:"diskSelector,omitempty"`
}

// A DiskSelector selects a disk; every field that is set must match.
type DiskSelector struct {
	// Size condition, such as ">= 100GB".
	// +optional
	Size string `json:"size,omitempty"`
	// Model of the disk; `*` matches anything.
	// +optional
	Model string `json:"model,omitempty"`
	// Serial number; `*` matches anything.
	// +optional
	Serial string `json:"serial,omitempty"`
	// WWID of the disk; `*` matches anything.
	// +optional
	WWID string `json:"wwid,omitempty"`
	// Type of the disk: ssd, hdd, nvme or sd.
	// +optional
	// +kubebuilder:validation:Enum=ssd;hdd;nvme;sd
	Type string `json:"type,omitempty"`
	// BusPath of the disk; `*` matches anything.
	// +optional
	BusPath string `json:"busPath,omitempty"`
}

// MachineNode is what the Kubernetes Node of a machine carries.
type MachineNode struct {
	// Labels of the Node.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations of the Node.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// Taints of the Node.
	// +optional
	// +listType=atomic
	Taints []corev1.Taint `json:"taints,omitempty"`
}

// MachineDrain says how a Node is drained. PodDisruptionBudgets are honoured always.
type MachineDrain struct {
	// Timeout after which a drain that is not done shows as stuck. It is retried all the same and nothing is forced.
	// Default: 10m.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// Force evicts pods that no controller will create again. Without it such pods block the drain. Default: false.
	// +optional
	Force bool `json:"force,omitempty"`

	// DeleteEmptyDirData evicts pods with emptyDir volumes, whose data is lost. Without it such pods block the drain.
	// Default: false.
	// +optional
	DeleteEmptyDirData bool `json:"deleteEmptyDirData,omitempty"`
}

// MachineReset says what a removal wipes.
type MachineReset struct {
	// Wipe lists further volumes to wipe besides STATE and EPHEMERAL, by the labels that Talos gives them, such as META
	// or u-data. STATE and EPHEMERAL are always wiped: a machine that keeps one of them keeps old etcd data or keys.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	Wipe []string `json:"wipe,omitempty"`
}

// UnreachablePolicy says what the removal of a machine does while the machine does not answer.
// +kubebuilder:validation:Enum=Wait;RemoveMember
type UnreachablePolicy string

// Policies for machines that do not answer.
const (
	// UnreachableWait waits for the machine, and says so.
	UnreachableWait UnreachablePolicy = "Wait"
	// UnreachableRemoveMember removes the machine's etcd member through a healthy one if the gate holds, and its Node.
	// The TalosMachine stays until the machine comes back and is reset, or until a person accepts an unwiped disk.
	UnreachableRemoveMember UnreachablePolicy = "RemoveMember"
)

// MachineUnreachable says what a removal does with a machine that does not answer.
type MachineUnreachable struct {
	// Policy: Wait (default) or RemoveMember.
	// +optional
	// +kubebuilder:default=Wait
	Policy UnreachablePolicy `json:"policy,omitempty"`
}

// TalosMachineObservation is what is observed of a Talos machine.
type TalosMachineObservation struct {
	// UUID is the machine's SMBIOS UUID.
	// +optional
	UUID string `json:"uuid,omitempty"`
	// BootID changes with every boot.
	// +optional
	BootID string `json:"bootID,omitempty"`
	// TalosVersion that runs.
	// +optional
	TalosVersion string `json:"talosVersion,omitempty"`
	// Schematic of the image factory that the running image was made from.
	// +optional
	Schematic string `json:"schematic,omitempty"`
	// Stage of the machine as Talos names it: maintenance, installing, booting, running, rebooting, resetting, upgrading; and
	// unknown while it does not answer.
	// +optional
	Stage string `json:"stage,omitempty"`
	// NodeName is the name under which the machine's kubelet runs: that of its Kubernetes Node.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// Addresses of the machine's Kubernetes Node.
	// +optional
	// +listType=set
	Addresses []string `json:"addresses,omitempty"`
	// Etcd is what is observed of the machine's etcd member. Control planes only.
	// +optional
	Etcd *MachineEtcdObservation `json:"etcd,omitempty"`
	// Config is what is observed of the machine's configuration.
	// +optional
	Config MachineConfigObservation `json:"config,omitempty"`
	// Removal is the state of the removal of a machine that is being deleted.
	// +optional
	Removal *RemovalObservation `json:"removal,omitempty"`
}

// MachineEtcdObservation is what is observed of the etcd member of a machine.
type MachineEtcdObservation struct {
	// MemberID in hexadecimal.
	// +optional
	MemberID string `json:"memberID,omitempty"`
	// Voter is true if the member has a vote.
	// +optional
	Voter bool `json:"voter,omitempty"`
	// Healthy is yes, no or unknown.
	// +kubebuilder:validation:Enum=yes;no;unknown
	Healthy string `json:"healthy"`
	// State in one word for people: voter, learner, unhealthy, absent or unknown.
	// +optional
	State string `json:"state,omitempty"`
}

// ConfigState tells how a machine's configuration compares to the declared one.
// +kubebuilder:validation:Enum=InSync;Drifted;Staged;NeedsReboot;Unknown
type ConfigState string

// States of a machine's configuration.
const (
	ConfigInSync      ConfigState = "InSync"
	ConfigDrifted     ConfigState = "Drifted"
	ConfigStaged      ConfigState = "Staged"
	ConfigNeedsReboot ConfigState = "NeedsReboot"
	ConfigUnknown     ConfigState = "Unknown"
)

// MachineConfigObservation is what is observed of a machine's configuration.
type MachineConfigObservation struct {
	// State: InSync, Drifted, Staged, NeedsReboot or Unknown.
	// +optional
	State ConfigState `json:"state,omitempty"`
	// Diff from the running to the declared configuration, with every secret redacted.
	// +optional
	Diff string `json:"diff,omitempty"`
}

// RemovalObservation is the state of a removal.
type RemovalObservation struct {
	// Step that the removal is at.
	Step string `json:"step"`
	// Since when it is at that step.
	Since metav1.Time `json:"since"`
	// Irreversible is true once the machine has left etcd or was reset: from there is only forward.
	// +optional
	Irreversible bool `json:"irreversible,omitempty"`
	// MemberID of the machine's etcd member, in hexadecimal, as it was before the removal.
	// +optional
	MemberID string `json:"memberID,omitempty"`
	// Message says what is done, or what is waited for and what a person can do.
	// +optional
	Message string `json:"message,omitempty"`
}

// A TalosMachineSpec declares a Talos machine.
type TalosMachineSpec struct {
	xpv2.ManagedResourceSpec `json:",inline"`
	ForProvider              TalosMachineParameters `json:"forProvider"`
}

// A TalosMachineStatus is what is observed of a Talos machine.
type TalosMachineStatus struct {
	xpv2.ManagedResourceStatus `json:",inline"`
	// AtProvider is what was observed.
	// +optional
	AtProvider TalosMachineObservation `json:"atProvider,omitempty"`
}

// A TalosMachine is one machine of a Talos cluster. Deleting it removes the machine from its cluster, safely, and leaves
// it blank in maintenance mode.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories={crossplane,managed,ichor},shortName=tm
// +kubebuilder:printcolumn:name="READY",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="SYNCED",type="string",JSONPath=".status.conditions[?(@.type=='Synced')].status"
// +kubebuilder:printcolumn:name="ROLE",type="string",JSONPath=".spec.forProvider.role"
// +kubebuilder:printcolumn:name="ADDRESS",type="string",JSONPath=".spec.forProvider.address"
// +kubebuilder:printcolumn:name="STAGE",type="string",JSONPath=".status.atProvider.stage"
// +kubebuilder:printcolumn:name="VERSION",type="string",JSONPath=".status.atProvider.talosVersion"
// +kubebuilder:printcolumn:name="ETCD",type="string",JSONPath=".status.atProvider.etcd.state"
// +kubebuilder:printcolumn:name="CONFIG",type="string",JSONPath=".status.atProvider.config.state"
// +kubebuilder:printcolumn:name="REMOVABLE",type="string",JSONPath=".status.conditions[?(@.type=='Removable')].reason"
// +kubebuilder:printcolumn:name="REMOVAL",type="string",JSONPath=".status.conditions[?(@.type=='Removal')].reason"
// +kubebuilder:printcolumn:name="CLUSTER",type="string",JSONPath=".spec.forProvider.clusterRef.name",priority=1
// +kubebuilder:printcolumn:name="UUID",type="string",JSONPath=".status.atProvider.uuid",priority=1
// +kubebuilder:printcolumn:name="NODE",type="string",JSONPath=".status.atProvider.nodeName",priority=1
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name of a TalosMachine must be at most 63 characters: it is the default hostname"
type TalosMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   TalosMachineSpec   `json:"spec"`
	Status TalosMachineStatus `json:"status,omitempty"`
}

// TalosMachineList is a list of TalosMachines.
//
// +kubebuilder:object:root=true
type TalosMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TalosMachine `json:"items"`
}

// Kind metadata of TalosMachine.
var (
	TalosMachineKind             = reflect.TypeFor[TalosMachine]().Name()
	TalosMachineGroupKind        = schema.GroupKind{Group: Group, Kind: TalosMachineKind}
	TalosMachineGroupVersionKind = SchemeGroupVersion.WithKind(TalosMachineKind)
)

// ClusterName is the name of the TalosCluster that the machine belongs to, or empty while a selector is not resolved.
func (m *TalosMachine) ClusterName() string {
	if m.Spec.ForProvider.ClusterRef == nil {
		return ""
	}
	return m.Spec.ForProvider.ClusterRef.Name
}

// Hostname is the declared hostname of the machine, or its default: the name of the object.
func (m *TalosMachine) Hostname() string {
	if h := m.Spec.ForProvider.Hostname; h != "" {
		return h
	}
	return m.GetName()
}

// IsApprovedControlPlane tells whether the machine counts as a control plane of the named cluster: its role says so and
// it is approved, since only an approved machine can have become a member of etcd. One that is being deleted counts
// until it is gone.
func (m *TalosMachine) IsApprovedControlPlane(cluster string) bool {
	return m.Spec.ForProvider.Role == RoleControlPlane && m.Spec.ForProvider.Approved && m.ClusterName() == cluster
}

func init() {
	SchemeBuilder.Register(&TalosMachine{}, &TalosMachineList{})
}
