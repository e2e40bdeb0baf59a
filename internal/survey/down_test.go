package survey

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/talos"
)

// An etcd that does not run answers nothing until the deadline of each question, so a machine that waits for it to be begun,
// or has left it, is not asked any of it: else a bring-up and a removal would wait ten seconds in every pass.
func TestEtcdThatIsDownIsNotAsked(t *testing.T) {
	cases := map[string]struct {
		stage, service string
		fail           map[string]error
		look, survey   []string
	}{
		"Preparing": {
			stage: "booting", service: "Preparing",
			look:   []string{"BootID", "Config", "EtcdService", "Schematic", "Status", "System", "Version"},
			survey: []string{"BootID", "EtcdService", "Nodename", "Status", "System", "Version"},
		},
		"Finished": {
			stage: "running", service: "Finished",
			look:   []string{"BootID", "Config", "EtcdStatus", "Schematic", "Status", "System", "Version"}, // Who has left is not observed.
			survey: []string{"BootID", "EtcdService", "Nodename", "Status", "System", "Version"},
		},
		"Failed": {
			stage: "booting", service: "Failed",
			look:   []string{"BootID", "Config", "EtcdService", "EtcdStatus", "Schematic", "Status", "System", "Version"},
			survey: []string{"BootID", "EtcdAlarms", "EtcdMembers", "EtcdService", "EtcdStatus", "Nodename", "Status", "System", "Version"},
		},
		"Unknown": {
			stage: "booting", fail: map[string]error{"EtcdService": failed(talos.NotReady)},
			look:   []string{"BootID", "Config", "EtcdService", "EtcdStatus", "Schematic", "Status", "System", "Version"},
			survey: []string{"BootID", "EtcdAlarms", "EtcdMembers", "EtcdService", "EtcdStatus", "Nodename", "Status", "System", "Version"},
		},
		"StageUnknown": {
			service: "Preparing", fail: map[string]error{"Status": failed(talos.NotReady)},
			look:   nil, // Not even an observation.
			survey: []string{"BootID", "EtcdService", "Nodename", "Status", "System", "Version"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := &fakeAccess{configured: threeMembers(), kube: kubefake.NewClientset()}
			m, object := a.configured["addr-cp-1"], machineObject("cp-1")
			m.stage, m.service, m.fail = tc.stage, tc.service, tc.fail
			s, _ := surveyor(t, a, cluster(), object)

			o, err := s.Look(t.Context(), object, a)
			if (err == nil) != (tc.look != nil) {
				t.Fatalf("error %v", err)
			}
			if diff := cmp.Diff(tc.look, m.questions()); tc.look != nil && diff != "" {
				t.Errorf("questions of an observation: -want +got:\n%s", diff)
			}
			if tc.service == "Preparing" && (o.Etcd.IsKnown() || o.Live.Member.IsKnown()) {
				t.Errorf("etcd %v, member %v: what was not asked is unknown", o.Etcd, o.Live.Member)
			}

			m.calls = nil
			f, err := s.Cluster(t.Context(), home, "")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.survey, m.questions()); diff != "" {
				t.Errorf("questions of a survey: -want +got:\n%s", diff)
			}
			if live, _ := f.Machines[0].Live.Get(); tc.stage != "" && tc.service != "" && !facts.Is(live.EtcdService, tc.service) {
				t.Errorf("the etcd service is %v, want %q", live.EtcdService, tc.service)
			}
		})
	}
}
