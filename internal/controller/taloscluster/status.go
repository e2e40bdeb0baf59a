package taloscluster

import (
	"fmt"
	"slices"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/clusterlock"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/quorum"
	"github.com/maesh/provider-ichor/internal/metrics"
)

// fill status.atProvider from what a survey found. Nothing in it changes while the cluster does not: no time of the
// survey, no counters, or every poll would wake whatever watches the object.
func fill(c *v1alpha1.TalosCluster, f facts.Cluster, h etcdHealth, approved int, lock *clusterlock.Info) {
	o := &c.Status.AtProvider
	o.BootstrappedBy = c.GetAnnotations()[v1alpha1.AnnotationBootstrapped]
	o.ControlPlanes = v1alpha1.ControlPlaneCounts{
		Declared:      c.Spec.ForProvider.ControlPlane.Count,
		Approved:      approved,
		Voters:        h.voters,
		HealthyVoters: h.healthy,
	}
	o.Etcd = v1alpha1.EtcdObservation{Leader: h.leader, Members: h.members}
	o.Versions = versionsOf(f)
	o.Removal = nil
	o.Disruption = nil
	if lock != nil {
		o.Disruption = &v1alpha1.DisruptionObservation{
			Holder: holderName(lock.Holder),
			For:    lock.Holder.Purpose,
		}
		if !lock.Since.IsZero() {
			since := metav1.NewTime(lock.Since).Rfc3339Copy()
			o.Disruption.Since = &since
		}
	}
}

// measure what a survey found.
func measure(c *v1alpha1.TalosCluster, h etcdHealth, lock *clusterlock.Info) {
	metrics.Voters(c.GetNamespace(), c.GetName(), h.voters, h.healthy)
	holder := ""
	if lock != nil {
		holder = holderName(lock.Holder)
	}
	metrics.LockHeld(c.GetNamespace(), c.GetName(), holder)
}

func holderName(h clusterlock.Holder) string { return h.Kind + "/" + h.Name }

// versionsOf returns the versions that machines were seen to run, each once, in order.
func versionsOf(f facts.Cluster) v1alpha1.ObservedVersions {
	var v v1alpha1.ObservedVersions
	for _, m := range f.Machines {
		node, _ := m.Node.Get()
		if node.KubeletVersion != "" {
			v.Kubernetes = append(v.Kubernetes, node.KubeletVersion)
		}
		if version := versionOf(m, node); version != "" {
			v.Talos = append(v.Talos, version)
		}
	}
	slices.Sort(v.Talos)
	slices.Sort(v.Kubernetes)
	return v1alpha1.ObservedVersions{Talos: slices.Compact(v.Talos), Kubernetes: slices.Compact(v.Kubernetes)}
}

// versionOf is the version of Talos that a machine of the cluster runs. Workers are not asked for an overview: one that is a
// Node counts with what it told last.
func versionOf(m facts.Machine, node facts.Node) string {
	live, answered := m.Live.Get()
	switch {
	case answered && live.Mode == facts.Configured:
		version, _ := live.TalosVersion.Get()
		return version
	case !answered && node.Exists:
		return m.LastVersion
	}
	return ""
}

// transitioning says whether a change of the number of control planes is half done, from how many are approved now.
func transitioning(n int) xpv2.Condition {
	if n > 0 && n%2 == 0 {
		return condition(v1alpha1.TypeTransitioning, corev1.ConditionTrue, v1alpha1.ReasonEvenControlPlaneCount,
			fmt.Sprintf("%d control planes are approved, an even number: disruptive work is parked. %s", n, quorum.WayToOdd(n)))
	}
	return condition(v1alpha1.TypeTransitioning, corev1.ConditionFalse, v1alpha1.ReasonStableControlPlaneCount,
		fmt.Sprintf("Approved control planes: %d", n))
}

// etcdHealthy says whether every member is a started, healthy voter without alarms.
func etcdHealthy(h etcdHealth) xpv2.Condition {
	status := corev1.ConditionFalse
	switch h.reason {
	case v1alpha1.ReasonEtcdAllHealthy:
		status = corev1.ConditionTrue
	case v1alpha1.ReasonEtcdUnknown:
		status = corev1.ConditionUnknown
	default: // Everything else is known not to be well.
	}
	return condition(v1alpha1.TypeEtcdHealthy, status, h.reason, h.message)
}

// ready says whether the cluster serves as it is declared: etcd has as many voters as control planes are declared, and a
// quorum of them, and the Kubernetes API answers. One machine that fails does not make a cluster unready.
func ready(f facts.Cluster, h etcdHealth) xpv2.Condition {
	declared, known := f.Declared.Get()
	no := func(r xpv2.ConditionReason, message string) xpv2.Condition {
		return condition(xpv2.TypeReady, corev1.ConditionFalse, r, message)
	}
	switch {
	case h.reason == v1alpha1.ReasonQuorumLost:
		return no(v1alpha1.ReasonQuorumLost, h.message)
	case h.voters == unknownCount:
		return no(v1alpha1.ReasonEtcdUnknown, h.message)
	case !known:
		return no(v1alpha1.ReasonAwaitingMembers, "The declared number of control planes is not known: "+f.Declared.Why())
	case h.voters < declared || h.healthy < quorum.Majority(declared):
		return no(v1alpha1.ReasonAwaitingMembers, fmt.Sprintf("%d control planes are declared, and %d of %d voters in etcd are healthy", declared, h.healthy, h.voters))
	case !apiAnswers(f):
		return no(v1alpha1.ReasonAPIUnavailable, "The Kubernetes API of the cluster does not answer"+whyNoNodes(f))
	}
	return condition(xpv2.TypeReady, corev1.ConditionTrue, xpv2.ReasonAvailable, "")
}

// apiAnswers tells whether the Kubernetes API of the cluster told anything about the Node of any machine.
func apiAnswers(f facts.Cluster) bool {
	return slices.ContainsFunc(f.Machines, func(m facts.Machine) bool { return m.Node.IsKnown() })
}

// whyNoNodes says why the Kubernetes API does not answer. All machines know the same of it.
func whyNoNodes(f facts.Cluster) string {
	if len(f.Machines) == 0 {
		return ""
	}
	return ": " + f.Machines[0].Node.Why()
}

func condition(t xpv2.ConditionType, s corev1.ConditionStatus, r xpv2.ConditionReason, message string) xpv2.Condition {
	return xpv2.Condition{Type: t, Status: s, Reason: r, Message: message}
}

// mark sets conditions, and records one Event for each that came to another reason than before.
func (e *external) mark(c *v1alpha1.TalosCluster, conditions ...xpv2.Condition) {
	for _, cond := range conditions {
		if before := c.GetCondition(cond.Type); before.Reason != cond.Reason && cond.Message != "" {
			e.record.Event(c, event.Event{Type: eventType(cond), Reason: event.Reason(cond.Reason), Message: cond.Message})
		}
		cond.LastTransitionTime = metav1.NewTime(e.clock.Now())
		c.SetConditions(cond.WithObservedGeneration(c.GetGeneration()))
	}
}

// eventType of a condition: a transition is what its owner wanted, everything else that is not as it should be warns.
func eventType(c xpv2.Condition) event.Type {
	if c.Status == corev1.ConditionTrue || c.Type == v1alpha1.TypeTransitioning {
		return event.TypeNormal
	}
	return event.TypeWarning
}
