// Package v1alpha1 holds the kinds that users of provider-ichor write and read, their conditions and their reasons.
// It must never import anything under internal: what users depend on may not depend on how it is done.
//
// +kubebuilder:object:generate=true
// +groupName=ichor.maesh.dev
// +versionName=v1alpha1
package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/scheme"
)

// Group and Version of all kinds in this package.
const (
	Group   = "ichor.maesh.dev"
	Version = "v1alpha1"
)

var (
	// SchemeGroupVersion is the API group and version of all kinds in this package.
	SchemeGroupVersion = schema.GroupVersion{Group: Group, Version: Version}

	// SchemeBuilder collects the kinds of this package.
	SchemeBuilder = &scheme.Builder{GroupVersion: SchemeGroupVersion}

	// AddToScheme adds the kinds of this package to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)
