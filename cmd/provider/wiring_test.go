package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// The pace of the provider in these tests. Nothing of it is a default, or near to one.
const (
	testPoll = 500 * time.Millisecond
	testWait = 50 * time.Millisecond
	testRate = 20
	// polls is how often a machine at rest is looked at, and looks how often one that waits is: in less than a minute only at
	// these paces, and with backoff never.
	polls, looks = 8, 40
	// conflicts in a row would add up to a backoff of two minutes.
	conflicts = 7
)

// passes is how many passes one controller has ended.
func passes(kind string) (int, error) {
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		return 0, err
	}
	n := 0.0
	for _, f := range families {
		if f.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "controller" && l.GetValue() == controllerOf(kind) {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return int(n), nil
}

func controllerOf(kind string) string {
	return "managed/" + strings.ToLower(kind) + "." + v1alpha1.Group
}

// isLookedAt waits for as many more passes.
func isLookedAt(t *testing.T, kind string, times int) {
	t.Helper()
	before, err := passes(kind)
	if err != nil {
		t.Fatalf("cannot read the metrics: %v", err)
	}
	eventually(t, fmt.Sprintf("%d passes over a %s", times, kind), func() error {
		n, err := passes(kind)
		if err == nil && n < before+times {
			err = fmt.Errorf("there were %d", n-before)
		}
		return err
	})
}

// keepsPace holds that what waits is looked at at the pace of waits, and says only once what it waits for: a removal has a
// dozen steps, and each would wait out a longer backoff than the one before.
func keepsPace(ctx context.Context, t *testing.T, c client.Client) {
	t.Helper()
	objects := undeletable()
	for _, o := range objects {
		if err := c.Create(ctx, o); err != nil {
			t.Fatalf("cannot create %T %q: %v", o, o.GetName(), err)
		}
	}
	eventually(t, "there are credentials of the cluster", func() error {
		s := &corev1.Secret{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "prod-connection"}, s); err != nil {
			return err
		}
		if len(s.Data["kubeconfig"]) == 0 {
			return errors.New("there is no kubeconfig") // Crossplane makes the Secret before it keeps the cluster.
		}
		return nil
	})
	for _, o := range objects[1:] {
		if err := c.Delete(ctx, o); err != nil {
			t.Fatalf("cannot delete %T %q: %v", o, o.GetName(), err)
		}
		eventually(t, o.GetName()+" says why it stays", func() error {
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
			if r := o.(resource.Conditioned).GetCondition(v1alpha1.TypeRemoval); r.Reason != "NotAllowed" { //nolint:forcetypeassert // A test may panic.
				return fmt.Errorf("Removal is %q: %s", r.Reason, r.Message)
			}
			return nil
		})
	}
	isLookedAt(t, v1alpha1.TalosClusterKind, looks)
	isLookedAt(t, v1alpha1.TalosMachineKind, looks)
	saysOnce(ctx, t, c)
}

// givesUp holds that both kinds do what management policies say, which is the way to give something up as it is, and that they
// do it soon though others who write the same object are faster a few times.
func givesUp(ctx context.Context, t *testing.T, c client.Client, f *front) {
	t.Helper()
	for _, of := range []struct {
		plural, name string
		object       resource.Managed
	}{{"talosmachines", "worker-1", &v1alpha1.TalosMachine{}}, {"talosclusters", "prod", &v1alpha1.TalosCluster{}}} {
		o, key := of.object, client.ObjectKey{Namespace: "default", Name: of.name}
		f.conflict(of.plural, of.name, conflicts)
		eventually(t, key.Name+" is changed", func() error {
			if err := c.Get(ctx, key, o); err != nil {
				return err
			}
			o.SetManagementPolicies(xpv2.ManagementPolicies{xpv2.ManagementActionObserve, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate})
			return c.Update(ctx, o)
		})
		isGone(ctx, t, c, o)
	}
}

func isGone(ctx context.Context, t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	eventually(t, o.GetName()+" is let go", func() error {
		err := c.Get(ctx, client.ObjectKeyFromObject(o), o)
		if err == nil {
			return errors.New("it is there")
		}
		return client.IgnoreNotFound(err)
	})
}

// undeletable is a cluster, and a machine of it, that nobody allows to be deleted.
func undeletable() []client.Object {
	return []client.Object{
		&v1alpha1.ClusterProviderConfig{
			ObjectMeta: metav1.ObjectMeta{Name: "default"},
			Spec:       v1alpha1.ProviderConfigSpec{Credentials: v1alpha1.ProviderCredentials{Source: xpv2.CredentialsSourceNone}},
		},
		&v1alpha1.TalosCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "prod"},
			Spec: v1alpha1.TalosClusterSpec{
				ManagedResourceSpec: xpv2.ManagedResourceSpec{WriteConnectionSecretToReference: &xpv2.LocalSecretReference{Name: "prod-connection"}},
				ForProvider: v1alpha1.TalosClusterParameters{
					Endpoint: "https://127.0.0.1:1", ControlPlane: v1alpha1.ControlPlaneParameters{Count: 1},
					Versions: v1alpha1.ClusterVersions{Talos: "v1.13.9", Kubernetes: "v1.35.4"},
				},
			},
		},
		&v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "worker-1", Finalizers: []string{v1alpha1.FinalizerMachine}},
			Spec: v1alpha1.TalosMachineSpec{ForProvider: v1alpha1.TalosMachineParameters{
				ClusterRef: &v1alpha1.ClusterReference{Name: "prod"}, Role: v1alpha1.RoleWorker, Approved: true,
				Address: "127.0.0.1:1", Install: v1alpha1.MachineInstall{Disk: "/dev/sda"},
			}},
		},
	}
}

// saysOnce holds that the events of what waits tell of it, and that a wait is not told again and again.
func saysOnce(ctx context.Context, t *testing.T, c client.Client) {
	t.Helper()
	for _, kind := range []string{v1alpha1.TalosClusterKind, v1alpha1.TalosMachineKind} {
		events, refused := &corev1.EventList{}, 0
		if err := c.List(ctx, events, client.InNamespace("default")); err != nil {
			t.Fatalf("cannot list events: %v", err)
		}
		for _, e := range events.Items {
			if e.InvolvedObject.Kind != kind || e.Reason != "CannotDeleteExternalResource" {
				continue
			}
			refused++
			if e.Count > looks/4 { // Not once to the letter: another refusal may come in between.
				t.Errorf("%s %s was told %d times: %s", kind, e.InvolvedObject.Name, e.Count, e.Message)
			}
		}
		if refused == 0 {
			t.Errorf("no event tells why a %s stays", kind)
		}
	}
}

// measures holds that what dashboards and alerts of Crossplane's providers look at is there for both kinds, and that one machine
// that takes its time keeps no other waiting.
func measures(t *testing.T, at string) {
	t.Helper()
	for _, kind := range []string{v1alpha1.TalosClusterKind, v1alpha1.TalosMachineKind} {
		gvk := fmt.Sprintf("{gvk=%q}", v1alpha1.SchemeGroupVersion.WithKind(kind).String())
		for _, want := range []string{
			"crossplane_managed_resource_exists" + gvk,
			"crossplane_managed_resource_first_time_to_reconcile_seconds_count" + gvk,
			fmt.Sprintf("controller_runtime_max_concurrent_reconciles{controller=%q} %d", controllerOf(kind), testRate),
		} {
			eventually(t, "metrics are shown", func() error { return answers(at, want) })
		}
	}
	eventually(t, "own metrics are shown", func() error { return answers(at, "ichor_refusals_total") })
}

// TestRequestsKeepUpWithPasses: the client's own limit of five requests a second would slow down each pass of a large fleet,
// whatever the provider was told.
func TestRequestsKeepUpWithPasses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, path, []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],`+
		` "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}]}`))
	for _, rate := range []int{10, 100} {
		cfg, err := restConfig(&flags{kubeconfig: path, maxReconcileRate: rate})
		if err != nil {
			t.Fatalf("restConfig(...): %v", err)
		}
		if cfg.QPS < float32(2*rate) {
			t.Errorf("%g requests a second for %d passes a second", cfg.QPS, rate)
		}
	}
}
