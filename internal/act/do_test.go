package act

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/configchange"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/removal"
	"github.com/maesh/provider-ichor/internal/talos"
)

// fakeDoors open one fake machine for each address, all with one ledger.
type fakeDoors struct {
	*ledger
	// errs are what the machine at each address answers.
	errs map[string]error
	kube kubernetes.Interface
}

func (d fakeDoors) Machine(address string) Machine {
	d.addf("open %s", address)
	return &fakeMachine{ledger: d.ledger, uuid: uuid, err: d.errs[address]}
}

func (d fakeDoors) Kubernetes() (kubernetes.Interface, error) {
	if d.kube == nil {
		return nil, errBoom
	}
	return d.kube, nil
}

// newJob is a job on the first of three control planes, and the ledger of all that is done in it.
func newJob(kube kubernetes.Interface) (Job, *ledger) {
	l := &ledger{}
	voter := func(id facts.MachineID) facts.View { return facts.View{Machine: id, Healthy: facts.Of(true)} }
	machine := facts.Machine{
		ID: target.ID, Name: target.Name, UUID: uuid, Role: facts.ControlPlane, LastMember: 0xbad,
		Live: facts.Of(facts.Live{TalosVersion: facts.Of("v1.14.0"), BootID: facts.Of(target.BootID)}),
		Node: facts.Of(facts.Node{Exists: true, Name: target.Node}),
	}
	object := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: target.Name, UID: "uid-1"}}
	object.Spec.ForProvider.Address = "192.0.2.1"
	object.Spec.ForProvider.Reset.Wipe = []string{"u-data"}
	return Job{
		Lock: &fakeLock{ledger: l}, Doors: fakeDoors{ledger: l, kube: kube}, Object: object, Target: machine, Config: []byte("config"),
		Facts: facts.Cluster{
			Machines: []facts.Machine{machine, {ID: "uid-2", Address: "192.0.2.2"}, {ID: "uid-3", Address: "192.0.2.3"}},
			Etcd:     facts.Etcd{Views: []facts.View{voter("uid-1"), voter("uid-2"), voter("uid-3")}},
		},
	}, l
}

// sent are the calls of a ledger that change a machine, without those that look and those of the lock.
func sent(l *ledger) []string {
	var calls []string
	for _, c := range l.calls {
		switch c {
		case "prove", "check lock", "mark irreversible", "renew while":
		default:
			calls = append(calls, c)
		}
	}
	return calls
}

// TestStepsReachTheirMachine: each decided step becomes the one call that it names, to the machine that it is for.
func TestStepsReachTheirMachine(t *testing.T) {
	remove := func(d removal.Act) func(*Actor, Job) error {
		return func(a *Actor, j Job) error {
			d.Permit = grant(d.Step.String())
			return a.Remove(context.Background(), j, d)
		}
	}
	reconfigure := func(s configchange.Step) func(*Actor, Job) error {
		return func(a *Actor, j Job) error {
			return a.Reconfigure(context.Background(), j, configchange.Act{Step: s, Permit: grant(s.String())})
		}
	}
	cases := map[string]struct {
		do   func(*Actor, Job) error
		want []string
	}{
		"RemoveMoveLeadership": {remove(removal.Act{Step: removal.MoveLeadership}), []string{"open 192.0.2.1", "forfeit"}},
		"RemoveLeaveEtcd":      {remove(removal.Act{Step: removal.LeaveEtcd}), []string{"open 192.0.2.1", "leave"}},
		"RemoveMember":         {remove(removal.Act{Step: removal.RemoveMember, Member: 0xa1}), []string{"open 192.0.2.2", "open 192.0.2.3", "remove member a1"}},
		"RemoveReset": {
			remove(removal.Act{Step: removal.Reset}),
			[]string{"open 192.0.2.1", "reset [STATE EPHEMERAL CRI KUBELET LOG ETCD u-data]"},
		},
		"ReconfigureStage":          {reconfigure(configchange.Stage), []string{"open 192.0.2.1", "apply config 3"}},
		"ReconfigureMoveLeadership": {reconfigure(configchange.MoveLeadership), []string{"open 192.0.2.1", "forfeit"}},
		"ReconfigureReboot":         {reconfigure(configchange.Reboot), []string{"open 192.0.2.1", "reboot"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := newTestActor(t)
			j, l := newJob(nil)
			err := tc.do(a, j)
			a.background.calls.Wait()
			if diff := cmp.Diff(tc.want, sent(l)); diff != "" || err != nil {
				t.Errorf("%v, -want, +got:\n%s", err, diff)
			}
		})
	}
}

func TestUnknownStepsAreRefused(t *testing.T) {
	a := newTestActor(t)
	j, l := newJob(nil)
	for _, step := range []removal.Step{0, removal.Release} {
		if err := a.Remove(context.Background(), j, removal.Act{Step: step}); err == nil {
			t.Errorf("step %q of a removal was carried out, which does nothing to a machine", step)
		}
	}
	if err := a.Reconfigure(context.Background(), j, configchange.Act{}); err == nil {
		t.Error("a step of a change of configuration that is not known was carried out")
	}
	if len(l.calls) > 0 {
		t.Errorf("something was done: %q", l.calls)
	}
}

// TestPeers: a member is removed through a voter that serves, and never through the machine whose member it is, nor one that
// the survey does not know.
func TestPeers(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*facts.View)
		want   []string
	}{
		"Healthy":   {reason: "A healthy voter is asked.", change: func(*facts.View) {}, want: []string{"open 192.0.2.2", "remove member a1"}},
		"Itself":    {reason: "A machine is no peer of its own.", change: func(v *facts.View) { v.Machine = target.ID }},
		"Learner":   {reason: "A learner cannot change the members.", change: func(v *facts.View) { v.Learner = true }},
		"Unhealthy": {reason: "A member without a leader cannot, either.", change: func(v *facts.View) { v.Healthy = facts.Of(false) }},
		"Unknown":   {reason: "Neither can one of which nothing is known.", change: func(v *facts.View) { v.Healthy = facts.Unknown[bool]("no answer") }},
		"Foreign":   {reason: "There is no way to a machine that is not declared.", change: func(v *facts.View) { v.Machine = "uid-9" }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			j, l := newJob(nil)
			v := facts.View{Machine: "uid-2", Healthy: facts.Of(true)}
			tc.change(&v)
			j.Facts.Etcd.Views = []facts.View{v}
			d := removal.Act{Step: removal.RemoveMember, Permit: grant("RemoveMember"), Member: 0xa1}
			err := newTestActor(t).Remove(context.Background(), j, d)
			if diff := cmp.Diff(tc.want, sent(l)); diff != "" || (err != nil) != (tc.want == nil) {
				t.Errorf("\n%s\n%v, -want, +got:\n%s", tc.reason, err, diff)
			}
		})
	}
}

// TestTargetIsTheRecordedMachine: what a removal was begun with is what it goes on with, whatever is declared by now.
func TestTargetIsTheRecordedMachine(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*facts.Machine)
		want   Target
	}{
		"NoRecord": {reason: "Without a record the pinned UUID counts.", change: func(*facts.Machine) {}, want: target},
		"Record": {
			reason: "The UUID in the record counts, or a changed declaration would have another machine reset.",
			change: func(m *facts.Machine) { m.Record, m.UUID = &facts.Record{UUID: uuid}, "another" },
			want:   target,
		},
		"RecordWithoutUUID": {
			reason: "A record of a machine that had none yet names none.",
			change: func(m *facts.Machine) { m.Record = &facts.Record{} },
			want:   target,
		},
		"NoNode": {
			reason: "A Node that does not exist has no name.",
			change: func(m *facts.Machine) { m.Node = facts.Of(facts.Node{Name: "left"}) },
			want:   Target{ID: target.ID, Name: target.Name, UUID: uuid, BootID: target.BootID},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			j, _ := newJob(nil)
			tc.change(&j.Target)
			if diff := cmp.Diff(tc.want, j.target()); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestDrainIsForcedOnlyIfDeclared: what a drain may lose is what the job says, for a removal as for a reboot.
func TestDrainIsForcedOnlyIfDeclared(t *testing.T) {
	drains := map[string]func(*Actor, Job) error{
		"Removal": func(a *Actor, j Job) error {
			return a.Remove(context.Background(), j, removal.Act{Step: removal.Drain, Permit: grant("Drain")})
		},
		"Reboot": func(a *Actor, j Job) error {
			return a.Reconfigure(context.Background(), j, configchange.Act{Step: configchange.Drain, Permit: grant("Drain")})
		},
	}
	for name, drain := range drains {
		for _, o := range []DrainOptions{{}, {Force: true}, {DeleteEmptyDirData: true}, {Force: true, DeleteEmptyDirData: true}} {
			objects := []runtime.Object{node("node-1", uuid, true, ""), pod("bare", unmanaged), pod("data", withData)}
			k := fake.NewClientset(objects...)
			asked := evictions(k, nil)
			j, _ := newJob(k)
			j.Drain = o
			err := drain(newTestActor(t), j)
			blocked := (*DrainBlockedError)(nil)
			want := []string(nil)
			if o.Force && o.DeleteEmptyDirData {
				want = []string{"bare", "data"}
			}
			if diff := cmp.Diff(want, asked()); diff != "" || errors.As(err, &blocked) != (want == nil) {
				t.Errorf("%s with %+v: %v, evictions: -want, +got:\n%s", name, o, err, diff)
			}
		}
	}
}

// A step that reaches the Node by mistake does nothing to it, although its permit is good.
func TestOnlyStepsOfNodesTouchNodes(t *testing.T) {
	a, api, l := newTestActor(t), fake.NewClientset(node("node-1", uuid, false, "")), &ledger{}
	j := Job{Lock: &fakeLock{ledger: l}, Doors: fakeDoors{ledger: l, kube: api}}

	remove := removal.Act{Step: removal.LeaveEtcd, Permit: grant(removal.LeaveEtcd.String())}
	if err := a.onNode(t.Context(), j, target, remove); err == nil {
		t.Error("onNode(...) carried a step out that is none of a Node")
	}
	reboot := configchange.Act{Step: configchange.Reboot, Permit: grant(configchange.Reboot.String())}
	if err := a.reconfigureNode(t.Context(), j, target, reboot); err == nil {
		t.Error("reconfigureNode(...) carried a step out that is none of a Node")
	}
	if actions := api.Actions(); len(actions) > 0 || len(l.calls) > 0 {
		t.Errorf("the API was asked %v, and %v was called", actions, l.calls)
	}
}

// TestNodeStepsNeedTheKubernetesAPI: a step on a Node is not taken for done because its API cannot be opened.
func TestNodeStepsNeedTheKubernetesAPI(t *testing.T) {
	for _, s := range []removal.Step{removal.Cordon, removal.Drain, removal.DeleteNode} {
		j, _ := newJob(nil)
		err := newTestActor(t).Remove(context.Background(), j, removal.Act{Step: s, Permit: grant(s.String())})
		if !errors.Is(err, errBoom) {
			t.Errorf("%s of a removal: %v", s, err)
		}
	}
	for _, s := range []configchange.Step{configchange.Cordon, configchange.Drain, configchange.Uncordon} {
		j, _ := newJob(nil)
		err := newTestActor(t).Reconfigure(context.Background(), j, configchange.Act{Step: s, Permit: grant(s.String())})
		if !errors.Is(err, errBoom) {
			t.Errorf("%s of a change of configuration: %v", s, err)
		}
	}
}

// TestConfigurationsHaveTheirMode: only a blank machine may be rebooted by its configuration.
func TestConfigurationsHaveTheirMode(t *testing.T) {
	for name, tc := range map[string]struct {
		apply func(context.Context, Target, Configurer, []byte) error
		mode  talos.Mode
	}{
		"First":  {FirstConfig, talos.Auto},
		"Change": {ChangeConfig, talos.NoReboot},
	} {
		l := &ledger{}
		if err := tc.apply(context.Background(), target, &fakeMachine{ledger: l, uuid: uuid}, []byte("config")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		want := &ledger{}
		want.addf("prove")
		want.addf("apply config %d", tc.mode)
		if diff := cmp.Diff(want.calls, l.calls); diff != "" {
			t.Errorf("%s: -want, +got:\n%s", name, diff)
		}

		l = &ledger{}
		if err := tc.apply(context.Background(), target, &fakeMachine{ledger: l, uuid: "another"}, []byte("config")); err == nil || len(sent(l)) > 0 {
			t.Errorf("%s: another machine was given the keys of the cluster: %v, %q", name, err, l.calls)
		}
		if err := tc.apply(context.Background(), target, &fakeMachine{ledger: l, uuid: uuid, err: errBoom}, []byte("config")); !errors.Is(err, errBoom) {
			t.Errorf("%s: a refused configuration is taken for applied: %v", name, err)
		}
	}
}
