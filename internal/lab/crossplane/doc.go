// Package crossplane runs Crossplane's real core, its RBAC manager and a registry outside of any pod, beside a control plane of
// internal/lab/controlplane, and plays the one part that a cluster without nodes lacks: the package runtime, which starts what
// an installed package brings. A package is taken out of the registry and started with the certificates, the environment and
// the rights that Crossplane would give its pod.
//
// It must never help a package along: no right, no certificate and no file that the package would not have in a cluster.
package crossplane
