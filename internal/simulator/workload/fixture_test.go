package workload

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/maesh/provider-ichor/internal/lab/controlplane"
)

// binaries are built before the first test, so that no test's deadline pays for a compiler.
var binaries controlplane.Binaries

func TestMain(m *testing.M) {
	var err error
	if binaries, err = controlplane.EnsureBinaries(context.Background(), os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// within polls until ok, and fails the test if that takes longer than any busy machine should need.
func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(2 * time.Minute)
	for !ok() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("waited too long until %s", what)
		}
	}
}

// newPKI is what Talos generates for a cluster, key formats included.
func newPKI(t *testing.T) PKI {
	t.Helper()
	bundle, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), nil)
	if err != nil {
		t.Fatal(err)
	}
	return PKI{
		Kubernetes: bundle.Certs.K8s, Aggregator: bundle.Certs.K8sAggregator, Etcd: bundle.Certs.Etcd, ServiceAccount: bundle.Certs.K8sServiceAccount,
	}
}

// startEtcd starts one etcd with client certificates of the cluster's etcd authority, as a Talos control plane does. It
// listens at two addresses.
func startEtcd(t *testing.T, pki PKI) (one, two netip.AddrPort) {
	t.Helper()
	dir := t.TempDir()
	pair, err := keyPair(pki.Etcd).Issue(controlplane.Leaf{CommonName: "etcd", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"ca.crt": pki.Etcd.Crt, "etcd.crt": pair.Cert, "etcd.key": pair.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	one, two = reservePort(t), reservePort(t)
	client, peer := "https://"+one.String()+",https://"+two.String(), "http://"+reservePort(t).String()
	p, err := controlplane.StartProcess(controlplane.Command{
		Name: "etcd", Path: binaries.Etcd, Log: filepath.Join(dir, "etcd.log"),
		Args: []string{
			"--name=one", "--data-dir=" + filepath.Join(dir, "data"), "--unsafe-no-fsync", "--log-level=warn",
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=one=" + peer,
			"--client-cert-auth", "--trusted-ca-file=" + filepath.Join(dir, "ca.crt"),
			"--cert-file=" + filepath.Join(dir, "etcd.crt"), "--key-file=" + filepath.Join(dir, "etcd.key"),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return one, two
}

func reservePort(t *testing.T) netip.AddrPort {
	t.Helper()
	port, err := controlplane.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	return port.Loopback()
}

// A world is a cluster over one etcd, with clients.
type world struct {
	*Cluster

	client          kubernetes.Interface
	etcd, etcdAgain netip.AddrPort // one etcd that listens at two addresses, as if there were two members
}

func newWorld(t *testing.T) *world {
	t.Helper()
	pki := newPKI(t)
	w := &world{}
	w.etcd, w.etcdAgain = startEtcd(t, pki)
	var err error
	w.Cluster, err = New(Options{Dir: t.TempDir(), Tools: binaries, Endpoint: reservePort(t), PKI: pki, Scale: 100})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	config, err := clientcmd.RESTConfigFromKubeConfig(w.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 200, 400
	if w.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) up(t *testing.T) {
	t.Helper()
	w.SetEtcd([]netip.AddrPort{w.etcd})
	within(t, "the API is up", w.Up)
}

func (w *world) ready(t *testing.T, node string) {
	t.Helper()
	within(t, node+" is Ready", func() bool { ready, known := w.NodeReady(node); return ready && known })
}

// machine is a node with the number i.
func machine(name string, i byte, controlPlane bool) Node {
	return Node{
		Name: name, Address: netip.AddrFrom4([4]byte{127, 20, 0, i}), ControlPlane: controlPlane,
		KubeletVersion: "v1.35.4", OSImage: "Talos (v1.13.9)", UUID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), BootID: "first",
	}
}
