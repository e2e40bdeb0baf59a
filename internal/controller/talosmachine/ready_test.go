package talosmachine

import (
	"cmp"
	"strings"
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/survey"
)

// TestReadyOfAMachineWithOldData has a control plane whose etcd does not come up. Nothing but Ready is there to tell a
// person what that may be.
func TestReadyOfAMachineWithOldData(t *testing.T) {
	member := facts.Member{ID: 0xa1, Name: "cp-1", PeerHosts: []string{"192.0.2.1"}}
	joining := facts.Member{ID: 0xa4, Learner: true, PeerHosts: []string{"192.0.2.4"}}
	cases := map[string]struct {
		reason   string
		states   []string // of its etcd service, one look after the other
		role     facts.Role
		begun    string
		members  []facts.Member
		stage    string
		unhealed bool // the only other voter does not serve
		later    time.Duration
		want     bool
		failed   bool // it tells what its etcd service says
	}{
		"Runs":           {reason: "Nobody lists an etcd that runs.", states: []string{"Running"}, want: true},
		"Failed":         {reason: "It could not join.", states: []string{"Failed"}, want: true},
		"BetweenStarts":  {reason: "A service that waits now did run.", states: []string{"Running", "Waiting"}, want: true},
		"BeforeTheFirst": {reason: "A service that waits may wait for anything.", states: []string{"Waiting"}},
		"BootsForLong":   {reason: "Nothing that a machine waits for at first takes that long.", states: []string{"Waiting", "Waiting"}, later: 6 * time.Minute, want: true},
		"BootsNotLong":   {reason: "It may be the first start still.", states: []string{"Waiting", "Waiting"}, later: 4 * time.Minute},
		"Joins":          {reason: "A service that prepares joins.", states: []string{"Running", "Preparing", "Waiting"}},
		"Unknown":        {reason: "Nothing is said of what is not known.", states: []string{""}},
		"Listed":         {reason: "A learner is listed before it starts.", states: []string{"Running"}, members: []facts.Member{member, joining}},
		"NotBegun":       {reason: "Nobody was ever removed.", states: []string{"Failed"}, begun: "-", failed: true},
		"NobodyCanTell":  {reason: "No healthy voter says who is a member.", states: []string{"Running"}, unhealed: true},
		"FailedAlone":    {reason: "No healthy voter says who is a member, so it may be one.", states: []string{"Failed"}, unhealed: true, failed: true},
		"Worker":         {reason: "A worker has no etcd.", states: []string{"Running"}, role: facts.Worker},
		"NotReady":       {reason: "It was removed while it ran.", states: []string{"Running"}, stage: "running", want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			mg := &v1alpha1.TalosMachine{}
			mg.SetUID("uid-cp-4")
			live := facts.Live{Mode: facts.Configured, Stage: "booting"}
			if tc.stage != "" {
				live.Stage = tc.stage
			}
			members := tc.members
			if members == nil {
				members = []facts.Member{member}
			}
			f := facts.Cluster{
				Bootstrapped: "uuid-cp-1",
				Etcd:         facts.Etcd{Views: []facts.View{{Machine: "uid-cp-1", Self: 0xa1, Leader: 0xa1, Members: facts.Of(members), Healthy: facts.Of(!tc.unhealed)}}},
				Machines: []facts.Machine{
					{ID: "uid-cp-1", Name: "cp-1", Role: facts.ControlPlane, Approved: true, LastMember: 0xa1, Address: "192.0.2.1"},
					{ID: "uid-cp-4", Name: "cp-4", Role: facts.ControlPlane, Approved: true, Address: "192.0.2.4"},
				},
			}
			if tc.role != 0 {
				f.Machines[1].Role = tc.role
			}
			if tc.begun != "" {
				f.Bootstrapped = ""
			}
			now := time.Now()
			for _, state := range tc.states {
				live.EtcdService = facts.Unknown[string]("no answer")
				if state != "" {
					live.EtcdService, live.EtcdSays = facts.Of(state), "no space"
				}
				f.Machines[1].Live = facts.Of(live)
				markReady(mg, survey.Observation{Live: live}, f, now)
				now = now.Add(tc.later)
			}
			said := mg.GetCondition(xpv2.TypeReady).Message
			if got := strings.Contains(said, "data of a member that was removed") && strings.Contains(said, "talosctl reset"); got != tc.want {
				t.Errorf("\n%s\nIt says %q, want a hint: %t", tc.reason, said, tc.want)
			}
			if got := strings.Contains(said, "has failed (no space)") && strings.Contains(strings.ToLower(said), "reboot the machine"); got != tc.failed {
				t.Errorf("\n%s\nIt says %q, want what its etcd service says: %t", tc.reason, said, tc.failed)
			}
		})
	}
}

// TestReadyOfAFailedEtcd has a control plane whose etcd service has failed before anybody could tell that it was a member. What
// a person can do about that depends on whether etcd was begun.
func TestReadyOfAFailedEtcd(t *testing.T) {
	const (
		waited = `. Its etcd service has failed (no space): it has waited for the cluster to be bootstrapped for as long as Talos lets it. Reboot the machine once that can be`
		failed = ` and is not started again in this boot. See talosctl service etcd and talosctl dmesg, correct what keeps it from starting, and reboot the machine`
	)
	cases := map[string]struct {
		reason string
		begun  string
		live   facts.Live
		role   facts.Role
		want   string
	}{
		"NotBegun": {
			reason: "There is nothing to correct: nobody has begun the etcd that it waited for.",
			live:   facts.Live{Stage: "booting", EtcdService: facts.Of("Failed"), EtcdSays: "no space"},
			want:   `The machine is in stage "booting"` + waited,
		},
		"Begun": {
			reason: "Something keeps it from starting.", begun: "uuid-cp-1",
			live: facts.Live{Stage: "booting", EtcdService: facts.Of("Failed"), EtcdSays: "no space"},
			want: `The machine is in stage "booting". Its etcd service has failed (no space)` + failed,
		},
		"SaysNothing": {
			reason: "That it says nothing is said.", begun: "uuid-cp-1",
			live: facts.Live{Stage: "booting", EtcdService: facts.Of("Failed")},
			want: `The machine is in stage "booting". Its etcd service has failed (it does not say why)` + failed,
		},
		"NotReady": {
			reason: "It failed after the boot.", begun: "uuid-cp-1",
			live: facts.Live{Stage: "running", EtcdService: facts.Of("Failed"), EtcdSays: "no space"},
			want: `Talos says that the machine is not ready: services: etcd not running. Its etcd service has failed (no space)` + failed,
		},
		"Waits": {
			reason: "What Talos lacks is the etcd that nobody has begun.",
			live:   facts.Live{Stage: "running", EtcdService: facts.Of("Preparing")},
			want:   `The machine waits for the cluster to be bootstrapped`,
		},
		"Worker": {
			reason: "A worker has no etcd that could fail.", begun: "uuid-cp-1", role: facts.Worker,
			live: facts.Live{Stage: "booting", EtcdService: facts.Of("Failed")},
			want: `The machine is in stage "booting"`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			mg := &v1alpha1.TalosMachine{}
			mg.SetUID("uid-cp-4")
			m := facts.Machine{ID: "uid-cp-4", Name: "cp-4", Role: cmp.Or(tc.role, facts.ControlPlane), Approved: true, Live: facts.Of(tc.live)}
			o := survey.Observation{Live: tc.live, Unmet: []string{"services: etcd not running"}}
			markReady(mg, o, facts.Cluster{Bootstrapped: tc.begun, Machines: []facts.Machine{m}}, time.Now())
			if got := mg.GetCondition(xpv2.TypeReady).Message; got != tc.want {
				t.Errorf("\n%s\nReady: got  %q\nwant %q", tc.reason, got, tc.want)
			}
		})
	}
}

// TestEtcdServiceOfTheOverview: a look at one machine does not ask for its etcd service, so what the overview knows of it stays.
func TestEtcdServiceOfTheOverview(t *testing.T) {
	before := facts.Live{Stage: "booting", EtcdService: facts.Of("Failed"), EtcdSays: "no space"}
	f := facts.Cluster{Machines: []facts.Machine{{ID: "uid-cp-4", Live: facts.Of(before)}}}
	now := facts.Live{Stage: "running", EtcdService: facts.Unknown[string]("it was not asked")}
	m, _ := withLive(f, "uid-cp-4", now).Machine("uid-cp-4")
	got, _ := m.Live.Get()
	if got.Stage != "running" || !facts.Is(got.EtcdService, "Failed") || got.EtcdSays != "no space" {
		t.Errorf("withLive(...): got stage %q, and a service in state %+v that says %q", got.Stage, got.EtcdService, got.EtcdSays)
	}
	if was, _ := f.Machines[0].Live.Get(); was.Stage != "booting" {
		t.Error("withLive(...) changed the facts that others have")
	}
}
