package simulator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"google.golang.org/grpc/codes"
)

// bootstrapped adds a control plane whose (fake) etcd runs, and waits until it is ready.
func bootstrapped(t *testing.T, f *Fleet, c *testCluster, name string) *Machine {
	t.Helper()
	m := configured(t, f, c, name, machinetype.TypeControlPlane)
	m.mu.Lock()
	m.spec.PlatformConfig = nil // from here on its disk has it
	m.mu.Unlock()
	await(t, m, "a written configuration", func(m *Machine) bool { return m.InstalledConfig() != nil })
	if err := c.client(t, m).Bootstrap(testContext(t), &machine.BootstrapRequest{}); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, m)
	return m
}

// watchEvents follows a machine's events from now on; the channel closes when the stream ends.
func watchEvents(t *testing.T, c *client.Client) <-chan client.EventResult {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	events := make(chan client.EventResult, 1000)
	if err := c.EventsWatchV2(ctx, events); err != nil {
		t.Fatal(err)
	}
	return events
}

// awaitEvent reads events until one fits, and returns what it read in short form.
func awaitEvent(t *testing.T, events <-chan client.EventResult, fits func(client.Event) bool) []string {
	t.Helper()
	ctx, seen := testContext(t), []string{}
	for {
		select {
		case e := <-events:
			if e.Error != nil {
				t.Fatalf("events ended: %v after %q", e.Error, seen)
			}
			seen = append(seen, short(e.Event))
			if fits(e.Event) {
				return seen
			}
		case <-ctx.Done():
			t.Fatalf("no such event among %q", seen)
		}
	}
}

// awaitSilence reads events until the stream ends, in which nobody may be told that the reset failed.
func awaitSilence(t *testing.T, events <-chan client.EventResult) {
	t.Helper()
	ctx := testContext(t)
	for {
		select {
		case e := <-events:
			if e.Error != nil {
				return
			}
			if isSequenceError(common.Code_FATAL)(e.Event) {
				t.Errorf("a client was told: %s", short(e.Event))
			}
		case <-ctx.Done():
			t.Fatal("the stream outlives the API")
		}
	}
}

func short(e client.Event) string {
	switch p := e.Payload.(type) {
	case *machine.SequenceEvent:
		text := fmt.Sprintf("%s %s", p.GetSequence(), p.GetAction())
		if p.GetError() != nil {
			text += " " + p.GetError().GetCode().String()
		}
		if e.ActorID == "" {
			text += " (no actor)"
		}
		return text
	case *machine.PhaseEvent:
		return "phase " + p.GetPhase() + " " + p.GetAction().String()
	case *machine.TaskEvent:
		return "task " + p.GetTask() + " " + p.GetAction().String()
	default:
		return e.TypeURL
	}
}

func isTask(name string, action machine.TaskEvent_Action) func(client.Event) bool {
	return func(e client.Event) bool {
		p, ok := e.Payload.(*machine.TaskEvent)
		return ok && p.GetTask() == name && p.GetAction() == action
	}
}

func isSequenceError(code common.Code) func(client.Event) bool {
	return func(e client.Event) bool {
		p, ok := e.Payload.(*machine.SequenceEvent)
		return ok && p.GetError() != nil && p.GetError().GetCode() == code
	}
}

func wipe(labels ...string) *machine.ResetRequest {
	r := &machine.ResetRequest{Graceful: true, Reboot: true}
	for _, label := range labels {
		r.SystemPartitionsToWipe = append(r.SystemPartitionsToWipe, &machine.ResetPartitionSpec{Label: label, Wipe: true})
	}
	return r
}

func TestResetToMaintenance(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	c := newTestCluster(t, endpointOf(f))
	m := bootstrapped(t, f, c, "cp")
	admin, boot, config := c.client(t, m), m.BootID(), m.InstalledConfig()
	if config == nil {
		t.Fatal("no configuration on disk")
	}
	events := watchEvents(t, admin)
	if _, err := admin.ResetGenericWithResponse(testContext(t), wipe(labelState, labelEphemeral)); err != nil {
		t.Fatal(err)
	}
	seen := awaitEvent(t, events, isTask("stopAllServices", machine.TaskEvent_START))
	order := []string{
		"reset START", "phase drain START", "phase cleanup START", "phase dbus START", "phase leave START", "task leaveEtcd START",
		"phase preReset START", "phase stopServices START", "phase kexec START", "phase stopEverything START",
	}
	at := 0
	for _, want := range order {
		i := slices.Index(seen[at:], want)
		if i < 0 {
			t.Fatalf("%q does not come in order among %q", want, seen)
		}
		at += i
	}
	awaitStage(t, m, "maintenance")
	if m.BootID() == boot {
		t.Error("the boot ID is still the same")
	}
	if m.HasPartition(labelState) || m.HasPartition(labelEphemeral) || !m.HasPartition(labelMeta) || !m.HasPartition(labelBoot) {
		t.Error("not just STATE and EPHEMERAL were wiped")
	}
	if len(f.discovery.list(c.bundle.Cluster.ID)) != 0 {
		t.Error("discovery still lists the machine")
	}
}

func TestResetThatDoesNotWipe(t *testing.T) {
	for _, tc := range []struct {
		reason string
		fault  string
		told   bool // by an event; otherwise the API is gone by then
	}{
		{"leaving etcd fails", FaultEtcdLeaveFails, true},
		{"a fatal error before the wipe", FaultResetFatal, true},
		{"the wipe fails", FaultWipeFails, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			f := newTestFleet(t, Options{})
			useFakeEtcd(f)
			c := newTestCluster(t, endpointOf(f))
			m := bootstrapped(t, f, c, "cp")
			admin, boot, config := c.client(t, m), m.BootID(), string(m.InstalledConfig())
			if err := m.SetFault(tc.fault, true); err != nil {
				t.Fatal(err)
			}
			events := watchEvents(t, admin)
			if _, err := admin.ResetGenericWithResponse(testContext(t), wipe(labelState, labelEphemeral)); err != nil {
				t.Fatal(err)
			}
			if tc.told {
				seen := awaitEvent(t, events, isSequenceError(common.Code_FATAL))
				if !slices.Contains(seen, "reset STOP") {
					t.Errorf("no STOP before the error in %q", seen)
				}
				if m.Stage() != "rebooting" {
					t.Errorf("stage %q after a fatal error", m.Stage())
				}
			} else {
				awaitSilence(t, events)
			}
			await(t, m, "another boot", func(m *Machine) bool { return m.BootID() != "" && m.BootID() != boot && m.APIUp() })
			if m.Stage() == "maintenance" || string(m.InstalledConfig()) != config {
				t.Error("the machine was wiped")
			}
			if _, err := c.client(t, m).Version(testContext(t)); err != nil {
				t.Errorf("the old credentials: %v", err)
			}
		})
	}
}

func TestResetThatIsRefused(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	c := newTestCluster(t, endpointOf(f))
	m := bootstrapped(t, f, c, "cp")
	admin, boot := c.client(t, m), m.BootID()
	if err := m.SetFault(FaultResetLocked, true); err != nil {
		t.Fatal(err)
	}
	events := watchEvents(t, admin)
	reply, err := admin.ResetGenericWithResponse(testContext(t), wipe(labelState))
	if err != nil || reply.GetMessages()[0].GetActorId() == "" {
		t.Fatalf("reply %v, error %v", reply, err)
	}
	seen := awaitEvent(t, events, isSequenceError(common.Code_LOCKED))
	if got := seen[len(seen)-1]; got != "reset NOOP LOCKED (no actor)" {
		t.Errorf("event %q", got)
	}
	if m.BootID() != boot || m.Stage() != "running" {
		t.Errorf("the machine is in stage %q", m.Stage())
	}
	checkCalls(t, admin, []call{
		{"user disks with SYSTEM_DISK", resetCall(&machine.ResetRequest{Mode: machine.ResetRequest_SYSTEM_DISK, UserDisksToWipe: []string{"/dev/sdb"}}), codes.Unknown, "wipe mode SYSTEM_DISK doesn't support UserDisksToWipe parameter"},
		{"partitions with USER_DISKS", resetCall(&machine.ResetRequest{Mode: machine.ResetRequest_USER_DISKS, SystemPartitionsToWipe: wipe(labelState).GetSystemPartitionsToWipe()}), codes.Unknown, "wipe mode USER_DISKS doesn't support SystemPartitionsToWipe parameter"},
		{"a disk that is not there", resetCall(&machine.ResetRequest{UserDisksToWipe: []string{"/dev/sdz"}}), codes.Unknown, "device /dev/sdz wasn't found"},
		{"the system disk", resetCall(&machine.ResetRequest{UserDisksToWipe: []string{"/dev/sda"}}), codes.Unknown, "device /dev/sda is the system disk"},
		{"a label that is not there", resetCall(wipe("NOPE")), codes.Unknown, `failed to get volume status with label "NOPE"`},
	})
}

func resetCall(r *machine.ResetRequest) func(context.Context, *client.Client) error {
	return func(ctx context.Context, c *client.Client) error { return c.ResetGeneric(ctx, r) }
}

func TestRebootCancelsReset(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	c := newTestCluster(t, endpointOf(f))
	m := bootstrapped(t, f, c, "cp")
	admin, boot := c.client(t, m), m.BootID()
	if err := m.SetFault(FaultResetHangs, true); err != nil {
		t.Fatal(err)
	}
	events := watchEvents(t, admin)
	if _, err := admin.ResetGenericWithResponse(testContext(t), wipe(labelState, labelEphemeral)); err != nil {
		t.Fatal(err)
	}
	awaitStage(t, m, "resetting")
	if _, err := admin.ResetGenericWithResponse(testContext(t), wipe(labelState)); err != nil {
		t.Fatal(err)
	}
	awaitEvent(t, events, isSequenceError(common.Code_LOCKED))
	if err := admin.Reboot(testContext(t)); err != nil {
		t.Fatal(err)
	}
	awaitEvent(t, events, isSequenceError(common.Code_CANCELED))
	await(t, m, "another boot", func(m *Machine) bool { return m.BootID() != "" && m.BootID() != boot })
	if m.InstalledConfig() == nil {
		t.Error("the cancelled reset wiped the machine")
	}
}

func TestResetOfOneThing(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	c := newTestCluster(t, endpointOf(f))
	m := bootstrapped(t, f, c, "cp")

	t.Run("no partition that is to be wiped", func(t *testing.T) {
		boot, r := m.BootID(), wipe(labelState)
		r.SystemPartitionsToWipe[0].Wipe = false
		r.Graceful = false
		if err := c.client(t, m).ResetGeneric(testContext(t), r); err != nil {
			t.Fatal(err)
		}
		await(t, m, "another boot", func(m *Machine) bool { return m.BootID() != "" && m.BootID() != boot && m.Ready() })
		if m.InstalledConfig() == nil {
			t.Error("STATE was wiped")
		}
	})
	t.Run("the whole disk, then power off", func(t *testing.T) {
		if err := c.client(t, m).ResetGeneric(testContext(t), &machine.ResetRequest{}); err != nil {
			t.Fatal(err)
		}
		await(t, m, "power off", func(m *Machine) bool { return !m.PoweredOn() })
		if m.HasPartition(labelBoot) || m.InstalledConfig() != nil {
			t.Error("the disk was not wiped")
		}
		m.PowerOn()
		awaitStage(t, m, "maintenance")
	})
	t.Run("the platform supplies the configuration again", func(t *testing.T) {
		if err := m.SetFault(FaultPlatformConfig, true); err != nil {
			t.Fatal(err)
		}
		m.PowerOff()
		m.PowerOn()
		await(t, m, "a configuration", func(m *Machine) bool { return m.InstalledConfig() != nil })
		if strings.Contains(m.Stage(), "maintenance") {
			t.Error("the machine shows maintenance mode")
		}
	})
}
