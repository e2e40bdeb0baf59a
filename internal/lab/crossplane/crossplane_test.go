package crossplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	pkgv1 "github.com/crossplane/crossplane/apis/v2/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

func TestPackagesBecomeHealthy(t *testing.T) {
	c := start(t)
	o := xpkg.Options{Root: "../../..", Registry: c.Registry.Address + "/ichor", Version: "v0.1.0", Architectures: []string{"amd64"}}
	for _, p := range []xpkg.Package{xpkg.Provider} {
		built, err := xpkg.Build(t.Context(), o, p)
		if err != nil {
			t.Fatal(err)
		}
		if err := xpkg.Push(t.Context(), o, p, built); err != nil {
			t.Fatal(err)
		}
	}
	provider := &pkgv1.Provider{ObjectMeta: metav1.ObjectMeta{Name: "provider-ichor"}}
	provider.Spec.Package = o.Reference(xpkg.Provider)
	if err := c.kube.Create(t.Context(), provider); err != nil {
		t.Fatal(err)
	}
	within(t, c, "the provider is healthy", func(ctx context.Context) error {
		if err := c.kube.Get(ctx, client.ObjectKeyFromObject(provider), provider); err != nil {
			return err
		}
		if h := provider.GetCondition(pkgv1.TypeHealthy); h.Status != corev1.ConditionTrue {
			return fmt.Errorf("conditions: %+v", provider.Status.Conditions)
		}
		return nil
	})
}

// start starts a management cluster with Crossplane in it.
func start(t *testing.T) *Crossplane {
	t.Helper()
	dir := t.TempDir()
	if keep := os.Getenv("KEEPDIR"); keep != "" {
		dir = keep
	}
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
