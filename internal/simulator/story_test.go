package simulator

import (
	"slices"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"google.golang.org/grpc/codes"
)

// TestFromBlankToRunning is the life of a machine from its first boot to a node that is ready, through the real client.
func TestFromBlankToRunning(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	m := addMachine(t, f, MachineSpec{Name: "cp1"})
	awaitStage(t, m, "maintenance")
	c, ctx, boot := newTestCluster(t, endpointOf(f)), testContext(t), m.BootID()

	data := c.config(t, machinetype.TypeControlPlane)
	reply, err := insecure(t, m).ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{Data: data, Mode: modeReboot})
	if err != nil {
		t.Fatal(err)
	}
	if got := reply.GetMessages()[0]; got.GetMode() != modeNoReboot {
		t.Errorf("in maintenance mode REBOOT becomes %s, want NO_REBOOT", got.GetMode())
	}
	await(t, m, "the wait for etcd after the installation", func(m *Machine) bool {
		state, _ := m.EtcdState()
		return state == svcPreparing && m.BootID() != boot
	})
	if string(m.InstalledConfig()) != string(data) || m.Stage() != "booting" {
		t.Errorf("stage %q, or the configuration is not on disk as it was sent", m.Stage())
	}
	admin := c.client(t, m)
	if err := admin.Bootstrap(ctx, &machine.BootstrapRequest{}); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, m)
	services, err := admin.ServiceList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	for _, svc := range services.GetMessages()[0].GetServices() {
		if svc.GetState() == svcRunning && svc.GetHealth().GetHealthy() {
			ids = append(ids, svc.GetId())
		}
	}
	want := []string{"apid", "auditd", "containerd", "cri", "dashboard", "etcd", "kubelet", "machined", "syslogd", "trustd", "udevd"}
	if !slices.Equal(ids, want) {
		t.Errorf("running services %q, want %q", ids, want)
	}
	sent := 0
	for _, rpc := range f.Log().Snapshot() {
		if rpc.Mutating {
			sent++
		}
		if rpc.Code != codes.OK || !rpc.Done {
			t.Errorf("the log has %+v", rpc)
		}
	}
	if sent != 2 {
		t.Errorf("%d mutating calls were sent, want ApplyConfiguration and Bootstrap", sent)
	}
}
