package simulator

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"google.golang.org/grpc/codes"
)

func TestFaultTable(t *testing.T) {
	f := newTestFleet(t, Options{})
	m := addMachine(t, f, MachineSpec{Name: "m", PoweredOff: true})
	seen := map[string]bool{}
	for _, fault := range Faults() {
		if seen[fault.Name] || !strings.HasSuffix(fault.Doc, ".") {
			t.Errorf("fault %q is there twice or its documentation is no sentence", fault.Name)
		}
		seen[fault.Name] = true
		if err := m.SetFault(fault.Name, true); err != nil {
			t.Error(err)
		}
	}
	if got := len(m.Faults()); got != len(seen) {
		t.Errorf("%d faults are on, want %d", got, len(seen))
	}
	if err := m.SetFault("nope", true); err == nil {
		t.Error("a fault that does not exist was set")
	}
}

func TestFaultsOfTheNetwork(t *testing.T) {
	f := newTestFleet(t, Options{})
	m := addMachine(t, f, MachineSpec{Name: "m"})
	awaitStage(t, m, "maintenance")
	c := insecure(t, m)
	version := func(timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		_, err := c.Version(ctx)
		return err
	}
	if err := version(testTimeout); err != nil {
		t.Fatal(err)
	}

	m.Partition(true)
	if err := version(300 * time.Millisecond); codeOf(err) != codes.DeadlineExceeded {
		t.Errorf("an open connection to a black hole: %v", err)
	}
	conn, err := net.Dial("tcp", net.JoinHostPort(m.Address().String(), strconv.Itoa(constants.ApidPort)))
	if err != nil {
		t.Fatalf("a black hole does not accept: %v", err)
	}
	_ = conn.SetDeadline(time.Now().Add(300 * time.Millisecond))
	if err := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).Handshake(); err == nil {
		t.Error("a black hole answered")
	}
	_ = conn.Close()
	m.Partition(false)
	eventually(t, "an answer after the partition", func() bool { return version(time.Second) == nil })

	if err := m.SetFault(FaultAPIDown, true); err != nil {
		t.Fatal(err)
	}
	if err := version(time.Second); codeOf(err) != codes.Unavailable {
		t.Errorf("a machine that is down: %v", err)
	}
	if err := m.SetFault(FaultAPIDown, false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an answer after the fault", func() bool { return version(time.Second) == nil })
}

// eventually looks again and again until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, ticker := testContext(t), time.NewTicker(20*time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("%s never came", what)
		}
	}
}

func TestFaultsOfIdentity(t *testing.T) {
	f := newTestFleet(t, Options{})
	first := addMachine(t, f, MachineSpec{Name: "first", PoweredOff: true})
	m := addMachine(t, f, MachineSpec{Name: "m"})
	awaitStage(t, m, "maintenance")
	fingerprint := func() string {
		conn, err := tls.Dial("tcp", net.JoinHostPort(m.Address().String(), strconv.Itoa(constants.ApidPort)), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		cert := conn.ConnectionState().PeerCertificates[0]
		if cert.Subject.CommonName != "maintenance-service.talos.dev" {
			t.Errorf("certificate of %q", cert.Subject.CommonName)
		}
		return x509.SPKIFingerprint(cert).String()
	}
	before := fingerprint()
	if again := fingerprint(); again != before {
		t.Error("the fingerprint changes within a boot")
	}
	if err := errors.Join(m.SetFault(FaultFingerprintChange, true), m.SetFault(FaultDuplicateUUID, true)); err != nil {
		t.Fatal(err)
	}
	if fingerprint() == before {
		t.Error("the fingerprint stays the same")
	}
	info := insecure(t, m)
	eventually(t, "the other machine's UUID", func() bool {
		r, err := safe.StateGetByID[*hardware.SystemInformation](testContext(t), info.COSI, hardware.SystemInformationID)
		return err == nil && r.TypedSpec().UUID == first.UUID()
	})
	if err := m.SetFault(FaultFingerprintChange, false); err != nil {
		t.Fatal(err)
	}
	m.PowerOff()
	m.PowerOn()
	awaitStage(t, m, "maintenance")
	if fingerprint() == before {
		t.Error("the fingerprint outlives the boot")
	}
}

func TestFaultsOfBootstrap(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	c := newTestCluster(t, endpointOf(f))
	cp := configured(t, f, c, "cp", machinetype.TypeControlPlane)
	worker := configured(t, f, c, "w", machinetype.TypeWorker)
	bootstrap := func(ctx context.Context, c *client.Client) error {
		return c.Bootstrap(ctx, &machine.BootstrapRequest{})
	}

	if err := cp.SetFault(FaultTimeUnsynced, true); err != nil {
		t.Fatal(err)
	}
	checkCalls(t, c.client(t, cp), []call{{"time is not in sync", bootstrap, codes.FailedPrecondition, "time is not in sync yet"}})
	if err := cp.SetFault(FaultTimeUnsynced, false); err != nil {
		t.Fatal(err)
	}
	checkCalls(t, c.client(t, worker), []call{{"a worker", bootstrap, codes.Unimplemented, "bootstrap is only available on control plane nodes"}})
	checkCalls(t, c.client(t, cp), []call{
		{"the first time", bootstrap, codes.OK, ""},
		{"the second time", bootstrap, codes.AlreadyExists, "etcd data directory is not empty"},
	})
	awaitReady(t, cp)
	awaitReady(t, worker)
}

func TestNothingToBoot(t *testing.T) {
	f := newTestFleet(t, Options{})
	m := addMachine(t, f, MachineSpec{Name: "m", PoweredOff: true})
	if err := m.SetFault(FaultNoBootMedia, true); err != nil {
		t.Fatal(err)
	}
	m.PowerOn()
	defer m.PowerOff()
	conn, err := net.Dial("tcp", net.JoinHostPort(m.Address().String(), strconv.Itoa(constants.ApidPort)))
	if err == nil {
		_ = conn.Close()
		t.Error("a machine without anything to boot answers")
	}
	if m.Stage() != "" || !m.PoweredOn() {
		t.Errorf("stage %q, power %t", m.Stage(), m.PoweredOn())
	}
}

func TestMachineOfAnotherCluster(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	c := newTestCluster(t, endpointOf(f))
	m := configured(t, f, c, "cp", machinetype.TypeControlPlane)
	version := func(ctx context.Context, c *client.Client) error { _, err := c.Version(ctx); return err }
	cl := c.client(t, m)
	checkCalls(t, cl, []call{{"ours", version, codes.OK, ""}})
	if err := m.SetFault(FaultOtherCluster, true); err != nil {
		t.Fatal(err)
	}
	// The first call may still be on the old connection, which broke: only those after it meet the other machine.
	eventually(t, "theirs", func() bool {
		err := version(testContext(t), cl)
		if codeOf(err) != codes.Unavailable {
			t.Fatalf("code %v, want %v (%v)", codeOf(err), codes.Unavailable, err)
		}
		return strings.Contains(err.Error(), "signed by unknown authority")
	})
	if err := m.SetFault(FaultOtherCluster, false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "ours again", func() bool { return version(testContext(t), cl) == nil })
}

func TestBootHangs(t *testing.T) {
	f := newTestFleet(t, Options{})
	m := addMachine(t, f, MachineSpec{Name: "m", Installed: true})
	awaitStage(t, m, "maintenance")
	if err := m.SetFault(FaultBootHangs, true); err != nil {
		t.Fatal(err)
	}
	m.system().end(ending{kind: endReboot})
	await(t, m, "the end of the boot", func(m *Machine) bool { return m.BootID() == "" })
	await(t, m, "a dark machine with power", func(m *Machine) bool { return m.Stage() == "" && m.PoweredOn() })
	if err := m.SetFault(FaultBootHangs, false); err != nil {
		t.Fatal(err)
	}
	m.PowerOff()
	m.PowerOn()
	awaitStage(t, m, "maintenance")
}

func TestDuplicateHostname(t *testing.T) {
	f := newTestFleet(t, Options{})
	first, second := addMachine(t, f, MachineSpec{Name: "first"}), addMachine(t, f, MachineSpec{Name: "second"})
	awaitStage(t, first, "maintenance")
	awaitStage(t, second, "maintenance")
	if err := second.SetFault(FaultDuplicateHostname, true); err != nil {
		t.Fatal(err)
	}
	if first.Hostname() != second.Hostname() {
		t.Errorf("hostnames %q and %q", first.Hostname(), second.Hostname())
	}
	if err := first.SetFault(FaultDuplicateHostname, true); err != nil {
		t.Fatal(err)
	}
	if first.Hostname() == second.Hostname() {
		t.Error("two machines that have it of each other have their own")
	}
}
