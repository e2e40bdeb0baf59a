// Package v1alpha1 holds what users write in a TalosTopology, or in a TalosTopologyClaim: one document for a whole cluster.
// The XRDs in package/configuration are generated from it. It must never import anything under internal.
//
// +kubebuilder:object:generate=true
// +groupName=topology.ichor.maesh.dev
// +versionName=v1alpha1
package v1alpha1

import "k8s.io/apimachinery/pkg/runtime/schema"

// Group and Version of all kinds in this package.
const (
	Group   = "topology.ichor.maesh.dev"
	Version = "v1alpha1"
)

// Kinds that a topology can have. Crossplane makes them from the XRDs.
const (
	// KindTopology is the namespaced XR.
	KindTopology = "TalosTopology"
	// KindLegacyTopology is the cluster-scoped XR that belongs to a claim.
	KindLegacyTopology = "XTalosTopology"
	// KindClaim is the claim.
	KindClaim = "TalosTopologyClaim"
)

// SchemeGroupVersion is the API group and version of all kinds in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: Group, Version: Version}

// LabelTopology on a TalosMachine names the topology that it was composed for. What was dropped from a topology and is still
// being removed is found by it.
const LabelTopology = Group + "/name"

// LabelPool on a TalosMachine names the pool that it was listed in.
const LabelPool = Group + "/pool"
