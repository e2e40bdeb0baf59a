package story

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/maesh/provider-ichor/internal/decide/facts"
)

func TestParse(t *testing.T) {
	f, err := Parse(`
prod declared=3 bootstrapped=u alarms=NOSPACE:a1

cp-1 voter
cp-2 voter leader
cp-3 learner silent policy=RemoveMember hold=storage:moving accepted
w-1 worker unapproved deleting allowed node=ours pods=a/b volumes=v
member a9 learner name=x host=192.0.2.9
`)
	if err != nil {
		t.Fatal(err)
	}
	members := []facts.Member{
		{ID: 0xa1, Name: "cp-1", PeerHosts: []string{"192.0.2.1"}},
		{ID: 0xa2, Name: "cp-2", PeerHosts: []string{"192.0.2.2"}},
		{ID: 0xa3, Name: "cp-3", Learner: true, PeerHosts: []string{"192.0.2.3"}},
		{ID: 0xa9, Name: "x", Learner: true, PeerHosts: []string{"192.0.2.9"}},
	}
	if len(f.Etcd.Views) != 2 {
		t.Fatalf("%d views, want those of the two that answer", len(f.Etcd.Views))
	}
	for i, v := range f.Etcd.Views {
		list, _ := v.Members.Get()
		if diff := cmp.Diff(members, list); diff != "" {
			t.Errorf("view %d: -want, +got:\n%s", i, diff)
		}
		if v.Leader != 0xa2 || !facts.Is(v.Healthy, true) {
			t.Errorf("view %d does not follow the leader: %+v", i, v)
		}
	}
	silent, worker := f.Machines[2], f.Machines[3]
	if silent.Live.IsKnown() || silent.LastMember != 0xa3 || !silent.RemoveUnreachable || silent.AcceptedUnwiped != silent.UUID {
		t.Errorf("the machine that does not answer: %+v", silent)
	}
	node := facts.Node{Exists: true, Name: "w-1", Ready: true, Cordoned: true, Ours: true, Evictable: []string{"a/b"}, Attached: []string{"v"}}
	if diff := cmp.Diff(facts.Of(node), worker.Node, cmp.AllowUnexported(facts.Known[facts.Node]{})); diff != "" {
		t.Errorf("the Node of the worker: -want, +got:\n%s", diff)
	}
	if worker.Role != facts.Worker || worker.Approved || !worker.Deleting || !worker.AllowDelete {
		t.Errorf("the worker: %+v", worker)
	}
	if diff := cmp.Diff(facts.Of([]facts.Alarm{{Member: 0xa1, Name: "NOSPACE"}}), f.Etcd.Alarms, cmp.AllowUnexported(facts.Known[[]facts.Alarm]{})); diff != "" {
		t.Errorf("alarms: -want, +got:\n%s", diff)
	}
}

func TestParseRefusesWhatItDoesNotKnow(t *testing.T) {
	cases := map[string]string{
		"prod colour=red":                  "a cluster has no",
		"prod\ncp-1 vooter":                "a machine has no",
		"prod\ncp-1 sick":                  "a machine has no",
		"prod\ncp-1 voter node=elsewhere":  "a machine has no",
		"prod\ncp-1 voter\nmember a2 sick": "a member has no",
	}
	for text, want := range cases {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, want an error with %q", text, err, want)
		}
	}
}

func TestWords(t *testing.T) {
	f, err := Parse(`
prod declared=? teardown alarms=?
cp-1 voter id=b1 leader follows=a2 term=9 sees=b1,a2? record=b1+reset last=b9 at=cp-1.example boot=boot-2 stage=booting unready service=Failed:no_space uuid=u
cp-2 voter mute removed node=none
cp-3 voter sick record=none node=down same=x,y
cp-4 voter etcd-down node=cordoned
cp-5 voter blank node=?
cp-6 silent unpinned
`)
	if err != nil {
		t.Fatal(err)
	}
	m := f.Machines
	live, _ := m[0].Live.Get()
	want := facts.Live{
		Mode: facts.Configured, UUID: "u", BootID: facts.Of("boot-2"), Stage: "booting", TalosVersion: facts.Of("v1.13.9"),
		EtcdService: facts.Of("Failed"), EtcdSays: "no space", Member: facts.Of[facts.MemberID](0xb1),
	}
	if diff := cmp.Diff(want, live, cmp.AllowUnexported(facts.Known[string]{}, facts.Known[facts.MemberID]{})); diff != "" {
		t.Errorf("what the first machine answers: -want, +got:\n%s", diff)
	}
	if r := m[0].Record; r == nil || *r != (facts.Record{UUID: "uuid-cp-1", BootID: "boot-1", Member: 0xb1, Reset: true}) || m[0].LastMember != 0xb9 || m[0].Address != "cp-1.example" {
		t.Errorf("the first machine: %+v", m[0])
	}
	v := f.Etcd.Views
	if len(v) != 3 || v[0].Leader != 0xa2 || v[0].Term != 9 || v[1].Members.IsKnown() || !facts.Is(v[2].Healthy, false) || v[2].Leader != 0 {
		t.Errorf("views: %+v", v)
	}
	if f.Declared.IsKnown() || !f.Teardown || f.Etcd.Alarms.IsKnown() {
		t.Errorf("the cluster: %+v", f)
	}
	none, _ := m[1].Node.Get()
	down, _ := m[2].Node.Get()
	cordoned, _ := m[3].Node.Get()
	if none.Exists || !m[1].Removed || down.Ready || len(m[2].SameMachine) != 2 || !cordoned.Cordoned || cordoned.Ours || m[4].Node.IsKnown() {
		t.Errorf("Nodes: %+v, %+v, %+v", none, down, cordoned)
	}
	if live, _ := m[4].Live.Get(); live.Mode != facts.Maintenance || m[5].UUID != "" || m[5].Live.IsKnown() {
		t.Errorf("the last two: %+v, %+v", m[4], m[5])
	}
}
