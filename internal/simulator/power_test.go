package simulator

import (
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
)

const newInstaller = "ghcr.io/siderolabs/installer:v1.13.10"

func TestRebootAndShutdown(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	c := newTestCluster(t, endpointOf(f))
	m := bootstrapped(t, f, c, "cp")
	admin, boot, config := c.client(t, m), m.BootID(), string(m.InstalledConfig())
	before := readBootID(t, admin)
	if before != boot+"\n" {
		t.Errorf("boot_id reads %q, want %q", before, boot)
	}

	events := watchEvents(t, admin)
	if err := admin.Reboot(testContext(t)); err != nil {
		t.Fatal(err)
	}
	seen := awaitEvent(t, events, isTask("stopAllServices", machine.TaskEvent_START))
	if slices.Contains(seen, "phase drain START") || slices.Contains(seen, "phase leave START") {
		t.Errorf("a reboot drains or leaves etcd: %q", seen)
	}
	await(t, m, "another boot", func(m *Machine) bool { return m.BootID() != boot && m.Ready() })
	if string(m.InstalledConfig()) != config {
		t.Error("the configuration changed over the reboot")
	}
	if readBootID(t, c.client(t, m)) == before {
		t.Error("boot_id reads the same after the reboot")
	}

	if err := c.client(t, m).Shutdown(testContext(t)); err != nil {
		t.Fatal(err)
	}
	await(t, m, "power off", func(m *Machine) bool { return !m.PoweredOn() })
	if got := f.discovery.list(c.bundle.Cluster.ID); len(got) != 1 || got[0].expires.IsZero() {
		t.Errorf("discovery lists %v, want the machine with a time to live", got)
	}
	m.PowerOn()
	awaitReady(t, m)
}

func readBootID(t *testing.T, c *client.Client) string {
	t.Helper()
	r, err := c.Read(testContext(t), bootIDPath)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestUpgradeTheOldWay(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	c := newTestCluster(t, endpointOf(f))
	m := bootstrapped(t, f, c, "cp")
	upgrade := func(image string, opts ...client.UpgradeOption) error {
		opts = append([]client.UpgradeOption{client.WithUpgradeImage(image), client.WithUpgradeForce(true)}, opts...)
		_, err := c.client(t, m).UpgradeWithOptions(testContext(t), opts...) //nolint:staticcheck // the legacy call is what is tested
		return err
	}
	if err := upgrade("ghcr.io/siderolabs/installer:nope"); codeOf(err) != codes.Unknown {
		t.Errorf("an image that is not there: %v", err)
	}
	boot := m.BootID()
	if err := upgrade(newInstaller); err != nil {
		t.Fatal(err)
	}
	await(t, m, "the new version", func(m *Machine) bool { return m.BootID() != boot && m.Ready() })
	if m.TalosVersion() != "v1.13.10" {
		t.Errorf("version %q", m.TalosVersion())
	}

	if err := c.client(t, m).Rollback(testContext(t)); err != nil {
		t.Fatal(err)
	}
	await(t, m, "the old version", func(m *Machine) bool { return m.TalosVersion() == "v1.13.9" && m.Ready() })

	boot = m.BootID()
	if err := upgrade(newInstaller, client.WithUpgradeStage(true)); err != nil {
		t.Fatal(err)
	}
	await(t, m, "the staged version", func(m *Machine) bool { return m.TalosVersion() == "v1.13.10" && m.Ready() })

	if err := m.SetFault(FaultUpgradeRollsBack, true); err != nil {
		t.Fatal(err)
	}
	if err := upgrade("ghcr.io/siderolabs/installer:v1.13.11"); err != nil {
		t.Fatal(err)
	}
	await(t, m, "a boot of the newest version", func(m *Machine) bool { return m.TalosVersion() == "v1.13.11" && m.Stage() != "" })
	await(t, m, "the way back", func(m *Machine) bool { return m.TalosVersion() == "v1.13.10" && m.Ready() })
}

func TestUpgradeTheNewWay(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	c := newTestCluster(t, endpointOf(f))
	m := bootstrapped(t, f, c, "cp")
	admin := c.client(t, m)
	system := &common.ContainerdInstance{Driver: common.ContainerDriver_CONTAINERD, Namespace: common.ContainerdNamespace_NS_SYSTEM}

	if _, err := lifecycleUpgrade(t, admin, system, newInstaller); codeOf(err) != codes.Internal {
		t.Errorf("an image that was not pulled: %v", err)
	}
	if _, err := pull(t, admin, system, "ghcr.io/siderolabs/installer:nope"); codeOf(err) != codes.NotFound {
		t.Errorf("an image that is not there: %v", err)
	}
	if _, err := pull(t, admin, &common.ContainerdInstance{}, newInstaller); codeOf(err) != codes.Unknown {
		t.Errorf("no namespace: %v", err)
	}
	name, err := pull(t, admin, system, newInstaller)
	if err != nil {
		t.Fatal(err)
	}
	boot := m.BootID()

	if err := m.SetFault(FaultUpgradeFails, true); err != nil {
		t.Fatal(err)
	}
	if code, err := lifecycleUpgrade(t, admin, system, name); err != nil || code == 0 {
		t.Errorf("a failing installer: exit code %d, error %v", code, err)
	}
	if err := m.SetFault(FaultUpgradeFails, false); err != nil {
		t.Fatal(err)
	}
	if code, err := lifecycleUpgrade(t, admin, system, name); err != nil || code != 0 {
		t.Fatalf("exit code %d, error %v", code, err)
	}
	if m.BootID() != boot || m.TalosVersion() != "v1.13.9" || m.Stage() != "running" {
		t.Errorf("the upgrade alone changed the running system: stage %q, version %q", m.Stage(), m.TalosVersion())
	}
	if err := admin.Reboot(testContext(t)); err != nil {
		t.Fatal(err)
	}
	await(t, m, "the new version", func(m *Machine) bool { return m.TalosVersion() == "v1.13.10" && m.Ready() })
}

func pull(t *testing.T, c *client.Client, in *common.ContainerdInstance, ref string) (name string, err error) {
	t.Helper()
	stream, err := c.ImageClient.Pull(testContext(t), &machine.ImageServicePullRequest{Containerd: in, ImageRef: ref})
	for err == nil {
		var resp *machine.ImageServicePullResponse
		if resp, err = stream.Recv(); err == nil && resp.GetName() != "" {
			name = resp.GetName()
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return name, err
}

func lifecycleUpgrade(t *testing.T, c *client.Client, in *common.ContainerdInstance, image string) (code int32, err error) {
	t.Helper()
	stream, err := c.LifecycleClient.Upgrade(testContext(t), &machine.LifecycleServiceUpgradeRequest{
		Containerd: in, Source: &machine.InstallArtifactsSource{ImageName: image},
	})
	code = -1
	for err == nil {
		var resp *machine.LifecycleServiceUpgradeResponse
		if resp, err = stream.Recv(); err != nil {
			break
		}
		if exit, ok := resp.GetProgress().GetResponse().(*machine.LifecycleServiceInstallProgress_ExitCode); ok {
			code = exit.ExitCode
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return code, err
}
