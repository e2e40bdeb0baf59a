package simulator

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	modeReboot   = machine.ApplyConfigurationRequest_REBOOT
	modeAuto     = machine.ApplyConfigurationRequest_AUTO
	modeNoReboot = machine.ApplyConfigurationRequest_NO_REBOOT
	modeStaged   = machine.ApplyConfigurationRequest_STAGED
	modeTry      = machine.ApplyConfigurationRequest_TRY
)

// edited returns a configuration with some text put under `machine:`.
func edited(data []byte, text string) []byte {
	return bytes.Replace(data, []byte("machine:\n"), []byte("machine:\n"+text), 1)
}

const (
	liveChange   = "    sysctls:\n        vm.swappiness: \"10\"\n"
	rebootChange = "    env:\n        COLOR: blue\n"
)

// configBytes reads a configuration back through the API.
func configBytes(t *testing.T, c *client.Client, id string) string {
	t.Helper()
	r, err := safe.StateGetByID[*config.MachineConfig](testContext(t), c.COSI, id)
	if err != nil {
		t.Fatal(err)
	}
	data, err := r.Container().Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestApplyModesOfRunningMode(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	c := newTestCluster(t, endpointOf(f))
	m := bootstrapped(t, f, c, "cp")
	admin, base := c.client(t, m), m.InstalledConfig()

	for _, tc := range []struct {
		reason             string
		mode               machine.ApplyConfigurationRequest_Mode
		change             string
		dry                bool
		code               codes.Code
		resolved           machine.ApplyConfigurationRequest_Mode
		text               string
		active, persistent bool // the change is in the active, in the persistent configuration afterwards
	}{
		{"a dry run changes nothing", modeAuto, liveChange, true, codes.OK, modeNoReboot, "Dry run summary:\nApplied configuration without a reboot (skipped in dry-run).\nConfig diff:\n\n", false, false},
		{"a dry run resolves to a reboot", modeAuto, rebootChange, true, codes.OK, modeReboot, "Applied configuration with a reboot (skipped in dry-run).", false, false},
		{"no reboot where one is due", modeNoReboot, rebootChange, false, codes.InvalidArgument, 0, "this config change can't be applied in immediate mode\ndiff:\n", false, false},
		{"try where a reboot is due", modeTry, rebootChange, false, codes.InvalidArgument, 0, "can't be applied in immediate mode", false, false},
		{"staged", modeStaged, liveChange, false, codes.OK, modeStaged, textStaged, false, true},
		{"no reboot", modeNoReboot, liveChange, false, codes.OK, modeNoReboot, textNoReboot, true, true},
		{"auto that needs none", modeAuto, liveChange, false, codes.OK, modeNoReboot, textNoReboot, true, true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			ctx := testContext(t)
			if _, err := admin.ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{Data: base, Mode: modeNoReboot}); err != nil {
				t.Fatal(err)
			}
			data := edited(base, tc.change)
			reply, err := admin.ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{Data: data, Mode: tc.mode, DryRun: tc.dry})
			if codeOf(err) != tc.code {
				t.Fatalf("error %v, want %v", err, tc.code)
			}
			if err != nil {
				if !strings.Contains(err.Error(), tc.text) {
					t.Errorf("error %q", err)
				}
			} else if got := reply.GetMessages()[0]; got.GetMode() != tc.resolved || !strings.Contains(got.GetModeDetails(), tc.text) {
				t.Errorf("reply %v", got)
			}
			if got := configBytes(t, admin, config.ActiveID) == string(data); got != tc.active {
				t.Errorf("active: %t, want %t", got, tc.active)
			}
			if got := configBytes(t, admin, config.PersistentID) == string(data); got != tc.persistent {
				t.Errorf("persistent: %t, want %t", got, tc.persistent)
			}
		})
	}

	t.Run("storing fails", func(t *testing.T) {
		if err := m.SetFault(FaultApplyFails, true); err != nil {
			t.Fatal(err)
		}
		_, err := admin.ApplyConfiguration(testContext(t), &machine.ApplyConfigurationRequest{Data: edited(base, liveChange)})
		if codeOf(err) != codes.Unknown {
			t.Errorf("error %v", err)
		}
		if err := m.SetFault(FaultApplyFails, false); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("auto that needs a reboot", func(t *testing.T) {
		boot, data := m.BootID(), edited(base, rebootChange)
		reply, err := admin.ApplyConfiguration(testContext(t), &machine.ApplyConfigurationRequest{Data: data, Mode: modeAuto})
		if err != nil {
			t.Fatal(err)
		}
		if got := reply.GetMessages()[0]; got.GetMode() != modeReboot || !strings.HasPrefix(got.GetModeDetails(), textReboot+": this config change can't") {
			t.Errorf("reply %v", got)
		}
		_, err = admin.ApplyConfiguration(testContext(t), &machine.ApplyConfigurationRequest{Data: base, Mode: modeAuto})
		if codeOf(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "node is rebooting") {
			t.Errorf("a second apply: %v", err)
		}
		await(t, m, "another boot", func(m *Machine) bool { return m.BootID() != boot && m.Ready() })
		if string(m.InstalledConfig()) != string(data) {
			t.Error("the configuration is not on disk")
		}
	})
}

func TestTry(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	c := newTestCluster(t, endpointOf(f))
	m := bootstrapped(t, f, c, "cp")
	admin, base := c.client(t, m), m.InstalledConfig()
	tried := edited(base, liveChange)
	apply := func(ctx context.Context, data []byte, mode machine.ApplyConfigurationRequest_Mode, dry bool, timeout time.Duration) error {
		_, err := admin.ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{
			Data: data, Mode: mode, DryRun: dry, TryModeTimeout: durationpb.New(timeout),
		})
		return err
	}
	active := func() string { return configBytes(t, admin, config.ActiveID) }

	t.Run("it is taken back", func(t *testing.T) {
		if err := apply(testContext(t), tried, modeTry, false, 30*time.Second); err != nil {
			t.Fatal(err)
		}
		if active() != string(tried) || configBytes(t, admin, config.PersistentID) != string(base) {
			t.Fatal("the tried configuration is not the active one alone")
		}
		await(t, m, "the configuration of before", func(m *Machine) bool {
			data, err := m.system().activeConfig().Bytes()
			return err == nil && string(data) == string(base)
		})
	})
	t.Run("a dry run makes it stay", func(t *testing.T) {
		if err := apply(testContext(t), tried, modeTry, false, time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := apply(testContext(t), []byte("not even valid: ["), modeAuto, true, 0); codeOf(err) != codes.InvalidArgument {
			t.Fatal(err)
		}
		s := m.system()
		s.mu.Lock()
		pending := s.rollback != nil
		s.mu.Unlock()
		if pending || active() != string(tried) {
			t.Errorf("rollback pending: %t", pending)
		}
	})
}

func TestPowerCutLosesWhatIsNotWritten(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	c := newTestCluster(t, endpointOf(f))
	m := bootstrapped(t, f, c, "cp")
	base := string(m.InstalledConfig())

	s := m.system()
	s.mu.Lock()
	s.unwritten = []byte("accepted, not yet written")
	s.mu.Unlock()
	m.PowerOff()
	if got := string(m.InstalledConfig()); got != base {
		t.Errorf("after a power cut the disk has %q", got)
	}
}
