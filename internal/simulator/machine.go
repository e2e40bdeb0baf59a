package simulator

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

const (
	// powerOnDelay is how long firmware and kernel take until Talos runs.
	powerOnDelay = 20 * time.Second
	// rebootDelay is the same for a restart, mostly by kexec.
	rebootDelay = 15 * time.Second
)

// A Machine is one simulated computer: hardware that lasts, and, while it is powered on, the Talos that runs on it.
type Machine struct {
	fleet  *Fleet
	spec   MachineSpec
	log    *slog.Logger
	disks  *diskSet
	faults *faultSet

	power sync.Mutex // serialises PowerOn and PowerOff

	mu         sync.Mutex
	cut        context.CancelFunc // nil while the power is off
	off        chan struct{}      // closed when the machine has gone dark
	sys        *system            // nil while no Talos runs
	lastConfig []byte             // for the fault that makes the platform supply it again
	changed    chan struct{}
}

func newMachine(f *Fleet, spec MachineSpec) *Machine {
	m := &Machine{
		fleet:   f,
		spec:    spec,
		log:     f.log.With("machine", spec.Name),
		disks:   newDiskSet(filepath.Join(f.opts.Dir, spec.Name, "ephemeral"), spec.Disks),
		changed: make(chan struct{}),
	}
	m.faults = newFaultSet(m.faultChanged)
	if spec.Installed {
		_ = m.disks.install(spec.Disks[0].DevPath, spec.TalosVersion) // the disk is there: complete saw to it
	}
	return m
}

// Name is what the fleet calls the machine.
func (m *Machine) Name() string { return m.spec.Name }

// Address is where the machine's services listen.
func (m *Machine) Address() netip.Addr { return m.spec.Address }

// UUID is the machine's own SMBIOS UUID, whatever a fault makes it report.
func (m *Machine) UUID() string { return m.spec.UUID }

// Stage is Talos's stage, such as "maintenance" or "running"; empty while no Talos runs.
func (m *Machine) Stage() string {
	if s := m.system(); s != nil {
		return s.currentStage().String()
	}
	return ""
}

// Ready reports whether the machine is in stage running with no unmet condition.
func (m *Machine) Ready() bool {
	s := m.system()
	return s != nil && s.currentStage() == runtime.MachineStageRunning && len(s.unmetConditions()) == 0
}

// BootID is the kernel's boot ID; empty while no Talos runs.
func (m *Machine) BootID() string {
	if s := m.system(); s != nil {
		return s.bootID
	}
	return ""
}

// Hostname is the current hostname; empty while no Talos runs.
func (m *Machine) Hostname() string {
	if s := m.system(); s != nil {
		return s.hostname()
	}
	return ""
}

// TalosVersion is what runs now, or, while nothing does, what would boot.
func (m *Machine) TalosVersion() string {
	if s := m.system(); s != nil {
		return s.version
	}
	return m.bootVersion()
}

// InstalledConfig is what lies on the STATE partition, byte for byte; nil if nothing does.
func (m *Machine) InstalledConfig() []byte { return m.disks.readConfig() }

// HasPartition reports whether a partition exists, by its label.
func (m *Machine) HasPartition(label string) bool { return m.disks.has(label) }

// EtcdState returns the state of the etcd service ("Preparing", "Running" and so on) and whether it is healthy; empty on a
// machine that has none.
func (m *Machine) EtcdState() (state string, healthy bool) {
	s := m.system()
	if s == nil {
		return "", false
	}
	svc, ok := s.services.get("etcd")
	if !ok {
		return "", false
	}
	return svc.state, svc.healthy
}

// APIUp reports whether the port of the Talos API takes connections; whether anything answers on them is another matter.
func (m *Machine) APIUp() bool {
	s := m.system()
	return s != nil && s.apiOpen()
}

// PoweredOn reports whether the machine has power; it may still be booting, or have nothing to boot.
func (m *Machine) PoweredOn() bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.cut != nil
}

// PowerOn starts the machine; nothing happens if it is on.
func (m *Machine) PowerOn() {
	m.power.Lock()
	defer m.power.Unlock()

	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cut != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	off := make(chan struct{})
	m.cut, m.off = cancel, off
	go m.run(ctx, off)
}

// PowerOff cuts the power: nothing is stopped in order, what was not yet written to disk is lost. It returns when the machine
// is dark.
func (m *Machine) PowerOff() {
	m.power.Lock()
	defer m.power.Unlock()

	m.mu.Lock()
	cut, off := m.cut, m.off
	m.mu.Unlock()
	if cut == nil {
		return
	}
	cut()
	<-off
}

// SetFault switches a fault on or off; Faults lists them. It fails if there is no such fault.
func (m *Machine) SetFault(name string, on bool) error {
	if err := m.faults.set(name, on); err != nil {
		return err
	}
	m.log.Info("fault", "name", name, "on", on)
	return nil
}

// Faults returns the names of the faults that are on, sorted.
func (m *Machine) Faults() []string { return m.faults.names() }

// Partition makes the machine's API a black hole, or ends that; it is the fault of that name.
func (m *Machine) Partition(on bool) {
	_ = m.faults.set(FaultAPIBlackhole, on) // the fault exists
}

// Wait blocks until the predicate holds, looking again at every change of the machine, and returns ctx's error if that comes
// first.
func (m *Machine) Wait(ctx context.Context, predicate func(*Machine) bool) error {
	for {
		m.mu.Lock()
		changed := m.changed
		m.mu.Unlock()
		if predicate(m) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("machine %q in stage %q: %w", m.spec.Name, m.Stage(), ctx.Err())
		}
	}
}

func (m *Machine) notify() {
	m.mu.Lock()
	defer m.mu.Unlock()

	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *Machine) faultChanged(name string, on bool) {
	if s := m.system(); s != nil {
		switch {
		case name == FaultAPIDown && on:
			s.refuseConnections()
		case name == FaultOtherCluster:
			s.dropConnections() // those that are open were made with the other certificate
		}
		s.kick()
	}
	m.notify()
}

func (m *Machine) system() *system {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.sys
}

func (m *Machine) setSystem(s *system) {
	m.mu.Lock()
	m.sys = s
	m.mu.Unlock()
	m.notify()
}

// apiSince is when the API came up; zero while it is down.
func (m *Machine) apiSince() time.Time {
	if s := m.system(); s != nil {
		return s.apiSince()
	}
	return time.Time{}
}

// bootVersion is what the next boot runs: what is on disk, else what the boot media hold.
func (m *Machine) bootVersion() string {
	if v := m.disks.version(); v != "" {
		return v
	}
	return m.spec.TalosVersion
}

// run is the machine from power on to power off: boot after boot.
func (m *Machine) run(ctx context.Context, off chan struct{}) {
	defer func() {
		m.mu.Lock()
		m.cut()
		m.cut, m.sys = nil, nil
		m.mu.Unlock()
		close(off)
		m.notify()
	}()
	delay := powerOnDelay
	for {
		if sleep(ctx, m.fleet.scaled(delay)) != nil {
			return
		}
		if m.faults.has(FaultNoBootMedia) && !m.disks.bootable() {
			m.log.Info("nothing to boot from")
			<-ctx.Done()
			return
		}
		if delay == rebootDelay && m.faults.has(FaultBootHangs) {
			m.log.Info("hanging in the firmware")
			<-ctx.Done()
			return
		}
		s := newSystem(ctx, m)
		m.setSystem(s)
		end := s.live()
		m.setSystem(nil)
		m.log.Info("boot ended", "how", end.kind, "during", end.during, "reason", end.reason)
		if end.kind == endPowerOff || end.kind == endPowerCut {
			return
		}
		delay = rebootDelay
	}
}

// rememberConfig keeps the last configuration for the fault that makes the platform supply it again.
func (m *Machine) rememberConfig(data []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.lastConfig = data
}

// platformConfig is what the platform source supplies; nil if nothing.
func (m *Machine) platformConfig() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.faults.has(FaultPlatformConfig) && m.lastConfig != nil {
		return m.lastConfig
	}
	return m.spec.PlatformConfig
}

// reportedUUID is what SMBIOS says, or seems to say.
func (m *Machine) reportedUUID() string {
	if other := m.other(); other != nil && m.faults.has(FaultDuplicateUUID) {
		return other.spec.UUID
	}
	return m.spec.UUID
}

// other is the fleet's first other machine; nil if there is none.
func (m *Machine) other() *Machine {
	for _, other := range m.fleet.Machines() {
		if other != m {
			return other
		}
	}
	return nil
}

// sleep waits, or returns ctx's error if that comes first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
