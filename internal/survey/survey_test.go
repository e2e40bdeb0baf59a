package survey

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/talos"
)

// sameFacts compares facts with what is unknown and why.
var sameFacts = cmp.Options{
	cmpopts.EquateEmpty(),
	cmp.AllowUnexported(
		facts.Known[int]{}, facts.Known[facts.Live]{}, facts.Known[facts.Node]{}, facts.Known[string]{}, facts.Known[bool]{},
		facts.Known[facts.MemberID]{}, facts.Known[[]facts.Member]{}, facts.Known[[]facts.Alarm]{},
		facts.Known[talos.EtcdStatus]{}, facts.Known[talos.Config]{},
	),
}

func controlPlanes() []client.Object {
	return []client.Object{cluster(), machineObject("cp-3"), machineObject("cp-1"), machineObject("cp-2")}
}

func TestClusterThatAnswers(t *testing.T) {
	a := &fakeAccess{configured: threeMembers(), kube: kubefake.NewClientset(node("k-1", "UUID-CP-1"), node("k-2", "uuid-cp-2"))}
	for i := 1; i <= 3; i++ {
		a.configured[fmt.Sprintf("addr-cp-%d", i)].nodename = fmt.Sprintf("k-%d", i)
	}
	for _, m := range a.configured { // as etcd says it, and all members do
		m.etcd.Errors = []string{"memberID:2 alarm:NOSPACE ", "memberID:1 alarm:CORRUPT "}
	}
	a.configured["addr-cp-2"].alarms = []talos.Alarm{{Member: 2, Name: "NOSPACE"}}
	a.configured["addr-cp-3"].alarms = []talos.Alarm{{Member: 2, Name: "NOSPACE"}, {Member: 1, Name: "CORRUPT"}}
	s, _ := surveyor(t, a, controlPlanes()...)

	got, err := s.Cluster(t.Context(), home, "")
	if err != nil {
		t.Fatal(err)
	}
	members := facts.Of([]facts.Member{
		{ID: 1, Name: "cp-1", PeerHosts: []string{"addr-cp-1"}}, {ID: 2, Name: "cp-2", PeerHosts: []string{"addr-cp-2"}}, {ID: 3, Name: "cp-3", PeerHosts: []string{"addr-cp-3"}},
	})
	want := facts.Cluster{
		Name: "home", TakenAt: start, Declared: facts.Of(3),
		Etcd: facts.Etcd{Alarms: facts.Of([]facts.Alarm{{Member: 1, Name: "CORRUPT"}, {Member: 2, Name: "NOSPACE"}})},
	}
	for i, name := range []string{"cp-1", "cp-2", "cp-3"} {
		id := facts.MachineID("uid-" + name)
		n := facts.Node{}
		if i < 2 {
			n = facts.Node{Exists: true, Name: fmt.Sprintf("k-%d", i+1), Ready: true, KubeletVersion: "v1.35.4", Addresses: []string{"192.0.2.1", fmt.Sprintf("k-%d", i+1)}}
		}
		want.Machines = append(want.Machines, facts.Machine{
			ID: id, Name: name, Role: facts.ControlPlane, Address: "addr-" + name, Approved: true, UUID: "uuid-" + name, Nodename: fmt.Sprintf("k-%d", i+1),
			Live: facts.Of(facts.Live{
				Mode: facts.Configured, UUID: "uuid-" + name, BootID: facts.Of("boot-" + name), Stage: "running", Ready: true,
				TalosVersion: facts.Of("v1.13.9"), Nodename: facts.Of(fmt.Sprintf("k-%d", i+1)), EtcdService: facts.Of("Running"), EtcdSays: "Started task etcd", Member: facts.Of(facts.MemberID(i + 1)),
			}),
			Node: facts.Of(n),
		})
		want.Etcd.Views = append(want.Etcd.Views, facts.View{Machine: id, Self: facts.MemberID(i + 1), Members: members, Leader: 1, Term: 4, Healthy: facts.Of(true)})
	}
	if diff := cmp.Diff(want, got, sameFacts); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A learner has no vote, also where only the lists of the others tell of it: one that passed for a voter would count for quorum.
func TestLearnerInTheLists(t *testing.T) {
	machines := threeMembers()
	delete(machines, "addr-cp-3")
	for _, m := range machines {
		for i := range m.members {
			m.members[i].Learner = m.members[i].ID == 3
		}
	}
	s, _ := surveyor(t, &fakeAccess{configured: machines, kubeErr: errNoKube}, controlPlanes()...)
	f, err := s.Cluster(t.Context(), home, "")
	if err != nil || len(f.Etcd.Views) != 2 {
		t.Fatalf("%d views, %v", len(f.Etcd.Views), err)
	}
	for _, v := range f.Etcd.Views {
		members, _ := v.Members.Get()
		for _, m := range members {
			if m.Learner != (m.ID == 3) {
				t.Errorf("%s says of member %d: learner %t", v.Machine, m.ID, m.Learner)
			}
		}
	}
}

// What is not known must come out as unknown, with why, and never as absent, empty, false or zero.
func TestUnknownStaysUnknown(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(a *fakeAccess)
		check  func(t *testing.T, f facts.Cluster)
	}{
		"MachineDown": {
			reason: "A machine that is down is still there, and so is its entry in the lists of the others.",
			change: func(a *fakeAccess) { delete(a.configured, "addr-cp-2") },
			check: func(t *testing.T, f facts.Cluster) {
				unknown(t, "live", f.Machines[1].Live)
				if got := len(f.Etcd.Views); got != 2 {
					t.Errorf("views: got %d, want 2", got)
				}
				if l, _ := f.Etcd.Views[0].Members.Get(); len(l) != 3 {
					t.Errorf("members as cp-1 lists them: got %d, want 3", len(l))
				}
			},
		},
		"ForeignMachine": {
			reason: "A machine of another cluster is no answer.",
			change: func(a *fakeAccess) {
				delete(a.configured, "addr-cp-2")
				a.blank = map[string]*fakeMachine{"addr-cp-2": nil}
			},
			check: func(t *testing.T, f facts.Cluster) { unknown(t, "live", f.Machines[1].Live) },
		},
		"BlankInAnotherStage": {
			reason: "A machine without configuration that is not waiting for one may be on its way to anything.",
			change: func(a *fakeAccess) {
				delete(a.configured, "addr-cp-2")
				a.blank = map[string]*fakeMachine{"addr-cp-2": {uuid: "uuid-cp-2", stage: "booting"}}
			},
			check: func(t *testing.T, f facts.Cluster) { unknown(t, "live", f.Machines[1].Live) },
		},
		"NoStage": {
			reason: "A machine that does not tell its stage may be on its way down; what its etcd said stands.",
			change: func(a *fakeAccess) {
				a.configured["addr-cp-2"].fail = map[string]error{"Status": failed(talos.Timeout)}
			},
			check: func(t *testing.T, f facts.Cluster) {
				unknown(t, "live", f.Machines[1].Live)
				if got := len(f.Etcd.Views); got != 3 {
					t.Errorf("views: got %d, want 3", got)
				}
			},
		},
		"EtcdHangs": {
			reason: "A member that does not answer has no view, and the machine's member is not known.",
			change: func(a *fakeAccess) {
				a.configured["addr-cp-2"].fail = map[string]error{"EtcdStatus": failed(talos.Timeout), "EtcdMembers": failed(talos.Timeout), "EtcdService": failed(talos.Timeout)}
			},
			check: func(t *testing.T, f facts.Cluster) {
				l, _ := f.Machines[1].Live.Get()
				unknown(t, "member", l.Member)
				unknown(t, "etcd service", l.EtcdService)
				if got := len(f.Etcd.Views); got != 2 {
					t.Errorf("views: got %d, want 2", got)
				}
			},
		},
		"NoList": {
			reason: "A list that was not given is not an empty list.",
			change: func(a *fakeAccess) {
				a.configured["addr-cp-2"].fail = map[string]error{"EtcdMembers": failed(talos.NoLeader)}
			},
			check: func(t *testing.T, f facts.Cluster) { unknown(t, "members", f.Etcd.Views[1].Members) },
		},
		"NoAlarms": {
			reason: "Alarms that nobody told are not no alarms.",
			change: func(a *fakeAccess) {
				for _, m := range a.configured {
					m.fail = map[string]error{"EtcdAlarms": failed(talos.Timeout)}
				}
			},
			check: func(t *testing.T, f facts.Cluster) { unknown(t, "alarms", f.Etcd.Alarms) },
		},
		"NothingAnswers": {
			reason: "Nothing is known, and all machines are there.",
			change: func(a *fakeAccess) { a.configured = nil },
			check: func(t *testing.T, f facts.Cluster) {
				if got := len(f.Machines); got != 3 {
					t.Fatalf("machines: got %d, want 3", got)
				}
				for _, m := range f.Machines {
					unknown(t, m.Name, m.Live)
				}
				unknown(t, "alarms", f.Etcd.Alarms)
			},
		},
		"NoVersionNoBootID": {
			reason: "Each answer stands for itself.",
			change: func(a *fakeAccess) {
				a.configured["addr-cp-2"].fail = map[string]error{"Version": failed(talos.Timeout), "BootID": failed(talos.Denied)}
			},
			check: func(t *testing.T, f facts.Cluster) {
				l, ok := f.Machines[1].Live.Get()
				if !ok {
					t.Fatal("the machine is unknown as a whole")
				}
				unknown(t, "version", l.TalosVersion)
				unknown(t, "boot ID", l.BootID)
			},
		},
		"NoUUID": {
			reason: "A machine that does not tell which one it is, as Talos does not in a container, is unknown as a whole: its boot ID would be another's.",
			change: func(a *fakeAccess) {
				a.configured["addr-cp-2"].fail = map[string]error{"System": failed(talos.NotFound)}
			},
			check: func(t *testing.T, f facts.Cluster) { unknown(t, "cp-2", f.Machines[1].Live) },
		},
		"NoKubernetes": {
			reason: "A Kubernetes API that does not answer does not mean that there is no Node.",
			change: func(a *fakeAccess) { a.kube, a.kubeErr = nil, errors.New("no PKI") },
			check: func(t *testing.T, f facts.Cluster) {
				for _, m := range f.Machines {
					unknown(t, m.Name, m.Node)
				}
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := &fakeAccess{configured: threeMembers(), kube: kubefake.NewClientset()}
			tc.change(a)
			s, _ := surveyor(t, a, controlPlanes()...)
			f, err := s.Cluster(t.Context(), home, "")
			if err != nil {
				t.Fatalf("\n%s\n%v", tc.reason, err)
			}
			tc.check(t, f)
			if t.Failed() {
				t.Log(tc.reason)
			}
		})
	}
}

func unknown[T any](t *testing.T, what string, k facts.Known[T]) {
	t.Helper()
	if v, ok := k.Get(); ok {
		t.Errorf("%s is known: %v", what, v)
	}
	if k.Why() == "" || k.Why() == "never looked at" {
		t.Errorf("%s does not say why it is unknown", what)
	}
}

// Health is what a member reports of itself: it follows a leader and has no errors but the alarms, which every member tells of
// all: the alarm of one must not read as if nobody served.
func TestHealth(t *testing.T) {
	cases := map[string]struct {
		status talos.EtcdStatus
		want   bool
	}{
		"Serves":   {talos.EtcdStatus{Member: 2, Leader: 1}, true},
		"NoLeader": {talos.EtcdStatus{Member: 2, Errors: []string{"etcdserver: no leader"}}, false},
		"Silent":   {talos.EtcdStatus{Member: 2}, false},
		"Failing":  {talos.EtcdStatus{Member: 2, Leader: 1, Errors: []string{"memberID:3 alarm:NOSPACE ", "etcdserver: corrupt cluster"}}, false},
		"Alarmed":  {talos.EtcdStatus{Member: 2, Leader: 1, Errors: []string{"memberID:3 alarm:NOSPACE "}}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := &fakeAccess{configured: threeMembers(), kube: kubefake.NewClientset()}
			a.configured["addr-cp-2"].etcd = &tc.status
			s, _ := surveyor(t, a, controlPlanes()...)
			f, err := s.Cluster(t.Context(), home, "")
			if err != nil {
				t.Fatal(err)
			}
			if got := f.Etcd.Views[1].Healthy; !got.IsKnown() || facts.Is(got, true) != tc.want {
				t.Errorf("healthy: got %+v, want %v", got, tc.want)
			}
		})
	}
}

func TestBlankMachine(t *testing.T) {
	cases := map[string]struct {
		reason  string
		version string
		fail    map[string]error
		known   bool
	}{
		"1.13": {reason: "It tells its version.", version: "v1.13.9", known: true},
		"1.12": {reason: "It does not know the call.", fail: map[string]error{"Version": failed(talos.Unimplemented)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := &fakeMachine{uuid: "uuid-cp-1", stage: "maintenance", version: tc.version, fail: tc.fail}
			a := &fakeAccess{blank: map[string]*fakeMachine{"addr-cp-1": m}, kube: kubefake.NewClientset()}
			s, _ := surveyor(t, a, cluster(), machineObject("cp-1", func(m *v1alpha1.TalosMachine) {
				m.Spec.ForProvider.MaintenanceFingerprint = "pin"
			}))
			f, err := s.Cluster(t.Context(), home, "")
			if err != nil {
				t.Fatal(err)
			}
			l, ok := f.Machines[0].Live.Get()
			if !ok || l.Mode != facts.Maintenance || l.UUID != "uuid-cp-1" || l.TalosVersion.IsKnown() != tc.known {
				t.Errorf("\n%s\ngot %+v (%s)", tc.reason, l, f.Machines[0].Live.Why())
			}
			if got := m.questions(); slices.Contains(got, "EtcdStatus") || slices.Contains(got, "Config") || slices.Contains(got, "BootID") {
				t.Errorf("a blank machine was asked what it may not tell: %v", got)
			}
			if diff := cmp.Diff([]string{""}, a.pins); diff != "" {
				t.Errorf("a survey pinned a fingerprint, which changes with every boot:\n%s", diff)
			}
		})
	}
}

func TestWorkersAreNotAskedForEtcd(t *testing.T) {
	w := &fakeMachine{uuid: "uuid-w", bootID: "b", version: "v1.13.9", stage: "running"}
	a := &fakeAccess{configured: map[string]*fakeMachine{"addr-w": w}, kube: kubefake.NewClientset()}
	s, _ := surveyor(t, a, cluster(), machineObject("w", worker))
	f, err := s.Cluster(t.Context(), home, "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"BootID", "Nodename", "Status", "System", "Version"}, w.questions()); diff != "" {
		t.Errorf("questions: -want +got:\n%s", diff)
	}
	l, _ := f.Machines[0].Live.Get()
	unknown(t, "member", l.Member)
	unknown(t, "etcd service", l.EtcdService)
}

func TestRemovedMachinesAreNotAsked(t *testing.T) {
	machines := threeMembers()
	a := &fakeAccess{configured: machines, kube: kubefake.NewClientset()}
	s, _ := surveyor(t, a, cluster(), machineObject("cp-1"), machineObject("cp-2", removed))
	f, err := s.Cluster(t.Context(), home, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := machines["addr-cp-2"].questions(); len(got) > 0 {
		t.Errorf("a removed machine was asked: %v", got)
	}
	if !f.Machines[1].Removed {
		t.Error("the machine does not count as removed")
	}
	unknown(t, "live", f.Machines[1].Live)
}

// Without its TalosCluster, or without a way in, the machines are there and nothing is known of them.
func TestClosedCluster(t *testing.T) {
	cases := map[string]struct {
		opener  Opener
		objects []client.Object
		known   bool
	}{
		"NoCluster": {&fakeAccess{configured: threeMembers()}, []client.Object{machineObject("cp-1")}, false},
		"NoPKI":     {closed{}, []client.Object{cluster(), machineObject("cp-1")}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, _ := surveyor(t, tc.opener, tc.objects...)
			f, err := s.Cluster(t.Context(), home, "")
			if err != nil {
				t.Fatal(err)
			}
			if len(f.Machines) != 1 {
				t.Fatalf("machines: got %d, want 1", len(f.Machines))
			}
			unknown(t, "live", f.Machines[0].Live)
			unknown(t, "node", f.Machines[0].Node)
			unknown(t, "alarms", f.Etcd.Alarms)
			if f.Declared.IsKnown() != tc.known {
				t.Errorf("declared: got %+v", f.Declared)
			}
		})
	}
}

type closed struct{}

func (closed) Open(context.Context, *v1alpha1.TalosCluster) (Access, error) {
	return nil, errors.New("no PKI yet")
}

// A management API that does not answer is an error: there is nothing to decide on.
func TestManagementAPIDown(t *testing.T) {
	boom := errors.New("boom")
	cases := map[string]interceptor.Funcs{
		"Get": {Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return boom
		}},
		"List": {List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return boom
		}},
	}
	for name, f := range cases {
		t.Run(name, func(t *testing.T) {
			r := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(controlPlanes()...).WithInterceptorFuncs(f).Build()
			a := &fakeAccess{configured: threeMembers()}
			s, _ := surveyor(t, a)
			s.reader = r
			if _, err := s.Cluster(t.Context(), home, ""); !errors.Is(err, boom) {
				t.Errorf("Cluster: got %v, want %v", err, boom)
			}
			if _, err := s.Objects(t.Context(), home); !errors.Is(err, boom) {
				t.Errorf("Objects: got %v, want %v", err, boom)
			}
			if name == "List" {
				if _, err := CountApprovedControlPlanes(t.Context(), r, home.Namespace, home.Name); !errors.Is(err, boom) {
					t.Errorf("CountApprovedControlPlanes: got %v, want %v", err, boom)
				}
			}
			for _, m := range a.configured {
				if got := m.questions(); len(got) > 0 {
					t.Errorf("machines were asked all the same: %v", got)
				}
			}
		})
	}
}

func TestObjectsAskNobody(t *testing.T) {
	a := &fakeAccess{configured: threeMembers()}
	s, _ := surveyor(t, a, controlPlanes()...)
	f, err := s.Objects(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range f.Machines {
		unknown(t, "live", m.Live)
		unknown(t, "node", m.Node)
	}
	for _, m := range a.configured {
		if got := m.questions(); len(got) > 0 {
			t.Errorf("a machine was asked: %v", got)
		}
	}
}
