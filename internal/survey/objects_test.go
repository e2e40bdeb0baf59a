package survey

import (
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/facts"
)

func inCluster(name string) func(*v1alpha1.TalosMachine) {
	return func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.ClusterRef.Name = name }
}

func inNamespace(ns string) func(*v1alpha1.TalosMachine) {
	return func(m *v1alpha1.TalosMachine) { m.SetNamespace(ns); m.SetUID("uid-" + m.GetUID() + "-elsewhere") }
}

func deleting(m *v1alpha1.TalosMachine) {
	now := metav1.NewTime(time.Unix(1, 0))
	m.SetDeletionTimestamp(&now)
	m.SetFinalizers([]string{v1alpha1.FinalizerMachine})
}

func TestCountApprovedControlPlanes(t *testing.T) {
	objects := []client.Object{
		cluster(),
		machineObject("cp-1"),
		machineObject("cp-2", deleting),
		machineObject("cp-3", unapproved),
		machineObject("cp-4", removed),
		machineObject("w-1", worker),
		machineObject("cp-5", inCluster("other")),
		machineObject("cp-6", inNamespace("elsewhere")),
		machineObject("cp-7", func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.ClusterRef = nil }),
		machineObject("cp-8", deleting, recorded),
	}
	s, _ := surveyor(t, closed{}, objects...)
	const want = 3 // cp-1, and cp-2 and cp-8 until they are gone.
	got, err := CountApprovedControlPlanes(t.Context(), s.reader, home.Namespace, home.Name)
	if err != nil || got != want {
		t.Errorf("got %d (%v), want %d", got, err, want)
	}
	f, err := s.Objects(t.Context(), home)
	if err != nil || f.ApprovedControlPlanes() != want {
		t.Errorf("the survey counts %d (%v), want %d", f.ApprovedControlPlanes(), err, want)
	}
}

func TestFactsOfObjects(t *testing.T) {
	full := machineObject("cp-1", deleting, func(m *v1alpha1.TalosMachine) {
		m.SetAnnotations(map[string]string{
			v1alpha1.AnnotationAllowDelete:           "true",
			v1alpha1.AnnotationAcceptUnwipedDisk:     "UUID-CP-1",
			v1alpha1.AnnotationHoldPrefix + "rook":   "osd.3 moves",
			v1alpha1.AnnotationHoldPrefix + "backup": "runs",
		})
		m.Spec.ForProvider.Unreachable.Policy = v1alpha1.UnreachableRemoveMember
		m.Status.AtProvider.Etcd = &v1alpha1.MachineEtcdObservation{MemberID: "ff"}
		_ = m.SetRemovalRecord(v1alpha1.RemovalRecord{UUID: "UUID-cp-1", BootID: "b", MemberID: "a1", Reset: true})
	})
	c := cluster()
	c.SetAnnotations(map[string]string{v1alpha1.AnnotationBootstrapped: "UUID-X", v1alpha1.AnnotationBootstrapBoot: "boot-x", v1alpha1.AnnotationAllowDelete: "true"})
	c.SetManagementPolicies(xpv2.ManagementPolicies{xpv2.ManagementActionAll})
	now := metav1.NewTime(time.Unix(1, 0))
	c.SetDeletionTimestamp(&now)
	c.SetFinalizers([]string{v1alpha1.FinalizerCluster})

	s, _ := surveyor(t, closed{}, c, full)
	got, err := s.Objects(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	const why = "the machine was not asked"
	want := facts.Cluster{
		Name: "home", TakenAt: start, Declared: facts.Of(3), Teardown: true, Bootstrapped: "uuid-x", BootstrapBoot: "boot-x",
		Etcd: facts.Etcd{Alarms: facts.Unknown[[]facts.Alarm]("no member of etcd was asked")},
		Machines: []facts.Machine{{
			ID: "uid-cp-1", Name: "cp-1", Role: facts.ControlPlane, Address: "addr-cp-1",
			Approved: true, Deleting: true, AllowDelete: true, UUID: "uuid-cp-1",
			Holds:             []facts.Hold{{Who: "backup", Why: "runs"}, {Who: "rook", Why: "osd.3 moves"}},
			RemoveUnreachable: true, AcceptedUnwiped: "uuid-cp-1", LastMember: 0xff,
			Record: &facts.Record{UUID: "uuid-cp-1", BootID: "b", Member: 0xa1, Reset: true},
			Live:   facts.Unknown[facts.Live](why), Node: facts.Unknown[facts.Node](why),
		}},
	}
	if diff := cmp.Diff(want, got, sameFacts); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestTeardownIsAllowed: quorum guards stand aside in a teardown, so it takes more than a deletion to be one.
func TestTeardownIsAllowed(t *testing.T) {
	delete := func(c *v1alpha1.TalosCluster) {
		now := metav1.NewTime(time.Unix(1, 0))
		c.SetDeletionTimestamp(&now)
		c.SetFinalizers([]string{v1alpha1.FinalizerCluster})
	}
	allow := func(value string) func(*v1alpha1.TalosCluster) {
		return func(c *v1alpha1.TalosCluster) {
			c.SetAnnotations(map[string]string{v1alpha1.AnnotationAllowDelete: value})
		}
	}
	policy := func(a xpv2.ManagementAction) func(*v1alpha1.TalosCluster) {
		return func(c *v1alpha1.TalosCluster) { c.SetManagementPolicies(xpv2.ManagementPolicies{a}) }
	}
	all := policy(xpv2.ManagementActionAll)
	type changes = []func(*v1alpha1.TalosCluster)
	cases := map[string]struct {
		changes changes
		want    bool
	}{
		"Teardown":       {changes{delete, allow("true"), all}, true},
		"NotDeleted":     {changes{allow("true"), all}, false},
		"NobodyAllowed":  {changes{delete, all}, false},
		"SomethingElse":  {changes{delete, allow("yes"), all}, false},
		"LeftAsItIs":     {changes{delete, allow("true"), policy(xpv2.ManagementActionObserve)}, false},
		"DeleteByItself": {changes{delete, allow("true"), policy(xpv2.ManagementActionDelete)}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := cluster()
			for _, change := range tc.changes {
				change(c)
			}
			s, _ := surveyor(t, closed{}, c)
			f, err := s.Objects(t.Context(), home)
			if err != nil || f.Teardown != tc.want {
				t.Errorf("teardown: got %t (%v), want %t", f.Teardown, err, tc.want)
			}
		})
	}
}

// TestOnlyTrueAllows: any other value of the annotation is a mistake and not a permission.
func TestOnlyTrueAllows(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "": false, "false": false, "yes": false, "True": false} {
		s, _ := surveyor(t, closed{}, cluster(), machineObject("cp-1", func(m *v1alpha1.TalosMachine) {
			m.SetAnnotations(map[string]string{v1alpha1.AnnotationAllowDelete: value})
		}))
		f, err := s.Objects(t.Context(), home)
		if err != nil || f.Machines[0].AllowDelete != want {
			t.Errorf("%q: got %v (%v), want %t", value, f.Machines, err, want)
		}
	}
}

// TestSameHostname: two machines of one hostname would throw each other out of etcd, so each names the other while it may
// still join.
func TestSameHostname(t *testing.T) {
	called := func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.Hostname = "cp-1" }
	for name, tc := range map[string]struct {
		other *v1alpha1.TalosMachine
		want  []string
	}{
		"Approved":   {machineObject("cp-2", called), []string{"cp-2"}},
		"Unapproved": {machineObject("cp-2", called, unapproved), nil},
		"Removed":    {machineObject("cp-2", called, removed), nil},
		"Other":      {machineObject("cp-2"), nil},
	} {
		s, _ := surveyor(t, closed{}, cluster(), machineObject("cp-1"), tc.other)
		f, err := s.Objects(t.Context(), home)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, f.Machines[0].SameHostname); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// What the provider wrote down and cannot read any more must not be taken for nothing.
func TestUnreadableRecords(t *testing.T) {
	cases := map[string]func(*v1alpha1.TalosMachine){
		"NotJSON": func(m *v1alpha1.TalosMachine) {
			m.SetAnnotations(map[string]string{v1alpha1.AnnotationRemovalRecord: "{"})
		},
		"NotAMember": func(m *v1alpha1.TalosMachine) {
			m.SetAnnotations(map[string]string{v1alpha1.AnnotationRemovalRecord: `{"memberID":"xyz"}`})
		},
		"NotAStatus": func(m *v1alpha1.TalosMachine) {
			m.Status.AtProvider.Etcd = &v1alpha1.MachineEtcdObservation{MemberID: "xyz"}
		},
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			s, _ := surveyor(t, closed{}, cluster(), machineObject("cp-1", change))
			if _, err := s.Objects(t.Context(), home); err == nil {
				t.Error("an unreadable record was taken for none")
			}
			r := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(machineObject("cp-1", change)).Build()
			if _, err := CountApprovedControlPlanes(t.Context(), r, home.Namespace, home.Name); err == nil && name != "NotAStatus" {
				t.Error("an unreadable record was counted")
			}
		})
	}
}

func TestDuplicates(t *testing.T) {
	uuid := func(u string) func(*v1alpha1.TalosMachine) {
		return func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.UUID = u }
	}
	seen := func(u string) func(*v1alpha1.TalosMachine) {
		return func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.UUID, m.Status.AtProvider.UUID = "", u }
	}
	at := func(a string) func(*v1alpha1.TalosMachine) {
		return func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.Address = a }
	}
	cases := map[string]struct {
		reason string
		others []client.Object
		want   []string
	}{
		"None":              {"Different machines.", []client.Object{machineObject("cp-2")}, nil},
		"SameUUID":          {"Upper and lower case are the same UUID.", []client.Object{machineObject("cp-2", uuid("uuid-CP-1"))}, []string{"cp-2"}},
		"SeenUUID":          {"A machine without a pin is what it was last seen to be.", []client.Object{machineObject("cp-2", seen("uuid-cp-1"))}, []string{"cp-2"}},
		"SameAddress":       {"The default port is the same address.", []client.Object{machineObject("cp-2", at("ADDR-cp-1:50000"))}, []string{"cp-2"}},
		"OtherPort":         {"Another port is another machine.", []client.Object{machineObject("cp-2", at("addr-cp-1:50001"))}, nil},
		"OtherNamespace":    {"Wherever it is declared.", []client.Object{machineObject("cp-1", inNamespace("elsewhere"))}, []string{"elsewhere/cp-1"}},
		"OtherCluster":      {"Whichever cluster it is declared for.", []client.Object{machineObject("cp-2", uuid("uuid-cp-1"), inCluster("other"))}, []string{"cp-2"}},
		"Unapproved":        {"An unapproved one may be approved at any time.", []client.Object{machineObject("cp-2", uuid("uuid-cp-1"), unapproved)}, []string{"cp-2"}},
		"Removed":           {"Hardware whose removal was completed may be declared anew.", []client.Object{machineObject("cp-2", uuid("uuid-cp-1"), removed)}, nil},
		"Unseen":            {"Two machines of which no UUID is known are not the same.", []client.Object{machineObject("cp-2", uuid(""))}, nil},
		"Several":           {"In order.", []client.Object{machineObject("b", uuid("uuid-cp-1")), machineObject("a", at("addr-cp-1"))}, []string{"a", "b"}},
		"BothWithoutUUID":   {"Two machines of which nothing is known are not the same.", []client.Object{machineObject("x", uuid("")), machineObject("y", uuid(""))}, nil},
		"SeenButPinnedElse": {"What was seen does not count against a pin.", []client.Object{machineObject("cp-2", func(m *v1alpha1.TalosMachine) { m.Status.AtProvider.UUID = "uuid-cp-1" })}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, _ := surveyor(t, closed{}, append(tc.others, cluster(), machineObject("cp-1"))...)
			f, err := s.Objects(t.Context(), home)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range f.Machines {
				switch {
				case m.ID == "uid-cp-1":
					if diff := cmp.Diff(tc.want, m.SameMachine); diff != "" {
						t.Errorf("\n%s\n-want +got:\n%s", tc.reason, diff)
					}
				case len(tc.want) > 0 && len(m.SameMachine) == 0:
					t.Errorf("\n%s\nthe other side, %s, is not blocked", tc.reason, m.Name)
				case len(tc.want) == 0 && len(m.SameMachine) > 0:
					t.Errorf("\n%s\nthe other side, %s, is blocked by %q", tc.reason, m.Name, m.SameMachine)
				}
			}
		})
	}
}

// A machine without a pin that turns out to be another one's hardware blocks both, although only its answer shows it.
func TestDuplicateByAnswer(t *testing.T) {
	machines := threeMembers()
	machines["addr-new"] = &fakeMachine{uuid: "uuid-cp-1", bootID: "b", version: "v1.13.9", stage: "running"}
	s, _ := surveyor(t, &fakeAccess{configured: machines, kubeErr: errNoKube}, cluster(), machineObject("cp-1"),
		machineObject("new", func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.UUID = "" }))
	f, err := s.Cluster(t.Context(), home, "")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, m := range f.Machines {
		got[m.Name] = m.SameMachine
	}
	if diff := cmp.Diff(map[string][]string{"cp-1": {"new"}, "new": {"cp-1"}}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A pinned machine is what it is pinned to. That another one answers at its address is told of it alone, and must not block the
// one that answers.
func TestPinnedMachineIsNoDuplicateByAnswer(t *testing.T) {
	machines := threeMembers()
	machines["addr-cp-1"].uuid = "uuid-cp-2"
	s, _ := surveyor(t, &fakeAccess{configured: machines, kubeErr: errNoKube}, controlPlanes()...)
	f, err := s.Cluster(t.Context(), home, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range f.Machines {
		if len(m.SameMachine) > 0 {
			t.Errorf("%s is blocked by %q", m.Name, m.SameMachine)
		}
	}
}

// What a machine would be a duplicate of is told before it exists: of any namespace, also under its own name, and not of hardware
// whose removal was completed.
func TestDuplicatesOfANewMachine(t *testing.T) {
	sameHardware := func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.UUID = "uuid-cp-1" }
	cases := map[string]struct {
		other client.Object
		want  []string
	}{
		"Itself":            {machineObject("cp-1"), nil},
		"NamesakeElsewhere": {machineObject("cp-1", inNamespace("elsewhere")), []string{"elsewhere/cp-1"}},
		"SameHardware":      {machineObject("cp-2", sameHardware), []string{"site/cp-2"}},
		"RemovedHardware":   {machineObject("cp-2", sameHardware, removed), nil},
		"HalfRemoved":       {machineObject("cp-2", sameHardware, recorded), []string{"site/cp-2"}},
		"SomethingElse":     {machineObject("cp-2"), nil},
		"OtherNamesake":     {machineObject("cp-1", inNamespace("elsewhere"), func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.UUID, m.Spec.ForProvider.Address = "x", "y" }), nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(tc.other).Build()
			got, err := Duplicates(t.Context(), r, machineObject("cp-1"))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
