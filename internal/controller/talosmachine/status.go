package talosmachine

import (
	"cmp"
	"slices"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/configchange"
	"github.com/maesh/provider-ichor/internal/decide/deleteguard"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/membership"
	"github.com/maesh/provider-ichor/internal/survey"
)

// showLive writes what the machine itself told into the status.
func showLive(mg *v1alpha1.TalosMachine, o survey.Observation) {
	at := &mg.Status.AtProvider
	at.UUID = strings.ToLower(o.Live.UUID)
	at.Stage = o.Live.Stage
	at.BootID, _ = o.Live.BootID.Get()
	if v, ok := o.Live.TalosVersion.Get(); ok {
		at.TalosVersion = v
	}
	if v, ok := o.Schematic.Get(); ok {
		at.Schematic = v
	}
	markAnswering(mg, o.Live.Mode)
}

// showFacts writes what a survey of the cluster tells of this machine into the status.
func (e *external) showFacts(mg *v1alpha1.TalosMachine, f facts.Cluster) {
	m, ok := f.Machine(idOf(mg))
	if !ok {
		return
	}
	at := &mg.Status.AtProvider
	live, answers := m.Live.Get()
	if answers {
		at.Stage = live.Stage
	}
	n, _ := m.Node.Get()
	if n.Exists {
		at.Addresses = n.Addresses
	}
	// What the machine itself tells comes first: if it shares the name with another machine, the Node may be of that one
	// whenever it is looked at, and an overview, which does not ask workers, knows their names from here.
	told, _ := live.Nodename.Get()
	at.NodeName = cmp.Or(told, n.Name, at.NodeName)
	if m.Role == facts.ControlPlane {
		at.Etcd = etcdOf(m, f)
	}
	if !meta.WasDeleted(mg) {
		markRemovable(mg, f, m)
	}
}

// etcdOf says what is known of the etcd member of a machine. The ID that the machine was last seen to have is kept while
// it does not answer, or another machine may do so in its place: a removal may need it, and would take out the member of the
// other one. Before its UUID is pinned, anybody may.
func etcdOf(m facts.Machine, f facts.Cluster) *v1alpha1.MachineEtcdObservation {
	o := &v1alpha1.MachineEtcdObservation{Healthy: "unknown", State: "unknown", MemberID: v1alpha1.FormatMemberID(uint64(m.LastMember))}
	id := membership.Running(m)
	if id == 0 || m.UUID == "" {
		if membership.Of(f, m).State == membership.Absent {
			o.State = "absent"
		}
		return o
	}
	o.MemberID = v1alpha1.FormatMemberID(uint64(id))
	for _, v := range f.Etcd.Views {
		if v.Machine != m.ID {
			continue
		}
		o.Voter = !v.Learner
		healthy, known := v.Healthy.Get()
		switch {
		case !known:
		case !healthy:
			o.Healthy, o.State = "no", "unhealthy"
		case v.Learner:
			o.Healthy, o.State = "yes", "learner"
		default:
			o.Healthy, o.State = "yes", "voter"
		}
	}
	return o
}

// markRemovable says what a removal would be told now. The annotation is asked for last: who wants to know whether a
// removal is safe has not allowed it yet.
func markRemovable(mg *v1alpha1.TalosMachine, f facts.Cluster, m facts.Machine) {
	switch {
	case !m.Approved:
		mark(mg, v1alpha1.TypeRemovable, corev1.ConditionTrue, v1alpha1.ReasonNothingToUndo, "The machine was never approved")
		return
	case f.Teardown:
		mark(mg, v1alpha1.TypeRemovable, corev1.ConditionTrue, v1alpha1.ReasonTeardown, "The whole cluster is being taken down")
		return
	}
	if r := deleteguard.CheckRemoval(allowed(f, m.ID), m.ID); r != nil {
		mark(mg, v1alpha1.TypeRemovable, corev1.ConditionFalse, xpv2.ConditionReason(r.Reason), r.Error())
		return
	}
	if r := deleteguard.CheckDelete(v1alpha1.TalosMachineKind, m.Name, m.AllowDelete); r != nil {
		mark(mg, v1alpha1.TypeRemovable, corev1.ConditionFalse, xpv2.ConditionReason(r.Reason), r.Error())
		return
	}
	mark(mg, v1alpha1.TypeRemovable, corev1.ConditionTrue, v1alpha1.ReasonRemovable, "Every guard would let a removal through now")
}

// allowed returns the facts as they would be if a person had allowed the removal.
func allowed(f facts.Cluster, id facts.MachineID) facts.Cluster {
	return with(f, id, func(m *facts.Machine) { m.AllowDelete = true })
}

// withLive returns the facts with what the machine itself has just said: an overview is older, and does not ask workers.
// The state of its etcd service, what that says, and the Nodename of a control plane are only known from the overview.
func withLive(f facts.Cluster, id facts.MachineID, live facts.Live) facts.Cluster {
	return with(f, id, func(m *facts.Machine) {
		if before, ok := m.Live.Get(); ok {
			live.EtcdService, live.EtcdSays = before.EtcdService, before.EtcdSays
			if !live.Nodename.IsKnown() {
				live.Nodename = before.Nodename
			}
		}
		m.Live = facts.Of(live)
	})
}

// with returns the facts with one machine changed. The facts are shared, so it is a copy that is changed.
func with(f facts.Cluster, id facts.MachineID, change func(*facts.Machine)) facts.Cluster {
	f.Machines = slices.Clone(f.Machines)
	for i := range f.Machines {
		if f.Machines[i].ID == id {
			change(&f.Machines[i])
		}
	}
	return f
}

// markConfig says how what the machine runs compares to what is declared, in one word and for people.
func markConfig(mg *v1alpha1.TalosMachine, c configchange.Config) configchange.State {
	s := configchange.Verdict(c)
	type shown struct {
		state   v1alpha1.ConfigState
		status  corev1.ConditionStatus
		reason  xpv2.ConditionReason
		message string
	}
	is := map[configchange.State]shown{
		configchange.InSync:      {v1alpha1.ConfigInSync, corev1.ConditionTrue, v1alpha1.ReasonInSync, "The machine runs the declared configuration"},
		configchange.Drifted:     {v1alpha1.ConfigDrifted, corev1.ConditionFalse, v1alpha1.ReasonDrifted, "The running configuration differs; it is changed without a reboot"},
		configchange.Staged:      {v1alpha1.ConfigStaged, corev1.ConditionFalse, v1alpha1.ReasonStaged, "The configuration on disk waits for a reboot"},
		configchange.NeedsReboot: {v1alpha1.ConfigNeedsReboot, corev1.ConditionFalse, v1alpha1.ReasonNeedsReboot, "The declared configuration needs a reboot"},
	}
	v, ok := is[s]
	if !ok {
		v = shown{v1alpha1.ConfigUnknown, corev1.ConditionUnknown, v1alpha1.ReasonConfigUnknown, "The running configuration could not be compared: " + c.Active.Why()}
	}
	mg.Status.AtProvider.Config.State = v.state
	mark(mg, v1alpha1.TypeConfigApplied, v.status, v.reason, v.message)
	return s
}
