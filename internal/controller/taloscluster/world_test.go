package taloscluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/controller"
	"github.com/crossplane/crossplane-runtime/v2/pkg/feature"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpfake "github.com/crossplane/crossplane-runtime/v2/pkg/resource/fake"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/act"
	"github.com/maesh/provider-ichor/internal/clusterlock"
	"github.com/maesh/provider-ichor/internal/controller/lagging"
	"github.com/maesh/provider-ichor/internal/controller/waiting"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/disruption"
	"github.com/maesh/provider-ichor/internal/talos"
)

// poll is how often a cluster at rest is looked at.
const poll = 7 * time.Minute

// A world is three control planes behind one management API server, as a survey would find them.
type world struct {
	t     *testing.T
	api   *writes
	clock *testclock.FakeClock

	machines []*machine
	// sends counts Bootstrap calls that reached a machine, by its name.
	sends map[string]int
	// effects counts writes and Bootstrap calls; crash, if set, is asked before and after each of them.
	effects int
	crash   func(n int, after bool) error
	// imposter, if set, is the UUID of whatever machine answers at every address.
	imposter string
	// answerless is true while Bootstrap calls are lost on their way.
	answerless bool
	// slow is true while an etcd that is begun does not get any further than to prepare.
	slow bool
	// meanwhile, if set, happens once, right after an overview was made.
	meanwhile func()
	// dead is true once the process has crashed: nothing that it does any more has an effect.
	dead bool
	// behind is true if processes that begin have a cache that is one write behind: what was written in the last pass, before
	// which there were so many writes, shows as it was before. cache is that of the last process.
	behind bool
	before int
	cache  *lagging.Cache
	// twin, if there is one, is a second process that passes after each pass of the first.
	twin reconcile.Reconciler
}

// A machine is a control plane.
type machine struct {
	name, uuid string
	// known is false while the machine does not answer, configured is false while it is blank.
	known, configured bool
	// etcd is the ID of its member; zero while it has no etcd data.
	etcd facts.MemberID
	// boots counts its boots after the first one.
	boots int
	// removed is true once its removal is completed.
	removed bool
}

func newWorld(t *testing.T, c *v1alpha1.TalosCluster) *world {
	t.Helper()
	w := &world{t: t, clock: testclock.NewFakeClock(testNow), sends: map[string]int{}}
	objs := append(make([]client.Object, 0, 4), c)
	for i := range 3 {
		m := &machine{name: fmt.Sprintf("cp-%d", i+1), uuid: fmt.Sprintf("00000000-0000-4000-8000-00000000000%d", i+1), known: true, configured: true}
		w.machines = append(w.machines, m)
		objs = append(objs, &v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: m.name, UID: types.UID("uid-" + m.name)},
			Spec: v1alpha1.TalosMachineSpec{ForProvider: v1alpha1.TalosMachineParameters{
				ClusterRef: &v1alpha1.ClusterReference{Name: testCluster}, Role: v1alpha1.RoleControlPlane, Approved: true,
				Address: "192.0.2." + m.name[3:], UUID: m.uuid,
			}},
		})
	}
	w.api = newAPI(t, objs...)
	w.api.before = func(int) error { return w.effect(false) }
	w.api.after = func(int) error { return w.effect(true) }
	return w
}

var errCrash = errors.New("the process is dead")

// effect is called around everything that has an effect.
func (w *world) effect(after bool) error {
	if w.dead {
		return errCrash
	}
	n := w.effects
	if after {
		w.effects++
	}
	if w.crash == nil {
		return nil
	}
	err := w.crash(n, after)
	w.dead = err != nil
	return err
}

// reconciler returns a new process: everything that it remembers is new.
func (w *world) reconciler() reconcile.Reconciler {
	w.dead = false
	var cached client.Client = w.api
	if w.behind {
		w.cache = lagging.New(w.api, w.api.history, w.before, &v1alpha1.TalosCluster{}, &v1alpha1.TalosMachine{})
		cached = w.cache
	}
	all := clusterlock.New(w.api, w.api, w.clock)
	hints := waiting.NewHints(0)
	record := &events{}
	conn := &connector{
		usage: resource.ModernTrackerFn(func(context.Context, resource.ModernManaged) error { return nil }),
		open:  w,
		with: external{
			kube: cached, uncached: w.api, keeper: &keeper{kube: cached, uncached: w.api},
			survey: w,
			locks:  locks{disruption.NewGate(all, w.api)},
			actor:  act.New(cached, w.clock, nil),
			clock:  w.clock, record: record, hints: hints,
		},
	}
	o := Options{Options: controller.Options{Logger: logging.NewNopLogger(), Features: &feature.Flags{}, PollInterval: poll}}
	o.Features.Enable(feature.EnableBetaManagementPolicies)
	mgr := &xpfake.Manager{Client: cached, Scheme: w.api.Scheme()}
	return waiting.Wrap(managed.NewReconciler(mgr, resource.ManagedKind(v1alpha1.TalosClusterGroupVersionKind),
		reconcilerOptions(cached, o, conn, record)...), hints)
}

// Open gives access to the machines.
func (w *world) Open(context.Context, *v1alpha1.TalosCluster) (Access, error) { return w, nil }

// Machine opens the machine at an address.
func (w *world) Machine(address string) act.Bootstrapper {
	for _, m := range w.machines {
		if address == "192.0.2."+m.name[3:] {
			return door{w, m}
		}
	}
	w.t.Errorf("somebody opened %q, where no machine is", address)
	return nil
}

// A door is the Talos API of a machine.
type door struct {
	*world
	m *machine
}

func (d door) System(context.Context) (talos.System, error) {
	if d.imposter != "" {
		return talos.System{UUID: d.imposter}, nil
	}
	return talos.System{UUID: d.m.uuid}, nil
}

func (d door) Bootstrap(context.Context) error {
	if err := d.effect(false); err != nil {
		return &talos.Error{Op: "bootstrap etcd", Address: d.m.name, Class: talos.Unreachable, Err: err}
	}
	d.sends[d.m.name]++
	if d.answerless {
		return &talos.Error{Op: "bootstrap etcd", Address: d.m.name, Class: talos.Ambiguous, Err: context.DeadlineExceeded}
	}
	if d.m.etcd != 0 {
		return &talos.Error{Op: "bootstrap etcd", Address: d.m.name, Class: talos.AlreadyExists, Err: errors.New("etcd data directory is not empty")}
	}
	if !d.slow {
		d.m.etcd = facts.MemberID(0xe7cd0000 + len(d.m.name))
	}
	if err := d.effect(true); err != nil {
		return &talos.Error{Op: "bootstrap etcd", Address: d.m.name, Class: talos.Ambiguous, Err: err}
	}
	return nil
}

// join makes every control plane a member, as machines do by themselves once there is an etcd to join.
func (w *world) join() {
	for i, m := range w.machines {
		if m.etcd == 0 {
			m.etcd = facts.MemberID(0xa000 + i)
		}
	}
}

func (w *world) Objects(ctx context.Context, _ types.NamespacedName) (facts.Cluster, error) {
	c := w.cluster(ctx)
	f := facts.Cluster{
		Name: c.GetName(), TakenAt: w.clock.Now(), Declared: facts.Of(c.Spec.ForProvider.ControlPlane.Count),
		Teardown: c.TearingDown(), Bootstrapped: c.GetAnnotations()[v1alpha1.AnnotationBootstrapped],
		BootstrapBoot: c.GetAnnotations()[v1alpha1.AnnotationBootstrapBoot],
	}
	for _, m := range w.machines {
		f.Machines = append(f.Machines, facts.Machine{
			ID: facts.MachineID("uid-" + m.name), Name: m.name, Address: "192.0.2." + m.name[3:], Role: facts.ControlPlane,
			Approved: true, UUID: m.uuid, Removed: m.removed,
			Live: facts.Unknown[facts.Live]("it was not asked"), Node: facts.Unknown[facts.Node]("it was not asked"),
		})
	}
	return f, nil
}

func (w *world) Overview(ctx context.Context, nn types.NamespacedName, _ time.Duration) (facts.Cluster, error) {
	f, err := w.Cluster(ctx, nn, "")
	if w.meanwhile != nil {
		w.meanwhile()
		w.meanwhile = nil
	}
	return f, err
}

func (w *world) Cluster(ctx context.Context, nn types.NamespacedName, _ facts.MachineID) (facts.Cluster, error) {
	f, err := w.Objects(ctx, nn)
	var members []facts.Member
	for _, m := range w.machines {
		if m.etcd != 0 {
			members = append(members, facts.Member{ID: m.etcd, Name: m.name})
		}
	}
	for i, m := range w.machines {
		if !m.known {
			continue
		}
		f.Machines[i].Live = facts.Of(m.live())
		if m.etcd == 0 {
			continue
		}
		f.Machines[i].Node = facts.Of(facts.Node{Exists: true, Name: m.name, Ready: true, KubeletVersion: "v1.35.4"})
		f.Etcd.Views = append(f.Etcd.Views, facts.View{
			Machine: f.Machines[i].ID, Self: m.etcd, Members: facts.Of(members), Leader: members[0].ID, Term: 2, Healthy: facts.Of(true),
		})
	}
	if len(f.Etcd.Views) > 0 {
		f.Etcd.Alarms = facts.Of([]facts.Alarm(nil))
	}
	return f, err
}

func (m *machine) live() facts.Live {
	l := facts.Live{
		Mode: facts.Maintenance, UUID: m.uuid, BootID: facts.Of(fmt.Sprintf("boot-%d-of-%s", m.boots, m.name)), Stage: "maintenance",
		TalosVersion: facts.Of(testTalos), EtcdService: facts.Unknown[string]("it is blank"), Member: facts.Unknown[facts.MemberID]("etcd does not answer"),
	}
	if !m.configured {
		return l
	}
	l.Mode, l.Stage, l.EtcdService = facts.Configured, "booting", facts.Of("Preparing")
	if m.etcd != 0 {
		l.Stage, l.Ready, l.EtcdService, l.Member = "running", true, facts.Of("Running"), facts.Of(m.etcd)
	}
	return l
}

// cluster reads the TalosCluster.
func (w *world) cluster(ctx context.Context) *v1alpha1.TalosCluster {
	w.t.Helper()
	c := &v1alpha1.TalosCluster{}
	if err := w.api.Get(ctx, types.NamespacedName{Namespace: testNamespace, Name: testCluster}, c); err != nil {
		w.t.Fatalf("cannot read the TalosCluster: %v", err)
	}
	return c
}

// pass runs one pass of a process.
func (w *world) pass(r reconcile.Reconciler) (reconcile.Result, error) {
	w.before = w.api.history.Writes()
	req := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: testNamespace, Name: testCluster}}
	res, err := r.Reconcile(context.Background(), req)
	if w.twin != nil {
		_, _ = w.twin.Reconcile(context.Background(), req) // What failed is tried again.
	}
	if w.cache != nil && !w.dead {
		w.cache.CatchUp(w.before)
	}
	return res, err
}
