package topology

import (
	"fmt"
	"slices"
	"strings"

	topology "github.com/maesh/provider-ichor/apis/topology/v1alpha1"
	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// A wait is why a removal is not let through now.
type wait struct{ reason, message string }

func waitFor(reason, format string, args ...any) *wait {
	return &wait{reason: reason, message: fmt.Sprintf(format, args...)}
}

// gate lets the removal of one machine through, or says what it waits for. Nobody else is going: that was seen before.
// What is not known makes it wait.
func gate(f Facts, m Machine) *wait {
	if !f.Complete {
		return waitFor(topology.ReasonAwaitingRemoval, "it is not known yet whether another machine is being removed")
	}
	checks := []func(Facts, Machine) *wait{additionIsMissing, countWouldBreak, clusterIsUnsettled, providerRefuses}
	if !m.Approved {
		checks = checks[len(checks)-1:] // It never became part of the cluster, so its removal disturbs nothing.
	}
	for _, check := range checks {
		if w := check(f, m); w != nil {
			return w
		}
	}
	return nil
}

// additionIsMissing waits for the machines that are listed and have not joined; only a control plane does not wait for
// workers. Before etcd was bootstrapped nobody can join, and a machine that never came up may be what keeps it from being
// bootstrapped.
func additionIsMissing(f Facts, m Machine) *wait {
	var missing []string
	for _, l := range f.Listed {
		if !l.Parameters.Approved || f.asked(l.Name) || (l.Role == v1alpha1.RoleWorker && m.Role == v1alpha1.RoleControlPlane) {
			continue
		}
		seen, there := f.machine(l.Name)
		if !there || (f.Cluster.Bootstrapped && !seen.Joined) {
			missing = append(missing, l.Name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return waitFor(topology.ReasonAwaitingAdditions, "what is added joins first, and has not: %s", strings.Join(missing, ", "))
}

// countWouldBreak keeps as many control planes as are declared.
func countWouldBreak(f Facts, m Machine) *wait {
	n, declared := f.approvedControlPlanes(), f.Spec.ControlPlanes.Count
	switch {
	case m.Role != v1alpha1.RoleControlPlane:
		return nil
	case n-1 < declared:
		return waitFor(topology.ReasonBelowCount, "%d control planes are approved, and %d would be left of %d. List a replacement first, or lower spec.controlPlanes.count",
			n, n-1, declared)
	case f.Cluster.Bootstrapped && f.Cluster.Approved-1 < declared:
		return waitFor(topology.ReasonAwaitingCluster, "the TalosCluster has counted %d control planes so far, and %d are approved", f.Cluster.Approved, n)
	}
	return nil
}

// clusterIsUnsettled waits until the cluster serves and nothing else disturbs it. The removal of a control plane may begin or
// end a transition to another count of them; that of a worker waits for its end.
func clusterIsUnsettled(f Facts, m Machine) *wait {
	c := f.Cluster
	switch {
	case !c.Exists:
		return waitFor(topology.ReasonAwaitingCluster, "the TalosCluster is not there yet")
	case c.Deleting:
		return waitFor(topology.ReasonAwaitingCluster, "the TalosCluster is being deleted")
	case !c.Bootstrapped:
		return nil // Nothing is kept serving yet, and the cluster may not become ready before this machine is gone.
	case !c.Ready.True():
		return waitFor(topology.ReasonAwaitingCluster, "the TalosCluster is not known to be ready%s", because(c.Ready))
	case c.Disruption != "":
		return waitFor(topology.ReasonAwaitingCluster, "the cluster is being disrupted: %s", c.Disruption)
	case m.Role == v1alpha1.RoleWorker && (!c.Transitioning.False() || f.approvedControlPlanes()%2 == 0):
		return waitFor(topology.ReasonAwaitingCluster, "the number of control planes is even. Finish the change of control planes first%s", because(c.Transitioning))
	}
	return nil
}

// providerRefuses asks the provider's own guards, as the machine shows them. That the permission is missing is no refusal:
// it is about to be given.
func providerRefuses(_ Facts, m Machine) *wait {
	r := m.Removable
	switch {
	case r.True(), r.False() && r.Reason == v1alpha1.ReasonNotAllowed:
		return nil
	case r.False():
		return waitFor(topology.ReasonRefused, "%s: %s", r.Reason, r.Message)
	}
	return waitFor(topology.ReasonAwaitingVerdict, "its TalosMachine does not tell yet whether it can be removed")
}

// because is the reason of a condition as the end of a sentence.
func because(c Condition) string {
	switch {
	case c.Reason == "":
		return ""
	case c.Message == "":
		return fmt.Sprintf(" (%s)", c.Reason)
	}
	return fmt.Sprintf(" (%s: %s)", c.Reason, c.Message)
}
