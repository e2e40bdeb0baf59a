// Package xpkg builds the Crossplane packages of this repository, without a container engine and byte for byte the same from
// the same source, Go toolchain, version and registry. It must never know a registry by name: where packages go is told to
// it, and what one package needs of another is found under the same registry.
package xpkg

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/semver"
)

// A Package is one of the packages that this repository makes. Its paths are relative to the root of the source tree.
type Package struct {
	// Name of the package, which is the last part of its address: "provider-ichor".
	Name string

	// Meta is the crossplane.yaml.
	Meta string

	// Objects are the YAML files, and the directories of such files, whose objects Crossplane installs.
	Objects []string

	// Examples are the YAML files, and the directories of such files, that marketplaces show.
	Examples []string

	// Command in cmd/ whose binary the package runs. Empty if the package runs nothing.
	Command string
}

// The packages.
var (
	Provider = Package{
		Name:     "provider-ichor",
		Meta:     "package/provider/crossplane.yaml",
		Objects:  []string{"package/crds", "package/webhooks.yaml"},
		Examples: []string{"examples/cluster"},
		Command:  "provider",
	}
	Function = Package{
		Name:    "function-ichor-topology",
		Meta:    "package/function/crossplane.yaml",
		Objects: []string{"package/function"},
		Command: "function-ichor-topology",
	}
	Configuration = Package{
		Name:     "configuration-ichor",
		Meta:     "package/configuration/crossplane.yaml",
		Objects:  []string{"package/configuration"},
		Examples: []string{"examples/topology"},
	}
)

// icon of all packages, shown by marketplaces.
const icon = "package/icon.svg"

// All are the packages in the order in which they must be pushed: what others need comes first.
func All() []Package { return []Package{Provider, Function, Configuration} }

// Options say what to build.
type Options struct {
	// Root of the source tree.
	Root string

	// Registry is the address that the packages are found under, such as "registry.example.org/ichor". A package that
	// needs another one asks for it there.
	Registry string

	// Version of the packages, such as "v0.1.0". It must be a semantic version, or nothing could depend on it.
	Version string

	// Architectures of the runtimes, such as "amd64". The first is what Crossplane reads a package's objects from.
	Architectures []string
}

// DefaultArchitectures are those that management clusters run on.
func DefaultArchitectures() []string { return []string{"amd64", "arm64"} }

// Reference is the address of a package, such as "registry.example.org/ichor/provider-ichor:v0.1.0".
func (o Options) Reference(p Package) string { return o.repository(p.Name) + ":" + o.Version }

func (o Options) repository(name string) string {
	return strings.TrimSuffix(o.Registry, "/") + "/" + name
}

func (o Options) validate() error {
	if !semver.IsValid(o.Version) || semver.Canonical(o.Version) != o.Version {
		return fmt.Errorf("the version %q is no semantic version such as v0.1.0", o.Version)
	}
	host, _, _ := strings.Cut(o.Registry, "/")
	if !strings.Contains(host, ".") {
		// Crossplane refuses such an address only when somebody installs the package.
		return fmt.Errorf("the registry %q does not begin with a host that contains a dot", o.Registry)
	}
	if len(o.Architectures) == 0 {
		return errors.New("there is no architecture to build for")
	}
	return nil
}
