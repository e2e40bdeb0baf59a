package simulator

import (
	"context"
	"crypto/tls"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
)

// testScale makes Talos's minutes pass in half a second, and leaves etcd its own (unscaled) pace.
const testScale = 60

// testTimeout bounds every wait of a test on a loaded machine.
const testTimeout = 20 * time.Second

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// freeSubnet finds a /24 of loopback addresses on which nobody listens yet.
func freeSubnet(t *testing.T) netip.Prefix {
	t.Helper()
	for range 100 {
		addr := netip.AddrFrom4([4]byte{127, byte(20 + rand.IntN(200)), byte(rand.IntN(250)), 0})
		probe := net.JoinHostPort(addr.Next().String(), strconv.Itoa(constants.ApidPort))
		l, err := net.Listen("tcp", probe)
		if err != nil {
			continue
		}
		_ = l.Close()
		return netip.PrefixFrom(addr, 24)
	}
	t.Fatal("no free subnet")
	return netip.Prefix{}
}

func newTestFleet(t *testing.T, opts Options) *Fleet {
	t.Helper()
	opts.Dir = t.TempDir()
	opts.Subnet = freeSubnet(t)
	if opts.Scale == 0 {
		opts.Scale = testScale
	}
	if os.Getenv("TALOSSIM_LOG") != "" {
		opts.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	f, err := NewFleet(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func addMachine(t *testing.T, f *Fleet, spec MachineSpec) *Machine {
	t.Helper()
	m, err := f.AddMachine(spec)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func await(t *testing.T, m *Machine, what string, predicate func(*Machine) bool) {
	t.Helper()
	if err := m.Wait(testContext(t), predicate); err != nil {
		t.Fatalf("%s never came: %v", what, err)
	}
}

func awaitStage(t *testing.T, m *Machine, stage string) {
	t.Helper()
	await(t, m, "stage "+stage, func(m *Machine) bool { return m.Stage() == stage && m.APIUp() })
}

func awaitReady(t *testing.T, m *Machine) {
	t.Helper()
	await(t, m, "readiness", (*Machine).Ready)
}

// A testCluster holds the PKI of one cluster and makes configurations and clients for it.
type testCluster struct {
	bundle   *secrets.Bundle
	endpoint string
}

func newTestCluster(t *testing.T, endpoint string) *testCluster {
	t.Helper()
	bundle, err := secrets.NewBundle(secrets.NewFixedClock(time.Now().Add(-time.Minute)), config.TalosVersion1_13)
	if err != nil {
		t.Fatal(err)
	}
	return &testCluster{bundle: bundle, endpoint: endpoint}
}

func (c *testCluster) config(t *testing.T, kind machinetype.Type, opts ...generate.Option) []byte {
	t.Helper()
	opts = append([]generate.Option{
		generate.WithSecretsBundle(c.bundle), generate.WithVersionContract(config.TalosVersion1_13),
		generate.WithInstallDisk("/dev/sda"), generate.WithInstallImage("ghcr.io/siderolabs/installer:v1.13.9"),
	}, opts...)
	in, err := generate.NewInput("test", c.endpoint, "1.35.4", opts...)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := in.Config(kind)
	if err != nil {
		t.Fatal(err)
	}
	data, err := cfg.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// talosconfig makes credentials with these roles.
func (c *testCluster) talosconfig(t *testing.T, endpoint string, roles ...role.Role) *clientconfig.Config {
	t.Helper()
	cert, err := c.bundle.GenerateTalosAPIClientCertificateWithTTL(role.MakeSet(roles...), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return clientconfig.NewConfig("test", []string{endpoint}, c.bundle.Certs.OS.Crt, cert)
}

func (c *testCluster) client(t *testing.T, m *Machine, roles ...role.Role) *client.Client {
	t.Helper()
	if len(roles) == 0 {
		roles = []role.Role{role.Admin}
	}
	return newClient(t, client.WithConfig(c.talosconfig(t, m.Address().String(), roles...)))
}

func insecure(t *testing.T, m *Machine) *client.Client {
	t.Helper()
	return newClient(t, client.WithEndpoints(m.Address().String()), client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}))
}

func newClient(t *testing.T, opts ...client.OptionFunc) *client.Client {
	t.Helper()
	c, err := client.New(context.Background(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func endpointOf(f *Fleet) string {
	addr := f.opts.Subnet.Masked().Addr().Next().Next()
	return "https://" + net.JoinHostPort(addr.String(), "6443")
}

// Kubelets renew their leases by the pace of their nodes: the more of them there are, the less a scale may speed them up.
func TestNodesOfALightFleetKeepTheirPace(t *testing.T) {
	for light, want := range map[bool]float64{false: 40, true: 1} {
		f, err := NewFleet(Options{Dir: t.TempDir(), Scale: 40, Light: light})
		if err != nil {
			t.Fatal(err)
		}
		if got := f.nodeScale(); got != want {
			t.Errorf("light %t: the waits of nodes are divided by %v, want %v", light, got, want)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
