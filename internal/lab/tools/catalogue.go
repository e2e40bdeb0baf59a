package tools

import "strings"

// A Tool is one program that can be built from source.
type Tool struct {
	// Name of the binary, such as "kube-apiserver".
	Name string

	// Dir of the module that pins it, relative to this repository's root. "." is this module itself.
	Dir string

	// Package is the main package's import path.
	Package string

	// Module is the required module whose version is the tool's version. Empty for this module's own commands: they have no
	// pinned version, so they are built every time, which costs one link at most.
	Module string

	// LDFlags for the linker, given the version. Nil means none beyond stripping.
	LDFlags func(version string) []string

	// Size says how long a cold build takes, for people who wait for it: "about 5 minutes".
	Size string
}

// The pinned programs.
var (
	KubeAPIServer         = kubernetes("kube-apiserver", "about 5 minutes")
	KubeControllerManager = kubernetes("kube-controller-manager", "about 2 minutes")
	KubeScheduler         = kubernetes("kube-scheduler", "about 1 minute")
	Kubectl               = kubernetes("kubectl", "about 1 minute")
	Etcd                  = Tool{Name: "etcd", Dir: "hack/tools/etcd", Package: "go.etcd.io/etcd/server/v3", Module: "go.etcd.io/etcd/server/v3", Size: "about 1 minute"}

	// Crossplane is Crossplane's core, and CrossplaneCLI the program that people run: it builds, validates and renders. They
	// bear the same name upstream, and each needs a Crossplane runtime of its own.
	Crossplane    = crossplane("crossplane", "hack/tools/crossplane", "github.com/crossplane/crossplane/v2", "about 2 minutes")
	CrossplaneCLI = crossplane("crossplane-cli", "hack/tools/crossplane-cli", "github.com/crossplane/cli/v2", "about 3 minutes")

	// KustomizeController is the part of Flux that applies, prunes and judges what lies in Git.
	KustomizeController = Tool{
		Name:    "kustomize-controller",
		Dir:     "hack/tools/kustomize-controller",
		Package: "github.com/fluxcd/kustomize-controller",
		Module:  "github.com/fluxcd/kustomize-controller",
		Size:    "about 3 minutes",
	}
)

// Own is the command of this module that lies in cmd/<name>.
func Own(name string) Tool {
	return Tool{Name: name, Dir: ".", Package: modulePath + "/cmd/" + name}
}

func kubernetes(name, size string) Tool {
	return Tool{
		Name:    name,
		Dir:     "hack/tools/kubernetes",
		Package: "k8s.io/kubernetes/cmd/" + name,
		Module:  "k8s.io/kubernetes",
		LDFlags: kubernetesVersion,
		Size:    size,
	}
}

func crossplane(name, dir, module, size string) Tool {
	return Tool{Name: name, Dir: dir, Package: module + "/cmd/crossplane", Module: module, LDFlags: crossplaneVersion, Size: size}
}

// crossplaneVersion stamps the version into a program of Crossplane. Without it, core has no version to hold against the one
// that a package asks for. The RBAC manager serves metrics at port 8080 of every address and has no flag to change that, so two
// could not run on one machine: here it serves none.
func crossplaneVersion(version string) []string {
	return []string{
		"-X github.com/crossplane/crossplane-runtime/v2/pkg/version.version=" + version,
		"-X sigs.k8s.io/controller-runtime/pkg/metrics/server.DefaultBindAddress=0",
	}
}

// kubernetesVersion stamps the version into a Kubernetes program. Without it the program calls itself v0.0.0-master and
// clients that compare versions (kubeadm, Crossplane, talosctl) refuse it.
func kubernetesVersion(version string) []string {
	const pkg = "k8s.io/component-base/version."
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return []string{
		"-X " + pkg + "gitVersion=" + version,
		"-X " + pkg + "gitMajor=" + major,
		"-X " + pkg + "gitMinor=" + minor,
	}
}
