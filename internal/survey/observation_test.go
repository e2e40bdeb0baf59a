package survey

import (
	"errors"
	"slices"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/google/go-cmp/cmp"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/talos"
)

func TestLook(t *testing.T) {
	a := &fakeAccess{configured: threeMembers()}
	m := a.configured["addr-cp-1"]
	m.config = talos.Config{Active: []byte("active"), Persistent: []byte("persistent")}
	m.schematic = "abc"
	s, _ := surveyor(t, a)

	got, err := s.Look(t.Context(), machineObject("cp-1"), a)
	if err != nil {
		t.Fatal(err)
	}
	want := Observation{
		Live: facts.Live{
			Mode: facts.Configured, UUID: "uuid-cp-1", BootID: facts.Of("boot-cp-1"), Stage: "running", Ready: true,
			TalosVersion: facts.Of("v1.13.9"), Nodename: facts.Unknown[string](whyNotObserved), EtcdService: facts.Unknown[string](whyNotObserved),
			Member: facts.Of(facts.MemberID(1)),
		},
		Config:    facts.Of(m.config),
		Etcd:      facts.Of(*m.etcd),
		Schematic: facts.Of("abc"),
	}
	if diff := cmp.Diff(want, got, sameFacts); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestConfigIsReadInTheBoot holds that a machine is asked for its boot before it is asked what it runs: if it is in that boot
// later, too, both belong together.
func TestConfigIsReadInTheBoot(t *testing.T) {
	a := &fakeAccess{configured: threeMembers()}
	m := a.configured["addr-cp-1"]
	s, _ := surveyor(t, a)
	if _, err := s.Look(t.Context(), machineObject("cp-1"), a); err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if boot, config := slices.Index(m.calls, "BootID"), slices.Index(m.calls, "Config"); boot < 0 || config < boot {
		t.Errorf("asked in this order: %q", m.calls)
	}
}

// An unchanged machine is asked six questions, of which etcd's is for control planes only, and its Nodename for workers.
func TestLookBudget(t *testing.T) {
	cases := map[string]struct {
		object *v1alpha1.TalosMachine
		want   []string
	}{
		"ControlPlane": {machineObject("cp-1"), []string{"BootID", "Config", "EtcdStatus", "Status", "System", "Version"}},
		"Worker":       {machineObject("cp-1", worker), []string{"BootID", "Config", "Nodename", "Status", "System", "Version"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := &fakeAccess{configured: threeMembers()}
			m := a.configured["addr-cp-1"]
			m.schematic = "abc"
			s, _ := surveyor(t, a)
			look := func() Observation {
				t.Helper()
				m.calls = nil
				o, err := s.Look(t.Context(), tc.object, a)
				if err != nil {
					t.Fatal(err)
				}
				return o
			}
			look()
			o := look()
			if diff := cmp.Diff(tc.want, m.questions()); diff != "" {
				t.Errorf("questions of an unchanged machine: -want +got:\n%s", diff)
			}
			if !facts.Is(o.Schematic, "abc") {
				t.Errorf("the schematic was forgotten: %+v", o.Schematic)
			}

			m.bootID, m.schematic = "another boot", "def"
			if o := look(); !facts.Is(o.Schematic, "def") {
				t.Errorf("the schematic after a boot: got %+v, want def", o.Schematic)
			}
			s.Forget(tc.object.GetUID())
			m.schematic = "ghi"
			if o := look(); !facts.Is(o.Schematic, "ghi") {
				t.Errorf("the schematic of a forgotten machine: got %+v, want ghi", o.Schematic)
			}
		})
	}
}

// A machine that does not answer, or not as a machine of this cluster, is an error with its class, and never a machine
// that does not exist.
func TestLookFails(t *testing.T) {
	cases := map[string]struct {
		reason string
		access *fakeAccess
		want   talos.Class
	}{
		"Down":    {"Nothing answers.", &fakeAccess{}, talos.Unreachable},
		"Foreign": {"It is of another cluster.", &fakeAccess{blank: map[string]*fakeMachine{"addr-cp-1": nil}}, talos.WrongCluster},
		"Booting": {"It has no configuration yet and does not wait for one.", &fakeAccess{blank: map[string]*fakeMachine{"addr-cp-1": {uuid: "u", stage: "booting"}}}, talos.NotReady},
		"Skewed":  {"Its clock is wrong.", &fakeAccess{configured: map[string]*fakeMachine{"addr-cp-1": refusing(talos.ClockSkew)}}, talos.ClockSkew},
		"Nameless": {"It is blank and does not tell which machine it is.", &fakeAccess{blank: map[string]*fakeMachine{"addr-cp-1": {
			stage: "maintenance", fail: map[string]error{"System": failed(talos.Timeout)},
		}}}, talos.Timeout},
		"Mispinned": {"It is blank, and not the one that was pinned.", &fakeAccess{blank: map[string]*fakeMachine{"addr-cp-1": refusing(talos.FingerprintMismatch)}}, talos.FingerprintMismatch},
		"NoStage": {"It does not tell its stage.", &fakeAccess{configured: map[string]*fakeMachine{"addr-cp-1": {
			uuid: "uuid-cp-1", fail: map[string]error{"Status": failed(talos.Timeout)},
		}}}, talos.Timeout},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, _ := surveyor(t, tc.access)
			_, err := s.Look(t.Context(), machineObject("cp-1"), tc.access)
			if e := (*talos.Error)(nil); !errors.As(err, &e) || e.Class != tc.want {
				t.Errorf("\n%s\ngot %v (%v), want %v", tc.reason, talos.ClassOf(err), err, tc.want)
			}
		})
	}
}

// What one question could not find out is unknown, and spoils nothing else.
func TestLookUnknowns(t *testing.T) {
	a := &fakeAccess{configured: threeMembers()}
	a.configured["addr-cp-1"].fail = map[string]error{
		"BootID": failed(talos.Timeout), "Version": failed(talos.Timeout), "Config": failed(talos.Denied), "EtcdStatus": failed(talos.Timeout),
	}
	s, _ := surveyor(t, a)
	o, err := s.Look(t.Context(), machineObject("cp-1"), a)
	if err != nil {
		t.Fatal(err)
	}
	if o.Live.UUID != "uuid-cp-1" || o.Live.Stage != "running" {
		t.Errorf("what was answered is lost: %+v", o.Live)
	}
	unknown(t, "boot ID", o.Live.BootID)
	unknown(t, "version", o.Live.TalosVersion)
	unknown(t, "member", o.Live.Member)
	unknown(t, "etcd", o.Etcd)
	unknown(t, "config", o.Config)
	unknown(t, "schematic", o.Schematic)
}

// The pin holds until the machine has had its first configuration. After that its certificate is another one at each boot.
func TestLookPins(t *testing.T) {
	pinned := func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.MaintenanceFingerprint = "pin" }
	cases := map[string]struct {
		object *v1alpha1.TalosMachine
		want   string
	}{
		"NeverConfigured": {machineObject("cp-1", pinned), "pin"},
		"Configured":      {machineObject("cp-1", pinned, func(m *v1alpha1.TalosMachine) { meta.SetExternalName(m, "uuid-cp-1") }), ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := &fakeAccess{blank: map[string]*fakeMachine{"addr-cp-1": {uuid: "uuid-cp-1", stage: "maintenance", version: "v1.13.9"}}}
			s, _ := surveyor(t, a)
			o, err := s.Look(t.Context(), tc.object, a)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{tc.want}, a.pins); diff != "" {
				t.Errorf("pins: -want +got:\n%s", diff)
			}
			if o.Live.Mode != facts.Maintenance || o.Live.Stage != stageMaintenance {
				t.Errorf("got %+v", o.Live)
			}
			unknown(t, "config", o.Config)
			unknown(t, "schematic", o.Schematic)
		})
	}
}
