package simulator

import (
	"context"
	stdx509 "crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// configured adds a machine that is installed and configured, and waits until its services run. A control plane then waits for
// etcd in stage booting.
func configured(t *testing.T, f *Fleet, c *testCluster, name string, kind machinetype.Type) *Machine {
	t.Helper()
	m := addMachine(t, f, MachineSpec{Name: name, Installed: true, PlatformConfig: c.config(t, kind)})
	await(t, m, "running services", func(m *Machine) bool {
		s := m.system()
		if s == nil || !m.APIUp() {
			return false
		}
		svc, ok := s.services.get("kubelet")
		return ok && svc.state == svcRunning
	})
	return m
}

// clientCert makes client credentials with everything chosen by the test.
func clientCert(t *testing.T, ca *x509.PEMEncodedCertificateAndKey, opts ...x509.Option) *x509.PEMEncodedCertificateAndKey {
	t.Helper()
	authority, err := x509.NewCertificateAuthorityFromCertificateAndKey(ca)
	if err != nil {
		t.Fatal(err)
	}
	opts = append([]x509.Option{
		x509.Organization(string(role.Admin)), x509.NotAfter(time.Now().Add(time.Hour)), x509.NotBefore(time.Now().Add(-time.Hour)),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}),
	}, opts...)
	pair, err := x509.NewKeyPair(authority, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return x509.NewCertificateAndKeyFromKeyPair(pair)
}

func TestTLSOfRunningMode(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	c, other := newTestCluster(t, endpointOf(f)), newTestCluster(t, endpointOf(f))
	m := configured(t, f, c, "cp", machinetype.TypeControlPlane)
	address, os := m.Address().String(), c.bundle.Certs.OS
	with := func(ca []byte, cert *x509.PEMEncodedCertificateAndKey) *client.Client {
		return newClient(t, client.WithConfig(clientconfig.NewConfig("test", []string{address}, ca, cert)))
	}
	both := []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth, stdx509.ExtKeyUsageClientAuth}
	for _, tc := range []struct {
		reason string
		client *client.Client
		code   codes.Code
		text   string
	}{
		{"the right certificate", with(os.Crt, clientCert(t, os)), codes.OK, ""},
		{"both key usages", with(os.Crt, clientCert(t, os, x509.ExtKeyUsage(both))), codes.Unavailable, "tls: bad certificate"},
		{"expired", with(os.Crt, clientCert(t, os, x509.NotAfter(time.Now().Add(-time.Minute)))), codes.Unavailable, "tls: expired certificate"},
		{"of another CA", with(os.Crt, clientCert(t, other.bundle.Certs.OS)), codes.Unavailable, "tls: unknown certificate authority"},
		{"the server's CA unknown", with(other.bundle.Certs.OS.Crt, clientCert(t, os)), codes.Unavailable, "signed by unknown authority"},
		{"no certificate", insecure(t, m), codes.Unavailable, "certificate required"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			ctx := testContext(t)
			for {
				_, err := tc.client.Version(ctx)
				switch {
				case tc.code != status.Code(err):
					t.Fatalf("error %v, want %v", err, tc.code)
				case err == nil || strings.Contains(err.Error(), tc.text):
					return
				}
				// The server's alert races with the client's first write, which may see only a broken pipe: look again.
				if ctx.Err() != nil {
					t.Fatalf("error %v, want %q", err, tc.text)
				}
			}
		})
	}

	for fault, since := range map[string]time.Duration{FaultClockBehind: time.Minute, FaultClockFarBehind: 61 * time.Minute} {
		if err := m.SetFault(fault, true); err != nil {
			t.Fatal(err)
		}
		_, err := with(os.Crt, clientCert(t, os, x509.NotBefore(time.Now().Add(-since)))).Version(testContext(t))
		if status.Code(err) != codes.Unavailable {
			t.Errorf("a machine with fault %s answers %v to a certificate that is valid since %s, want Unavailable", fault, err, since)
		}
		if err := m.SetFault(fault, false); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRolesOfRunningMode(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	c := newTestCluster(t, endpointOf(f))
	m := configured(t, f, c, "cp", machinetype.TypeControlPlane)

	version := func(ctx context.Context, c *client.Client) error { _, err := c.Version(ctx); return err }
	snapshot := func(ctx context.Context, c *client.Client) error {
		_, err := c.EtcdAlarmDisarm(ctx)
		return err
	}
	boot := func(ctx context.Context, c *client.Client) error {
		r, err := c.Read(ctx, bootIDPath)
		if err == nil {
			_, err = r.Read(make([]byte, 1))
		}
		return err
	}
	machineConfig := getResource(config.MachineConfigType, config.NamespaceName, config.ActiveID)
	write := func(ctx context.Context, c *client.Client) error {
		return c.COSI.Create(ctx, runtime.NewMachineStatus())
	}
	denied := codes.PermissionDenied
	for r, calls := range map[role.Role][]call{
		role.Admin: {
			{"version", version, codes.OK, ""}, {"boot id", boot, codes.OK, ""}, {"config", machineConfig, codes.OK, ""},
			{"write", write, denied, "write access is not allowed"},
		},
		role.Operator: {{"version", version, codes.OK, ""}, {"boot id", boot, denied, "not authorized"}, {"config", machineConfig, denied, "not authorized"}},
		role.Reader: {
			{"version", version, codes.OK, ""}, {"disarm", snapshot, denied, "not authorized"}, {"config", machineConfig, denied, "not authorized"},
			{"apply", func(ctx context.Context, c *client.Client) error {
				_, err := c.ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{})
				return err
			}, denied, "not authorized"},
		},
		role.EtcdBackup: {{"version", version, denied, "not authorized"}},
		"os:nobody":     {{"version", version, denied, "not authorized"}},
	} {
		t.Run(string(r), func(t *testing.T) { checkCalls(t, c.client(t, m, r), calls) })
	}

	t.Run("an impersonator has the roles that it passes on", func(t *testing.T) {
		ctx := metadata.AppendToOutgoingContext(testContext(t), rolesMetadataKey, string(role.Reader))
		imp := c.client(t, m, role.Impersonator)
		if _, err := imp.Version(ctx); err != nil {
			t.Error(err)
		}
		if err := imp.Reboot(ctx); status.Code(err) != denied {
			t.Errorf("reboot as reader: %v", err)
		}
	})
	for _, rpc := range f.Log().Snapshot() {
		if rpc.Method == machineService+"Reboot" && (rpc.Code != denied || !rpc.Mutating || !rpc.Done) {
			t.Errorf("the log has %+v", rpc)
		}
	}
}

func TestReadingBack(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	c := newTestCluster(t, endpointOf(f))
	m := configured(t, f, c, "cp", machinetype.TypeControlPlane)
	ctx, admin := testContext(t), c.client(t, m)

	data := append([]byte("# a comment that must survive\n"), c.config(t, machinetype.TypeControlPlane)...)
	if _, err := admin.ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{Data: data, Mode: machine.ApplyConfigurationRequest_AUTO}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{config.ActiveID, config.PersistentID} {
		r, err := safe.StateGetByID[*config.MachineConfig](ctx, admin.COSI, id)
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Container().Bytes()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(data), string(got)); diff != "" {
			t.Errorf("%s differs: %s", id, diff)
		}
	}
	members, err := safe.StateListAll[*cluster.Member](ctx, admin.COSI)
	if err != nil {
		t.Fatal(err)
	}
	if members.Len() != 1 || members.Get(0).TypedSpec().OperatingSystem != "Talos (v1.13.9)" {
		t.Errorf("members: %v", members)
	}
	generated, err := admin.GenerateClientConfiguration(ctx, &machine.GenerateClientConfigurationRequest{
		Roles: []string{string(role.Reader)}, CrtTtl: durationpb.New(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	talosconfig, err := clientconfig.FromBytes(generated.GetMessages()[0].GetTalosconfig())
	if err != nil || talosconfig.Context != "reader@test" {
		t.Errorf("talosconfig: context %q, error %v", talosconfig.Context, err)
	}
}
