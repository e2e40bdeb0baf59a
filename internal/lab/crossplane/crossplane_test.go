package crossplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	pkgv1 "github.com/crossplane/crossplane/apis/v2/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/maesh/provider-ichor/internal/lab/controlplane"
	"github.com/maesh/provider-ichor/internal/xpkg"
)

// patience is longer than any busy machine should need.
const patience = 3 * time.Minute

// environment is what a DeploymentRuntimeConfig would set.
func environment() map[string]func(netip.Addr) []string {
	return map[string]func(netip.Addr) []string{
		xpkg.Provider.Name: func(pod netip.Addr) []string {
			return []string{
				"PROVIDER_ICHOR_WEBHOOK_HOST=" + pod.String(),
				"PROVIDER_ICHOR_METRICS_BIND_ADDRESS=" + pod.String() + ":8080",
				"PROVIDER_ICHOR_HEALTH_PROBE_BIND_ADDRESS=" + pod.String() + ":8081",
			}
		},
		xpkg.Function.Name: func(pod netip.Addr) []string {
			return []string{
				"FUNCTION_ICHOR_TOPOLOGY_ADDRESS=" + pod.String() + ":9443",
				"FUNCTION_ICHOR_TOPOLOGY_METRICS_ADDRESS=" + pod.String() + ":8080",
			}
		},
	}
}

// TestProviderWorksAsInstalled installs the provider as a user does, with the objects of examples/install, and wants from it
// what a user wants: it is healthy, works with the rights that Crossplane gave it, and refuses through its webhook.
func TestProviderWorksAsInstalled(t *testing.T) {
	c := start(t)
	publish(t, c, xpkg.Provider)
	install(t, c, "runtimeconfig.yaml")
	install(t, c, "provider.yaml")
	within(t, c, "the provider is healthy", func(ctx context.Context) error { return healthy(ctx, c, 1) })
	install(t, c, "activation.yaml")

	var cluster *unstructured.Unstructured
	within(t, c, "a cluster can be declared", func(ctx context.Context) error {
		cluster = object(t, "../../../examples/cluster/cluster.yaml")
		return c.kube.Create(ctx, cluster)
	})
	within(t, c, "the provider has looked at the cluster", func(ctx context.Context) error {
		if err := c.kube.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil {
			return err
		}
		if conditions, _, _ := unstructured.NestedSlice(cluster.Object, "status", "conditions"); len(conditions) == 0 {
			return errors.New("it has no conditions")
		}
		return nil
	})

	err := c.kube.Delete(t.Context(), cluster)
	if err == nil || !strings.Contains(err.Error(), "NotAllowed") {
		t.Errorf("delete without permission: %v, want a refusal by the webhook", err)
	}

	if err := c.Kill(xpkg.Provider.Name); err != nil {
		t.Fatal(err)
	}
	within(t, c, "the killed provider serves again", func(ctx context.Context) error { return c.Serves(ctx, xpkg.Provider.Name) })
}

// TestConfigurationBringsTheRest installs one package, and wants all three: healthy, and able to compose together.
func TestConfigurationBringsTheRest(t *testing.T) {
	c := start(t)
	for _, p := range xpkg.All() {
		publish(t, c, p)
	}
	install(t, c, "configuration.yaml")
	within(t, c, "three packages are healthy", func(ctx context.Context) error { return healthy(ctx, c, 3) })
	within(t, c, "a topology can be declared", func(ctx context.Context) error { return c.kube.Create(ctx, nowhere(t)) })
	within(t, c, "the topology is composed", func(ctx context.Context) error {
		cluster := object(t, "../../../examples/cluster/cluster.yaml")
		return c.kube.Get(ctx, client.ObjectKeyFromObject(nowhere(t)), cluster)
	})
}

// nowhere is the topology of an example with a machine that there is not: at the example's address may be one of another lab.
func nowhere(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	o := object(t, "../../../examples/topology/single-node.yaml")
	machines := []any{map[string]any{"name": "cp-1", "address": "192.0.2.11", "approved": true}}
	if err := unstructured.SetNestedSlice(o.Object, machines, "spec", "controlPlanes", "machines"); err != nil {
		t.Fatal(err)
	}
	return o
}

// healthy wants so many packages, and all of them healthy.
func healthy(ctx context.Context, c *Crossplane, want int) error {
	var all []pkgv1.Package
	for _, list := range []pkgv1.PackageList{&pkgv1.ProviderList{}, &pkgv1.FunctionList{}, &pkgv1.ConfigurationList{}} {
		if err := c.kube.List(ctx, list); err != nil {
			return err
		}
		all = append(all, list.GetPackages()...)
	}
	for _, p := range all {
		if h := p.GetCondition(pkgv1.TypeHealthy); h.Status != corev1.ConditionTrue {
			return fmt.Errorf("%s is not healthy: %s: %s", p.GetName(), h.Reason, h.Message)
		}
	}
	if len(all) != want {
		return fmt.Errorf("there are %d packages, want %d", len(all), want)
	}
	return nil
}

// publish builds a package for this machine and pushes it to the registry of the lab.
func publish(t *testing.T, c *Crossplane, p xpkg.Package) {
	t.Helper()
	o := xpkg.Options{Root: "../../..", Registry: c.Registry.Address + "/ichor", Version: "v0.1.0", Architectures: []string{runtime.GOARCH}}
	built, err := xpkg.Build(t.Context(), o, p)
	if err != nil {
		t.Fatal(err)
	}
	if err := xpkg.Push(t.Context(), o, p, built); err != nil {
		t.Fatal(err)
	}
}

// install applies an object of examples/install. Its package comes from the registry of the lab instead of the example's.
func install(t *testing.T, c *Crossplane, name string) {
	t.Helper()
	o := object(t, filepath.Join("../../../examples/install", name))
	if address, found, _ := unstructured.NestedString(o.Object, "spec", "package"); found {
		local := strings.Replace(address, "registry.example.org", c.Registry.Address, 1)
		if err := unstructured.SetNestedField(o.Object, local, "spec", "package"); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.kube.Create(t.Context(), o); err != nil {
		t.Fatalf("cannot install %s: %v", name, err)
	}
}

func object(t *testing.T, path string) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(text, &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// start starts a management cluster with Crossplane in it.
func start(t *testing.T) *Crossplane {
	t.Helper()
	dir := t.TempDir()
	binaries, err := controlplane.EnsureBinaries(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	cp, err := controlplane.Start(t.Context(), controlplane.Options{
		Binaries: binaries, Dir: filepath.Join(dir, "management"), Controllers: controlplane.ManagementControllers(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopped(t, cp.Stop) })
	c, err := Start(t.Context(), Options{Config: cp.RESTConfig(), Dir: filepath.Join(dir, "crossplane"), Environment: environment(), Out: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopped(t, c.Stop) })
	return c
}

func stopped(t *testing.T, stop func() error) {
	t.Helper()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// within polls until check returns no error.
func within(t *testing.T, c *Crossplane, what string, check func(context.Context) error) {
	t.Helper()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		err := check(t.Context())
		if err == nil {
			return
		}
		if broken := errors.Join(c.core.Err(), c.rbac.Err()); broken != nil {
			t.Fatalf("while waiting until %s: %v", what, broken)
		}
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("waited too long until %s: %v", what, errors.Join(err, c.Err()))
		}
	}
}
