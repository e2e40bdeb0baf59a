package simulator

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/mod/semver"
)

// DefaultTalosVersion is what a machine runs that says nothing else.
const DefaultTalosVersion = "v1.13.9"

// Options say how a fleet is simulated.
type Options struct {
	// Dir holds the machines' EPHEMERAL partitions (etcd's data) and the clusters' files. Empty: a temporary directory that
	// Close removes.
	Dir string
	// Subnet is where machines without an address of their own get one: a /24 within 127.0.0.0/8. Default 127.10.0.0/24.
	Subnet netip.Prefix
	// Scale divides Talos's long waits: 1 is real time, 20 makes a minute of three seconds. Default 1.
	Scale float64
	// Kubernetes starts the API server and what belongs to it for each bootstrapped cluster. Without it nodes count as ready
	// once etcd is healthy.
	Kubernetes bool
	// Binaries are the programs that Kubernetes needs.
	Binaries Binaries
	// Light leaves out what costs memory with hundreds of machines: workers do not list the members of their cluster, and
	// machines look at their nodes every ten seconds only.
	Light bool
	// Log gets what a console would show. Default: nothing.
	Log *slog.Logger
	// Answering is told each call that a machine has carried out and that may have changed something, before its caller is:
	// the answer waits for it. Calls that are passed on show where they arrive. Default: nobody is told.
	Answering func(RPC)
}

// A Fleet is a set of simulated machines on loopback addresses, and the clusters that they form.
type Fleet struct {
	opts      Options
	log       *slog.Logger
	defs      *definitionSet
	rpcs      *RPCLog
	discovery *discovery
	tempDir   string
	newEtcd   func(*system) (etcdService, error)

	otherCluster *authority // of the fault of that name

	mu       sync.Mutex
	machines []*Machine
	clusters map[string]*workloadCluster // by cluster ID
	closed   bool
}

// NewFleet makes a fleet without machines.
func NewFleet(opts Options) (*Fleet, error) {
	defs, err := definitions()
	if err != nil {
		return nil, fmt.Errorf("cannot make fleet: %w", err)
	}
	if opts.Scale == 0 {
		opts.Scale = 1
	}
	if opts.Scale < 0 {
		return nil, fmt.Errorf("cannot make fleet: scale %v is negative", opts.Scale)
	}
	if !opts.Subnet.IsValid() {
		opts.Subnet = netip.MustParsePrefix("127.10.0.0/24")
	}
	if !opts.Subnet.Addr().IsLoopback() {
		return nil, fmt.Errorf("cannot make fleet: subnet %q is not within 127.0.0.0/8", opts.Subnet)
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	f := &Fleet{opts: opts, log: opts.Log, defs: defs, rpcs: newRPCLog(), clusters: map[string]*workloadCluster{}}
	if f.otherCluster, err = newAuthority(); err != nil {
		return nil, fmt.Errorf("cannot make fleet: %w", err)
	}
	f.discovery = newDiscovery(f.clusterChanged)
	f.newEtcd = f.newEtcdMember
	if opts.Dir == "" {
		if f.tempDir, err = os.MkdirTemp("", "talossim-"); err != nil {
			return nil, fmt.Errorf("cannot make fleet: %w", err)
		}
		f.opts.Dir = f.tempDir
	}
	return f, nil
}

// A MachineSpec describes a machine that never changes: its hardware.
type MachineSpec struct {
	// Name is how the fleet calls it; Talos knows nothing of it. Required, unique.
	Name string
	// Address is where its API, etcd and so on listen. Default: the next free one of the subnet, from .11 on.
	Address netip.Addr
	// UUID is the SMBIOS UUID. Default: a random one.
	UUID string
	// TalosVersion is what its boot media (and at first its disk) run, such as "v1.13.9". A v1.12 machine has that version's
	// maintenance mode. Default DefaultTalosVersion.
	TalosVersion string
	// PlatformConfig is a configuration that its platform supplies at each boot that finds none on disk.
	PlatformConfig []byte
	// Installed says that Talos is on the first disk already, as with a disk image. Otherwise it boots from its media, and the
	// first configuration installs it.
	Installed bool
	// Disks are its block devices. Default: one of 20 GiB at /dev/sda.
	Disks []Disk
	// PoweredOff leaves the machine off until PowerOn.
	PoweredOff bool
}

// AddMachine adds a machine and, unless its spec says otherwise, powers it on. The address must be free.
func (f *Fleet) AddMachine(spec MachineSpec) (*Machine, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.closed {
		return nil, errors.New("cannot add machine: the fleet is closed")
	}
	if err := f.complete(&spec); err != nil {
		return nil, fmt.Errorf("cannot add machine: %w", err)
	}
	m := newMachine(f, spec)
	f.machines = append(f.machines, m)
	if !spec.PoweredOff {
		m.PowerOn()
	}
	return m, nil
}

// complete fills in the defaults and checks what the caller gave.
func (f *Fleet) complete(spec *MachineSpec) error {
	if spec.Name == "" {
		return errors.New("it needs a name")
	}
	if !spec.Address.IsValid() {
		spec.Address = f.freeAddress()
	}
	if !spec.Address.Is4() || !spec.Address.IsLoopback() {
		return fmt.Errorf("address %q is not within 127.0.0.0/8", spec.Address)
	}
	for _, m := range f.machines {
		if m.spec.Name == spec.Name || m.spec.Address == spec.Address {
			return fmt.Errorf("%q at %q is there already", m.spec.Name, m.spec.Address)
		}
	}
	if spec.UUID == "" {
		spec.UUID = uuid.NewString()
	}
	if spec.TalosVersion == "" {
		spec.TalosVersion = DefaultTalosVersion
	}
	if !semver.IsValid(spec.TalosVersion) {
		return fmt.Errorf("talos version %q is not of the form v1.2.3", spec.TalosVersion)
	}
	if len(spec.Disks) == 0 {
		spec.Disks = []Disk{{DevPath: "/dev/sda", Size: 20 * gibibyte, Transport: "virtio"}}
	}
	spec.Disks = slices.Clone(spec.Disks)
	for i := range spec.Disks {
		nameDisk(&spec.Disks[i], spec.Name)
	}
	return nil
}

func nameDisk(d *Disk, machine string) {
	base := filepath.Base(d.DevPath)
	if d.Size == 0 {
		d.Size = 20 * gibibyte
	}
	if d.Model == "" {
		d.Model = "SIMULATED"
	}
	if d.Serial == "" {
		d.Serial = machine + "-" + base
	}
	if d.WWID == "" {
		d.WWID = "sim." + machine + "." + base
	}
	if d.BusPath == "" {
		d.BusPath = "/pci0000:00/" + base
	}
}

func (f *Fleet) freeAddress() netip.Addr {
	addr := f.opts.Subnet.Masked().Addr()
	for range 11 {
		addr = addr.Next()
	}
	for slices.ContainsFunc(f.machines, func(m *Machine) bool { return m.spec.Address == addr }) {
		addr = addr.Next()
	}
	return addr
}

// Machine returns the machine of that name, nil if there is none.
func (f *Fleet) Machine(name string) *Machine {
	for _, m := range f.Machines() {
		if m.spec.Name == name {
			return m
		}
	}
	return nil
}

func (f *Fleet) byAddress(addr string) *Machine {
	for _, m := range f.Machines() {
		if m.spec.Address.String() == addr {
			return m
		}
	}
	return nil
}

// Machines returns all machines in the order in which they were added.
func (f *Fleet) Machines() []*Machine {
	f.mu.Lock()
	defer f.mu.Unlock()

	return slices.Clone(f.machines)
}

// Log returns the record of every call that reached a machine.
func (f *Fleet) Log() *RPCLog { return f.rpcs }

// Scale returns the factor that divides Talos's waits.
func (f *Fleet) Scale() float64 { return f.opts.Scale }

// Close cuts the power of all machines, stops the clusters and removes the temporary directory, if there is one.
func (f *Fleet) Close() error {
	f.mu.Lock()
	f.closed = true
	machines := slices.Clone(f.machines)
	f.mu.Unlock()

	wg := sync.WaitGroup{}
	f.closeClusters()
	for _, m := range machines {
		wg.Go(m.PowerOff)
	}
	wg.Wait()
	if f.tempDir == "" {
		return nil
	}
	if err := os.RemoveAll(f.tempDir); err != nil {
		return fmt.Errorf("cannot remove the fleet's directory: %w", err)
	}
	return nil
}

// scaled turns one of Talos's durations into this fleet's.
func (f *Fleet) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) / f.opts.Scale)
}

// clusterChanged tells the machines of a cluster that its membership changed.
func (f *Fleet) clusterChanged(clusterID string) {
	for _, a := range f.discovery.list(clusterID) {
		a.owner.kick()
	}
}
