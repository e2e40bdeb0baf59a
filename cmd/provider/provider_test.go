package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/controller"
	"github.com/maesh/provider-ichor/internal/lab/controlplane"
)

// TestRun starts the provider as Crossplane does, on a real API server, and ends it with a signal: it is ready only once its
// caches are filled and its webhooks are served, has one leader, keeps the pace that it was told, shows its metrics, and gives
// its Lease back.
func TestRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	api := startAPIServer(ctx, t)
	front, at := standInFront(t, api.RESTConfig())
	kubeconfig, err := controlplane.Kubeconfig(&rest.Config{Host: at})
	if err != nil {
		t.Fatalf("Kubeconfig(...): %v", err)
	}
	dir, ports := t.TempDir(), reserve(t, 3)
	write(t, filepath.Join(dir, "kubeconfig"), kubeconfig)
	serving(t, dir)
	f, err := parse([]string{
		"--kubeconfig=" + filepath.Join(dir, "kubeconfig"), "--namespace=default", "--leader-election",
		"--metrics-bind-address=" + ports[0], "--health-probe-bind-address=" + ports[1],
		"--webhook-cert-dir=" + dir, "--webhook-host=127.0.0.1", "--webhook-port=" + strings.TrimPrefix(ports[2], "127.0.0.1:"),
		"--poll=" + testPoll.String(), "--wait=" + testWait.String(), "--poll-state-metric=" + testPoll.String(), fmt.Sprintf("--max-reconcile-rate=%d", testRate),
	}, func(string) string { return "" })
	if err != nil {
		t.Fatalf("parse(...): %v", err)
	}

	running, signal := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- run(running, f) }()
	becomesReady(t, front, ports)
	eventually(t, "the provider leads", func() error {
		if holder := leader(ctx, t, api); holder == "" {
			return fmt.Errorf("nobody leads")
		}
		return nil
	})
	eventually(t, "metrics are shown", func() error { return answers("http://"+ports[0]+"/metrics", "leader_election_master_status") })
	if err := controlplane.InstallCRDs(ctx, api.RESTConfig(), filepath.Join("..", "..", "package", "crds")); err != nil {
		t.Fatalf("cannot install the kinds: %v", err) // Only now, as when somebody activates them.
	}
	c := newClient(t, api)
	observes(ctx, t, c)
	keepsPace(ctx, t, c)
	measures(t, "http://"+ports[0]+"/metrics")
	givesUp(ctx, t, c, front)
	front.watchesLittle(t)

	signal()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the provider ended with an error: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("the provider did not end")
	}
	if holder := leader(ctx, t, api); holder != "" {
		t.Errorf("the provider left its Lease to %q: the next one has to wait until it expires", holder)
	}
}

// becomesReady holds that the provider is alive from the start, and ready no sooner than it can do its work: an upgrade takes the
// old one away then.
func becomesReady(t *testing.T, front *front, ports []string) {
	t.Helper()
	eventually(t, "the provider is healthy", func() error { return answers("http://"+ports[1]+"/healthz", "ok") })
	eventually(t, "the provider waits for its caches", func() error { return answers("http://"+ports[1]+"/readyz/caches", "caches are not filled yet") })
	front.letThrough()
	eventually(t, "the provider is ready", func() error { return answers("http://"+ports[1]+"/readyz", "ok") })
	for _, check := range []string{"caches", "webhook"} {
		eventually(t, check+" counts for readiness", func() error { return answers("http://"+ports[1]+"/readyz/"+check, "ok") })
	}
	for _, kind := range []string{"talosmachine", "taloscluster"} {
		eventually(t, "the webhook of "+kind+" is served", func() error {
			return answers("https://"+ports[2]+"/validate-ichor-maesh-dev-v1alpha1-"+kind, "request body is empty")
		})
	}
}

func newClient(t *testing.T, api *controlplane.ControlPlane) client.Client {
	t.Helper()
	scheme, err := controller.NewScheme()
	if err != nil {
		t.Fatalf("NewScheme(): %v", err)
	}
	c, err := client.New(api.RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatalf("cannot make a client: %v", err)
	}
	return c
}

// observes holds that controllers run and that they do what management policies say: without those, which Crossplane lets a
// provider choose, nobody could give a machine up.
func observes(ctx context.Context, t *testing.T, c client.Client) {
	t.Helper()
	m := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cp-1"},
		Spec: v1alpha1.TalosMachineSpec{
			ManagedResourceSpec: xpv2.ManagedResourceSpec{ManagementPolicies: xpv2.ManagementPolicies{xpv2.ManagementActionObserve}},
			ForProvider: v1alpha1.TalosMachineParameters{
				ClusterRef: &v1alpha1.ClusterReference{Name: "prod"}, Role: v1alpha1.RoleControlPlane,
				Address: "127.0.0.1:1", Install: v1alpha1.MachineInstall{Disk: "/dev/sda"},
			},
		},
	}
	if err := c.Create(ctx, m); err != nil {
		t.Fatalf("cannot create a TalosMachine: %v", err)
	}
	eventually(t, "a machine that is only to be observed is observed", func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(m), m); err != nil {
			return err
		}
		if synced := m.GetCondition(xpv2.TypeSynced); synced.Status != corev1.ConditionTrue {
			return fmt.Errorf("Synced is %q: %s", synced.Status, synced.Message)
		}
		return nil
	})
	isLookedAt(t, v1alpha1.TalosMachineKind, polls)
	if err := c.Delete(ctx, m); err != nil {
		t.Fatalf("cannot delete the TalosMachine: %v", err)
	}
	isGone(ctx, t, c, m)
}

// TestRunWithoutACluster holds that the provider ends with an error when there is no management cluster.
func TestRunWithoutACluster(t *testing.T) {
	f, err := parse([]string{"--kubeconfig=" + filepath.Join(t.TempDir(), "none")}, func(string) string { return "" })
	if err != nil {
		t.Fatalf("parse(...): %v", err)
	}
	if err := run(context.Background(), f); err == nil || !strings.Contains(err.Error(), "cannot find the management cluster") {
		t.Errorf("run(...): %v, want an error that says what is missing", err)
	}
}

func startAPIServer(ctx context.Context, t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	binaries, err := controlplane.EnsureBinaries(ctx, os.Stderr)
	if err != nil {
		t.Fatalf("cannot build the API server: %v", err)
	}
	api, err := controlplane.Start(ctx, controlplane.Options{Binaries: binaries})
	if err != nil {
		t.Fatalf("cannot start the API server: %v", err)
	}
	t.Cleanup(func() {
		if err := api.Stop(); err != nil {
			t.Errorf("cannot stop the API server: %v", err)
		}
	})
	return api
}

// reserve returns addresses that nobody else is given.
func reserve(t *testing.T, n int) []string {
	t.Helper()
	addresses := make([]string, 0, n)
	for range n {
		p, err := controlplane.ReservePort()
		if err != nil {
			t.Fatalf("ReservePort(): %v", err)
		}
		t.Cleanup(p.Release)
		addresses = append(addresses, p.Loopback().String())
	}
	return addresses
}

// serving writes a serving certificate into a directory.
func serving(t *testing.T, dir string) {
	t.Helper()
	ca, err := controlplane.NewCA("webhooks")
	if err != nil {
		t.Fatalf("NewCA(...): %v", err)
	}
	pair, err := ca.Issue(controlplane.Leaf{CommonName: "webhooks", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		t.Fatalf("Issue(...): %v", err)
	}
	write(t, filepath.Join(dir, "tls.crt"), pair.Cert)
	write(t, filepath.Join(dir, "tls.key"), pair.Key)
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatalf("cannot write %s: %v", path, err)
	}
}

// leader is who holds the leader election Lease.
func leader(ctx context.Context, t *testing.T, api *controlplane.ControlPlane) string {
	t.Helper()
	c, err := client.New(api.RESTConfig(), client.Options{})
	if err != nil {
		t.Fatalf("cannot make a client: %v", err)
	}
	l := &coordinationv1.Lease{}
	err = c.Get(ctx, types.NamespacedName{Namespace: "default", Name: "crossplane-leader-election-provider-ichor"}, l)
	if client.IgnoreNotFound(err) != nil {
		t.Fatalf("cannot read the Lease: %v", err)
	}
	return ptr.Deref(l.Spec.HolderIdentity, "")
}

// answers returns an error unless the answer at a URL, its status included, contains the text.
func answers(url, text string) error {
	c := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // The certificate was made by this test.
		DisableKeepAlives: true,
	}}
	res, err := c.Get(url)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if answer := res.Status + "\n" + string(body); !strings.Contains(answer, text) {
		return fmt.Errorf("%s answered %.200q, which does not contain %q", url, answer, text)
	}
	return nil
}

// eventually polls until check returns no error.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("%s: %v", what, err)
		}
	}
}
