package taloscluster

import (
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/clusterlock"
	"github.com/maesh/provider-ichor/internal/decide/facts"
)

// controlPlanes returns facts of n approved control planes whose etcd is healthy, as changed by the given functions.
func controlPlanes(n int, changes ...func(*facts.Cluster)) facts.Cluster {
	f := facts.Cluster{
		Name: testCluster, TakenAt: testNow, Declared: facts.Of(3), Bootstrapped: "uuid-1",
		Etcd: facts.Etcd{Alarms: facts.Of([]facts.Alarm(nil))},
	}
	members := make([]facts.Member, 0, n)
	for i := range n {
		members = append(members, facts.Member{ID: facts.MemberID(0xa1 + i), Name: string(rune('a' + i))})
	}
	for i := range n {
		id := facts.MachineID(rune('a' + i))
		f.Machines = append(f.Machines, facts.Machine{
			ID: id, Name: "cp-" + string(rune('1'+i)), Role: facts.ControlPlane, Approved: true, Address: "192.0.2.1" + string(rune('1'+i)),
			Live: facts.Of(facts.Live{Mode: facts.Configured, TalosVersion: facts.Of(testTalos), Member: facts.Of(members[i].ID)}),
			Node: facts.Of(facts.Node{Exists: true, KubeletVersion: "v1.35.4"}),
		})
		f.Etcd.Views = append(f.Etcd.Views, facts.View{
			Machine: id, Self: members[i].ID, Members: facts.Of(members), Leader: members[0].ID, Term: 2, Healthy: facts.Of(true),
		})
	}
	for _, change := range changes {
		change(&f)
	}
	return f
}

// silent makes the i-th control plane one that does not answer.
func silent(i int) func(*facts.Cluster) {
	return func(f *facts.Cluster) {
		m := &f.Machines[i]
		if live, ok := m.Live.Get(); ok {
			m.LastMember, _ = live.Member.Get()
		}
		m.Live = facts.Unknown[facts.Live]("connection refused")
		var left []facts.View
		for _, v := range f.Etcd.Views {
			if v.Machine != m.ID {
				left = append(left, v)
			}
		}
		f.Etcd.Views = left
	}
}

// leaderless makes every member lose its leader.
func leaderless(f *facts.Cluster) {
	for i := range f.Etcd.Views {
		f.Etcd.Views[i].Leader, f.Etcd.Views[i].Healthy = 0, facts.Of(false)
	}
}

func TestConditions(t *testing.T) {
	type want struct {
		Ready, EtcdHealthy, Transitioning xpv2.ConditionReason
		Message                           string // of EtcdHealthy
		Voters, Healthy                   int
		Leader                            string
	}
	cases := map[string]struct {
		reason string
		facts  facts.Cluster
		want   want
	}{
		"Healthy": {
			reason: "Three of three are ready.",
			facts:  controlPlanes(3),
			want: want{
				Ready: xpv2.ReasonAvailable, EtcdHealthy: v1alpha1.ReasonEtcdAllHealthy, Transitioning: v1alpha1.ReasonStableControlPlaneCount,
				Message: "3 of 3 voters are healthy", Voters: 3, Healthy: 3, Leader: "cp-1",
			},
		},
		"Fourth": {
			reason: "A fourth control plane is a change half done, and the cluster serves.",
			facts:  controlPlanes(4),
			want: want{
				Ready: xpv2.ReasonAvailable, EtcdHealthy: v1alpha1.ReasonEtcdAllHealthy, Transitioning: v1alpha1.ReasonEvenControlPlaneCount,
				Message: "4 of 4 voters are healthy", Voters: 4, Healthy: 4, Leader: "cp-1",
			},
		},
		"OneSilent": {
			reason: "One that does not answer is no failure of the cluster, and it is said that it does not answer.",
			facts:  controlPlanes(3, silent(2)),
			want: want{
				Ready: xpv2.ReasonAvailable, EtcdHealthy: v1alpha1.ReasonEtcdDegraded, Transitioning: v1alpha1.ReasonStableControlPlaneCount,
				Message: "2 of 3 voters are healthy; cp-3 does not answer", Voters: 3, Healthy: 2, Leader: "cp-1",
			},
		},
		"TwoSilent": {
			reason: "One that follows a leader says that there is a quorum, whatever the others do not say; that is not enough to be ready.",
			facts:  controlPlanes(3, silent(1), silent(2)),
			want: want{
				Ready: v1alpha1.ReasonAwaitingMembers, EtcdHealthy: v1alpha1.ReasonEtcdDegraded, Transitioning: v1alpha1.ReasonStableControlPlaneCount,
				Message: "1 of 3 voters are healthy; cp-2 does not answer, cp-3 does not answer", Voters: 3, Healthy: 1, Leader: "cp-1",
			},
		},
		"QuorumLost": {
			reason: "Members without a leader have lost their quorum.",
			facts:  controlPlanes(3, silent(1), silent(2), leaderless),
			want: want{
				Ready: v1alpha1.ReasonQuorumLost, EtcdHealthy: v1alpha1.ReasonQuorumLost, Transitioning: v1alpha1.ReasonStableControlPlaneCount,
				Message: "Etcd has no leader: 0 of 3 voters are healthy, 2 are needed", Voters: 3, Healthy: 0,
			},
		},
		"AllSilent": {
			reason: "When nobody answers, nothing is known: neither that all is well nor that quorum is lost.",
			facts:  controlPlanes(3, silent(0), silent(1), silent(2)),
			want: want{
				Ready: v1alpha1.ReasonEtcdUnknown, EtcdHealthy: v1alpha1.ReasonEtcdUnknown, Transitioning: v1alpha1.ReasonStableControlPlaneCount,
				Message: "No control plane tells the members of etcd: cp-1: connection refused; cp-2: connection refused; cp-3: connection refused",
				Voters:  -1, Healthy: -1,
			},
		},
		"ImportedAndSilent": {
			reason: "A cluster without a record of a bootstrap may have been bootstrapped before it was imported.",
			facts:  controlPlanes(3, silent(0), silent(1), silent(2), func(f *facts.Cluster) { f.Bootstrapped = "" }),
			want: want{
				Ready: v1alpha1.ReasonEtcdUnknown, EtcdHealthy: v1alpha1.ReasonEtcdUnknown, Transitioning: v1alpha1.ReasonStableControlPlaneCount,
				Message: "No control plane tells the members of etcd: cp-1: connection refused; cp-2: connection refused; cp-3: connection refused",
				Voters:  -1, Healthy: -1,
			},
		},
		"Learner": {
			reason: "A learner has no vote.",
			facts: controlPlanes(3, func(f *facts.Cluster) {
				for i := range f.Etcd.Views {
					members, _ := f.Etcd.Views[i].Members.Get()
					members[2].Learner = true
				}
			}),
			want: want{
				Ready: v1alpha1.ReasonAwaitingMembers, EtcdHealthy: v1alpha1.ReasonEtcdDegraded, Transitioning: v1alpha1.ReasonStableControlPlaneCount,
				Message: "2 of 2 voters are healthy; cp-3 is a learner", Voters: 2, Healthy: 2, Leader: "cp-1",
			},
		},
		"LearnerLeftBehind": {
			reason: "A member that was added and not started holds up all others, and only a person can say that nobody starts it.",
			facts: controlPlanes(3, silent(2), func(f *facts.Cluster) {
				f.Machines[2].LastMember = 0
				for i := range f.Etcd.Views {
					members, _ := f.Etcd.Views[i].Members.Get()
					members[2] = facts.Member{ID: 0xa3, Learner: true, PeerHosts: []string{"192.0.2.13"}}
				}
			}),
			want: want{
				Ready: v1alpha1.ReasonAwaitingMembers, EtcdHealthy: v1alpha1.ReasonEtcdDegraded, Transitioning: v1alpha1.ReasonStableControlPlaneCount,
				Message: "2 of 2 voters are healthy; member a3 was added for cp-3 as a learner and is not started yet. No other can join meanwhile. " +
					"If it stays so for more than ten minutes, remove it with: talosctl -n 192.0.2.11 etcd remove-member a3",
				Voters: 2, Healthy: 2, Leader: "cp-1",
			},
		},
		"Alarm": {
			reason: "An alarm is told with the member that it was raised for.",
			facts:  controlPlanes(3, func(f *facts.Cluster) { f.Etcd.Alarms = facts.Of([]facts.Alarm{{Member: 0xa2, Name: "NOSPACE"}}) }),
			want: want{
				Ready: xpv2.ReasonAvailable, EtcdHealthy: v1alpha1.ReasonEtcdDegraded, Transitioning: v1alpha1.ReasonStableControlPlaneCount,
				Message: "3 of 3 voters are healthy; cp-2 has alarm NOSPACE", Voters: 3, Healthy: 3, Leader: "cp-1",
			},
		},
		"AlarmsUnknown": {
			reason: "Alarms that could not be asked for are not taken for none.",
			facts:  controlPlanes(3, func(f *facts.Cluster) { f.Etcd.Alarms = facts.Unknown[[]facts.Alarm]("timed out") }),
			want: want{
				Ready: xpv2.ReasonAvailable, EtcdHealthy: v1alpha1.ReasonEtcdDegraded, Transitioning: v1alpha1.ReasonStableControlPlaneCount,
				Message: "3 of 3 voters are healthy; its alarms are not known: timed out", Voters: 3, Healthy: 3, Leader: "cp-1",
			},
		},
		"Unmapped": {
			reason: "A member that no machine runs is told by its ID.",
			facts:  controlPlanes(3, func(f *facts.Cluster) { f.Machines, f.Etcd.Views = f.Machines[:2], f.Etcd.Views[:2] }),
			want: want{
				Ready: xpv2.ReasonAvailable, EtcdHealthy: v1alpha1.ReasonEtcdDegraded, Transitioning: v1alpha1.ReasonEvenControlPlaneCount,
				Message: "2 of 3 voters are healthy; member a3, which no TalosMachine runs, does not answer", Voters: 3, Healthy: 2, Leader: "cp-1",
			},
		},
		"APIDown": {
			reason: "A cluster whose Kubernetes API does not answer is not ready.",
			facts: controlPlanes(3, func(f *facts.Cluster) {
				for i := range f.Machines {
					f.Machines[i].Node = facts.Unknown[facts.Node]("connection refused")
				}
			}),
			want: want{
				Ready: v1alpha1.ReasonAPIUnavailable, EtcdHealthy: v1alpha1.ReasonEtcdAllHealthy, Transitioning: v1alpha1.ReasonStableControlPlaneCount,
				Message: "3 of 3 voters are healthy", Voters: 3, Healthy: 3, Leader: "cp-1",
			},
		},
		"ComingUp": {
			reason: "After Bootstrap was sent, etcd is not said to be none.",
			facts:  controlPlanes(3, func(f *facts.Cluster) { f.Etcd.Views = nil }),
			want: want{
				Ready: v1alpha1.ReasonEtcdUnknown, EtcdHealthy: v1alpha1.ReasonEtcdUnknown, Transitioning: v1alpha1.ReasonStableControlPlaneCount,
				Message: "No control plane tells the members of etcd", Voters: -1, Healthy: -1,
			},
		},
		"NothingApproved": {
			reason: "Nothing approved is no change half done, and no etcd.",
			facts:  controlPlanes(0, func(f *facts.Cluster) { f.Bootstrapped = "" }),
			want: want{
				Ready: v1alpha1.ReasonEtcdUnknown, EtcdHealthy: v1alpha1.ReasonEtcdNotBootstrapped, Transitioning: v1alpha1.ReasonStableControlPlaneCount,
				Message: "Etcd is not bootstrapped yet", Voters: -1, Healthy: -1,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := healthOf(tc.facts)
			got := want{
				Ready: ready(tc.facts, h).Reason, EtcdHealthy: etcdHealthy(h).Reason, Transitioning: transitioning(tc.facts.ApprovedControlPlanes()).Reason,
				Message: h.message, Voters: h.voters, Healthy: h.healthy, Leader: h.leader,
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\nconditions: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestFill(t *testing.T) {
	f := controlPlanes(3, silent(2), func(f *facts.Cluster) {
		f.Machines = append(f.Machines, facts.Machine{ // A blank one runs nothing that was declared.
			Name: "w-1", Role: facts.Worker, Live: facts.Of(facts.Live{Mode: facts.Maintenance, TalosVersion: facts.Of("v1.12.0")}),
		})
	})
	since := testNow.Add(123 * time.Millisecond)
	lock := &clusterlock.Info{Holder: clusterlock.Holder{Kind: "TalosMachine", Name: "cp-3", Purpose: "removal"}, Since: since}
	c := newCluster(annotated(v1alpha1.AnnotationBootstrapped, "uuid-1"))
	c.Status.AtProvider.ClusterID = "id"
	fill(c, f, healthOf(f), 3, lock)
	want := v1alpha1.TalosClusterObservation{
		ClusterID:      "id",
		BootstrappedBy: "uuid-1",
		ControlPlanes:  v1alpha1.ControlPlaneCounts{Declared: 3, Approved: 3, Voters: 3, HealthyVoters: 2},
		Etcd: v1alpha1.EtcdObservation{Leader: "cp-1", Members: []v1alpha1.EtcdMemberObservation{
			{ID: "a1", Machine: "cp-1", Healthy: "yes"}, {ID: "a2", Machine: "cp-2", Healthy: "yes"}, {ID: "a3", Machine: "cp-3", Healthy: "unknown"},
		}},
		// What an API server keeps of a time is compared with what it gave back, so it holds no more than that.
		Disruption: &v1alpha1.DisruptionObservation{Holder: "TalosMachine/cp-3", For: "removal", Since: &metav1.Time{Time: testNow}},
		Versions:   v1alpha1.ObservedVersions{Talos: []string{testTalos}, Kubernetes: []string{"v1.35.4"}},
	}
	if diff := cmp.Diff(want, c.Status.AtProvider); diff != "" {
		t.Errorf("fill(...): -want, +got:\n%s", diff)
	}
	fill(c, f, healthOf(f), 3, nil)
	want.Disruption = nil
	if diff := cmp.Diff(want, c.Status.AtProvider); diff != "" {
		t.Errorf("fill(...) with a free lock: -want, +got:\n%s", diff)
	}
}

// TestMark holds that there is one Event for each transition, and none for what only lasts.
func TestMark(t *testing.T) {
	record := &events{}
	e := &external{clock: newClock(), record: record}
	c := newCluster()
	f, lost := controlPlanes(3), controlPlanes(3, silent(1), silent(2), leaderless)
	for _, now := range []facts.Cluster{f, f, lost, lost, f} {
		h := healthOf(now)
		e.mark(c, etcdHealthy(h), ready(now, h))
	}
	want := []string{"AllMembersHealthy", "QuorumLost", "QuorumLost", "AllMembersHealthy"}
	if diff := cmp.Diff(want, record.reasons); diff != "" {
		t.Errorf("events: -want, +got:\n%s", diff)
	}
	got := c.GetCondition(v1alpha1.TypeEtcdHealthy)
	wantCondition := xpv2.Condition{
		Type: v1alpha1.TypeEtcdHealthy, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonEtcdAllHealthy,
		Message: "3 of 3 voters are healthy", ObservedGeneration: 1, LastTransitionTime: metav1.NewTime(testNow),
	}
	if diff := cmp.Diff(wantCondition, got, cmpopts.EquateApproxTime(time.Second)); diff != "" {
		t.Errorf("condition: -want, +got:\n%s", diff)
	}
}
