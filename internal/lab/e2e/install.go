package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/maesh/provider-ichor/internal/xpkg"
)

const (
	// organisation of the packages in the lab's registry, as in the examples.
	organisation = "ichor"
	// version is that of the examples, and nextVersion the one that the provider is upgraded to.
	version, nextVersion = "v0.1.0", "v0.1.1"
	// exampleRegistry is where the examples say that the packages are.
	exampleRegistry = "registry.example.org"

	// metricsPort is where provider and function tell their metrics.
	metricsPort = ":8080"

	// poll and wait make the provider look as often as befits machines whose waits are scaled.
	poll, wait = 5 * time.Second, 3 * time.Second
)

// hurry makes core as much faster than its defaults as poll makes the provider: how often it looks, how many events of a
// topology's parts it takes in a second, and how long it takes fewer once there were too many. How many may come at once stays as it is.
func hurry() []string {
	return []string{"--poll-interval=" + poll.String(), "--circuit-breaker-refill-rate=12", "--circuit-breaker-cooldown=25s"}
}

// environment is what a DeploymentRuntimeConfig would set.
func environment() map[string]func(netip.Addr) []string {
	return map[string]func(netip.Addr) []string{
		xpkg.Provider.Name: func(pod netip.Addr) []string {
			return []string{
				"PROVIDER_ICHOR_WEBHOOK_HOST=" + pod.String(),
				"PROVIDER_ICHOR_METRICS_BIND_ADDRESS=" + pod.String() + metricsPort,
				"PROVIDER_ICHOR_HEALTH_PROBE_BIND_ADDRESS=" + pod.String() + ":8081",
				"PROVIDER_ICHOR_POLL=" + poll.String(), "PROVIDER_ICHOR_WAIT=" + wait.String(), "PROVIDER_ICHOR_DEBUG=true",
			}
		},
		xpkg.Function.Name: func(pod netip.Addr) []string {
			return []string{
				"FUNCTION_ICHOR_TOPOLOGY_ADDRESS=" + pod.String() + ":9443",
				"FUNCTION_ICHOR_TOPOLOGY_METRICS_ADDRESS=" + pod.String() + metricsPort,
			}
		},
	}
}

// install pushes all packages and installs the one that brings the others.
func (e *E2E) install(ctx context.Context) error {
	for _, p := range xpkg.All() {
		if err := e.publish(ctx, p, version); err != nil {
			return err
		}
	}
	manifest, err := os.ReadFile(filepath.Join(e.lab.Root(), "examples", "install", "configuration.yaml"))
	if err != nil {
		return fmt.Errorf("cannot read an example: %w", err)
	}
	if err := e.apply(ctx, strings.ReplaceAll(string(manifest), exampleRegistry, e.crossplane.Registry.Address)); err != nil {
		return err
	}
	err = e.await(ctx, "three packages are healthy", func(ctx context.Context) error {
		for _, kind := range []string{"Provider", "Function", "Configuration"} {
			if _, err := e.installed(ctx, kind); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = e.kubectl(ctx, "apply", "-f", filepath.Join("examples", "cluster", "providerconfig.yaml"))
	return err
}

// publish builds a package for this machine and pushes it to the registry of the lab.
func (e *E2E) publish(ctx context.Context, p xpkg.Package, version string) error {
	e.sayf("      pushing %s %s to the registry of the lab\n", p.Name, version)
	o := xpkg.Options{
		Root: e.lab.Root(), Registry: e.crossplane.Registry.Address + "/" + organisation, Version: version, Architectures: []string{runtime.GOARCH},
	}
	built, err := xpkg.Build(ctx, o, p)
	if err != nil {
		return err
	}
	return xpkg.Push(ctx, o, p, built)
}

// installed is the one package of a kind, which has to be installed and healthy.
func (e *E2E) installed(ctx context.Context, kind string) (*unstructured.Unstructured, error) {
	p, err := e.only(ctx, kind)
	if err != nil {
		return nil, err
	}
	for _, condition := range []string{"Installed", "Healthy"} {
		if err := wants(p, condition, corev1.ConditionTrue); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// only is the one package of a kind.
func (e *E2E) only(ctx context.Context, kind string) (*unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "pkg.crossplane.io", Version: "v1", Kind: kind + "List"})
	if err := e.kube.List(ctx, list); err != nil {
		return nil, err
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("there are %d packages of kind %s, want 1", len(list.Items), kind)
	}
	return &list.Items[0], nil
}
