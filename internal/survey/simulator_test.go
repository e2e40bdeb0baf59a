package survey

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/connect"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/machineconfig"
	"github.com/maesh/provider-ichor/internal/simulator"
	"github.com/maesh/provider-ichor/internal/talos"
)

// A lab is a surveyor with real doors to simulated machines.
type lab struct {
	fleet   *simulator.Fleet
	connect *connect.Connector
	survey  *Surveyor
	cluster *v1alpha1.TalosCluster

	mu    sync.Mutex
	calls map[string]int // by address
}

const simulatorTimeout = 30 * time.Second

// subnet finds loopback addresses on which nobody serves a Talos API.
func subnet(t *testing.T) netip.Prefix {
	t.Helper()
	for range 100 {
		a := netip.AddrFrom4([4]byte{127, byte(20 + rand.IntN(200)), byte(rand.IntN(250)), 0})
		if l, err := net.Listen("tcp", net.JoinHostPort(a.Next().String(), talos.Port)); err == nil {
			_ = l.Close()
			return netip.PrefixFrom(a, 24)
		}
	}
	t.Fatal("no free subnet")
	return netip.Prefix{}
}

// newLab has a control plane that waits for its bootstrap, a worker, a blank machine, a machine of another cluster, and an
// address where nothing is. Their TalosMachines have the same names.
func newLab(t *testing.T) *lab {
	t.Helper()
	fleet, err := simulator.NewFleet(simulator.Options{Dir: t.TempDir(), Subnet: subnet(t), Scale: 60, Light: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fleet.Close(); err != nil {
			t.Error(err)
		}
	})
	ours, theirs := bundles(t)
	data, err := ours.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	c := cluster()
	c.Spec.ForProvider.Endpoint = "https://127.0.0.1:1"
	site := &v1alpha1.ClusterProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	site.Spec.Credentials.Source = xpv2.CredentialsSourceNone
	site.Spec.Timeouts.Request = &metav1.Duration{Duration: 2 * time.Second}
	objects := []client.Object{c, site, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: home.Namespace, Name: connect.PKISecretName(home.Name)},
		Data:       map[string][]byte{connect.PKISecretKey: data},
	}}

	l := &lab{fleet: fleet, cluster: c, calls: map[string]int{}}
	for name, m := range map[string]struct {
		bundle *machineconfig.Bundle
		role   string
	}{"cp": {ours, machineconfig.RoleControlPlane}, "worker": {ours, machineconfig.RoleWorker}, "blank": {}, "foreign": {theirs, machineconfig.RoleControlPlane}} {
		spec := simulator.MachineSpec{Name: name}
		if m.bundle != nil {
			spec.Installed, spec.PlatformConfig = true, render(t, m.bundle, name, m.role)
		}
		sim, err := fleet.AddMachine(spec)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, machineObject(name, func(o *v1alpha1.TalosMachine) {
			o.Spec.ForProvider.Address, o.Spec.ForProvider.UUID = sim.Address().String(), sim.UUID()
			if name == "worker" {
				worker(o)
			}
		}))
	}
	objects = append(objects, machineObject("nowhere", func(o *v1alpha1.TalosMachine) {
		o.Spec.ForProvider.Address = "127.0.0.1:1"
	}))

	pool := talos.NewPool(talos.Options{OnCall: func(address, _ string) {
		l.mu.Lock()
		l.calls[address]++
		l.mu.Unlock()
	}})
	t.Cleanup(pool.Close)
	r := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects...).Build()
	l.connect = connect.New(r, pool, clock.RealClock{})
	l.survey = New(r, l.connect, clock.RealClock{})
	return l
}

// bundles are the PKIs of two clusters.
func bundles(t *testing.T) (ours, theirs *machineconfig.Bundle) {
	t.Helper()
	ours, err := machineconfig.NewBundle("v1.13.9")
	if err != nil {
		t.Fatal(err)
	}
	if theirs, err = machineconfig.NewBundle("v1.13.9"); err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

func render(t *testing.T, b *machineconfig.Bundle, name, role string) []byte {
	t.Helper()
	data, err := machineconfig.Render(machineconfig.Input{
		Bundle: b, ClusterName: home.Name, Endpoint: "https://127.0.0.1:1", KubernetesVersion: "v1.35.4", TalosVersion: "v1.13.9",
		Role: role, Hostname: name, InstallDisk: "/dev/sda", InstallImage: "ghcr.io/siderolabs/installer:v1.13.9",
	})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// settled surveys until every simulated machine answers as what it is.
func (l *lab) settled(t *testing.T) facts.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), simulatorTimeout)
	defer cancel()
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		f, err := l.survey.Cluster(ctx, home, "")
		if err != nil {
			t.Fatal(err)
		}
		known := 0
		for _, m := range f.Machines {
			if _, ok := m.Live.Get(); ok {
				known++
			}
		}
		if known == 3 {
			return f
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the machines never settled: %+v", f.Machines)
		case <-tick.C:
		}
	}
}

func TestSimulatedMachines(t *testing.T) {
	l := newLab(t)
	f := l.settled(t)

	var got []string
	for _, m := range f.Machines {
		live, ok := m.Live.Get()
		if !ok {
			got = append(got, m.Name+": unknown")
			continue
		}
		sim := l.fleet.Machine(m.Name)
		if live.UUID != sim.UUID() {
			t.Errorf("UUID of %s: got %q, want %q", m.Name, live.UUID, sim.UUID())
		}
		if boot, ok := live.BootID.Get(); ok && boot != sim.BootID() {
			t.Errorf("boot ID of %s: got %q, want %q", m.Name, boot, sim.BootID())
		}
		version, _ := live.TalosVersion.Get()
		service, _ := live.EtcdService.Get()
		got = append(got, fmt.Sprintf("%s: %v %s etcd=%q bootID=%v member=%v", m.Name, live.Mode == facts.Configured, version, service, live.BootID.IsKnown(), live.Member.IsKnown()))
		unknown(t, "node of "+m.Name, m.Node)
	}
	want := []string{
		`blank: false v1.13.9 etcd="" bootID=false member=false`,
		`cp: true v1.13.9 etcd="Preparing" bootID=true member=false`,
		`foreign: unknown`,
		`nowhere: unknown`,
		`worker: true v1.13.9 etcd="" bootID=true member=false`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := len(f.Etcd.Views); got != 0 {
		t.Errorf("views of an etcd that does not run: got %d", got)
	}

	for _, r := range l.fleet.Log().Snapshot() {
		if r.Mutating {
			t.Errorf("a survey changed something: %s on %s", r.Method, r.Machine)
		}
		if len(r.Forwarded) > 0 {
			t.Errorf("a call was proxied: %s on %s", r.Method, r.Machine)
		}
	}
}

// An Observe of an unchanged machine takes at most six calls on one connection, as they are counted at the other end.
func TestSimulatedBudget(t *testing.T) {
	l := newLab(t)
	f := l.settled(t)
	a, err := l.connect.Cluster(t.Context(), l.cluster)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range f.Machines {
		if m.Name != "cp" && m.Name != "worker" {
			continue
		}
		o := machineObject(m.Name, func(o *v1alpha1.TalosMachine) {
			o.Spec.ForProvider.Address = m.Address
			if m.Role == facts.Worker {
				worker(o)
			}
		})
		if _, err := l.survey.Machine(t.Context(), o, a); err != nil { // This one asks for the schematic as well.
			t.Fatal(err)
		}
		l.mu.Lock()
		before := l.calls[m.Address]
		l.mu.Unlock()
		log := l.fleet.Log().Snapshot()
		seen, err := l.survey.Machine(t.Context(), o, a)
		if err != nil {
			t.Fatal(err)
		}
		l.mu.Lock()
		counted := l.calls[m.Address] - before
		l.mu.Unlock()
		arrived := l.fleet.Log().Since(log[len(log)-1].Seq)
		peers := map[string]bool{}
		for _, r := range arrived {
			peers[r.Peer] = true
			if r.Mutating {
				t.Errorf("%s: an Observe sent %s, which may change the machine", m.Name, r.Method)
			}
		}
		if len(arrived) > 6 || counted != len(arrived) || len(peers) != 1 {
			t.Errorf("%s: %d calls arrived (%d counted) over %d connections, want at most 6 over one", m.Name, len(arrived), counted, len(peers))
		}
		config, ok := seen.Config.Get()
		if want := string(l.fleet.Machine(m.Name).InstalledConfig()); !ok || string(config.Active) != want || string(config.Persistent) != want {
			t.Errorf("%s: the configuration read back is not the one that it has (%s)", m.Name, seen.Config.Why())
		}
	}
}
