package survey

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
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

// newLab has a blank machine of each version of maintenance mode, and an address where nothing is. Their TalosMachines have
// the same names.
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
	bundle, err := machineconfig.NewBundle("v1.13.9")
	if err != nil {
		t.Fatal(err)
	}
	data, err := bundle.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	c := cluster()
	c.Spec.ForProvider.Endpoint = "https://127.0.0.1:1"
	site := &v1alpha1.ClusterProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	site.Spec.Credentials.Source = xpv2.CredentialsSourceNone
	objects := []client.Object{c, site, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: home.Namespace, Name: connect.PKISecretName(home.Name)},
		Data:       map[string][]byte{connect.PKISecretKey: data},
	}}
	for name, version := range map[string]string{"blank": "v1.13.9", "old": "v1.12.11"} {
		sim, err := fleet.AddMachine(simulator.MachineSpec{Name: name, TalosVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, machineObject(name, func(o *v1alpha1.TalosMachine) {
			o.Spec.ForProvider.Address, o.Spec.ForProvider.UUID = sim.Address().String(), sim.UUID()
		}))
	}
	objects = append(objects, machineObject("nowhere", func(o *v1alpha1.TalosMachine) {
		o.Spec.ForProvider.Address = "127.0.0.1:1"
	}))

	pool := talos.NewPool(talos.Options{})
	t.Cleanup(pool.Close)
	r := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects...).Build()
	l := &lab{fleet: fleet, connect: connect.New(r, pool, clock.RealClock{}), cluster: c}
	l.survey = New(r, l.connect, clock.RealClock{})
	return l
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
		if known == 2 {
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
		version, _ := live.TalosVersion.Get()
		got = append(got, fmt.Sprintf("%s: blank=%v stage=%s version=%q itself=%v bootID=%v", m.Name,
			live.Mode == facts.Maintenance, live.Stage, version, live.UUID == l.fleet.Machine(m.Name).UUID(), live.BootID.IsKnown()))
	}
	want := []string{
		`blank: blank=true stage=maintenance version="v1.13.9" itself=true bootID=false`,
		`nowhere: unknown`,
		`old: blank=true stage=maintenance version="" itself=true bootID=false`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, m := range f.Machines {
		unknown(t, "node of "+m.Name, m.Node)
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

// A machine that takes connections and never answers, or that shows another certificate than the pinned one, is an error
// with its class.
func TestSimulatedFaults(t *testing.T) {
	l := newLab(t)
	l.settled(t)
	a, err := l.connect.Cluster(t.Context(), l.cluster)
	if err != nil {
		t.Fatal(err)
	}
	look := func(change func(*v1alpha1.TalosMachine)) error {
		_, err := l.survey.Machine(t.Context(), machineObject("blank", func(o *v1alpha1.TalosMachine) {
			o.Spec.ForProvider.Address = l.fleet.Machine("blank").Address().String()
			change(o)
		}), a)
		return err
	}
	if err := look(func(*v1alpha1.TalosMachine) {}); err != nil {
		t.Fatal(err)
	}
	otherPin := base64.StdEncoding.EncodeToString(make([]byte, 32))
	if err := look(func(o *v1alpha1.TalosMachine) { o.Spec.ForProvider.MaintenanceFingerprint = otherPin }); talos.ClassOf(err) != talos.FingerprintMismatch {
		t.Errorf("another fingerprint: got %v (%v), want %v", talos.ClassOf(err), err, talos.FingerprintMismatch)
	}
	if err := l.fleet.Machine("blank").SetFault(simulator.FaultAPIBlackhole, true); err != nil {
		t.Fatal(err)
	}
	a.Settings.RequestTimeout, a.Settings.DialTimeout = time.Second, 200*time.Millisecond
	if err := look(func(*v1alpha1.TalosMachine) {}); talos.ClassOf(err) != talos.Unreachable && talos.ClassOf(err) != talos.Timeout {
		t.Errorf("a silent machine: got %v (%v)", talos.ClassOf(err), err)
	}
}
