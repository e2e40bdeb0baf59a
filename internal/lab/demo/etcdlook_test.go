package demo

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"sigs.k8s.io/yaml"

	"github.com/maesh/provider-ichor/internal/lab"
	"github.com/maesh/provider-ichor/internal/lab/controlplane"
)

// TestEtcdLook looks at three real members, of which one after another is killed.
func TestEtcdLook(t *testing.T) {
	ca, err := controlplane.NewCA("etcd")
	if err != nil {
		t.Fatal(err)
	}
	members, endpoints := startEtcd(t, ca)
	kill := func(i int) {
		t.Helper()
		if err := members[i].Kill(); err != nil {
			t.Fatal(err)
		}
	}
	bundle, err := yaml.Marshal(map[string]any{"certs": map[string]any{"etcd": map[string]any{"crt": ca.Cert, "key": ca.Key}}})
	if err != nil {
		t.Fatal(err)
	}
	config, err := lab.EtcdTLS(bundle)
	if err != nil {
		t.Fatal(err)
	}
	w := &etcdWatch{}
	w.client, err = clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: config, DialTimeout: lookTimeout, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.client.Close(); err != nil {
			t.Error(err)
		}
	})
	sees := func(want string) {
		t.Helper()
		err := lab.Await(t.Context(), "the watch sees "+want, 20*time.Second, func(ctx context.Context) error {
			voters, up, err := w.look(ctx)
			if is := fmt.Sprintf("%d/%d", up, voters); err != nil || is != want {
				return fmt.Errorf("it sees %s (%w)", is, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	sees("3/3")
	kill(0)
	sees("2/3")
	kill(1)
	sees("1/3")
}

// startEtcd starts three members of one etcd, whose clients need a certificate of this authority.
func startEtcd(t *testing.T, ca controlplane.KeyPair) (members []*controlplane.Process, endpoints []string) {
	t.Helper()
	binaries, err := controlplane.EnsureBinaries(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	pair, err := ca.Issue(controlplane.Leaf{CommonName: "etcd", DNSNames: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"ca.crt": ca.Cert, "tls.crt": pair.Cert, "tls.key": pair.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var peers, initial []string
	for i := range 3 {
		endpoints = append(endpoints, "https://"+reserve(t))
		peers = append(peers, "http://"+reserve(t))
		initial = append(initial, fmt.Sprintf("m%d=%s", i, peers[i]))
	}
	for i := range endpoints {
		p, err := controlplane.StartProcess(controlplane.Command{
			Name: "etcd", Path: binaries.Etcd, Log: filepath.Join(dir, fmt.Sprintf("m%d.log", i)),
			Args: []string{
				fmt.Sprintf("--name=m%d", i), "--data-dir=" + filepath.Join(dir, fmt.Sprint(i)), "--unsafe-no-fsync",
				"--listen-client-urls=" + endpoints[i], "--advertise-client-urls=" + endpoints[i],
				"--listen-peer-urls=" + peers[i], "--initial-advertise-peer-urls=" + peers[i], "--initial-cluster=" + strings.Join(initial, ","),
				"--cert-file=" + filepath.Join(dir, "tls.crt"), "--key-file=" + filepath.Join(dir, "tls.key"),
				"--trusted-ca-file=" + filepath.Join(dir, "ca.crt"), "--client-cert-auth",
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
		members = append(members, p)
	}
	return members, endpoints
}

// reserve a loopback address.
func reserve(t *testing.T) string {
	t.Helper()
	port, err := controlplane.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	return port.Loopback().String()
}
