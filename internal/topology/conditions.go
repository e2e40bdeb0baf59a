package topology

import (
	"fmt"
	"strings"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"google.golang.org/protobuf/types/known/structpb"
	corev1 "k8s.io/api/core/v1"

	topology "github.com/maesh/provider-ichor/apis/topology/v1alpha1"
	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// Conditions say what the topology waits for. Each is told in every pass: one that is not told keeps its last value. They
// hold nothing that changes while the cluster does not, or every poll would wake the topology.
func Conditions(f Facts, p Plan) []*fnv1.Condition {
	return []*fnv1.Condition{
		condition(topology.TypeValid, fnv1.Status_STATUS_CONDITION_TRUE, topology.ReasonValid, ""),
		clusterReady(f.Cluster),
		machinesReady(p),
		machinesListed(p),
		removal(p.Removal),
		deletionProtected(f),
	}
}

// invalid says that nothing is changed, and why.
func invalid(err error) *fnv1.Condition {
	return condition(topology.TypeValid, fnv1.Status_STATUS_CONDITION_FALSE, topology.ReasonInvalid, "Nothing is changed: "+err.Error())
}

func clusterReady(c Cluster) *fnv1.Condition {
	switch {
	case c.Ready.True():
		return condition(topology.TypeClusterReady, fnv1.Status_STATUS_CONDITION_TRUE, string(c.Ready.Reason), c.Ready.Message)
	case (c.Ready.Reason == "" || c.Ready.Stale) && c.Synced.Status == corev1.ConditionFalse:
		// A pass that fails early, as without a ProviderConfig, says why nowhere else.
		return condition(topology.TypeClusterReady, fnv1.Status_STATUS_CONDITION_FALSE, topology.ReasonNotObserved, "The TalosCluster does not get on: "+c.Synced.Message)
	case c.Ready.Reason == "" || c.Ready.Stale:
		return condition(topology.TypeClusterReady, fnv1.Status_STATUS_CONDITION_UNKNOWN, topology.ReasonNotObserved, "The TalosCluster does not tell yet")
	}
	return condition(topology.TypeClusterReady, fnv1.Status_STATUS_CONDITION_FALSE, string(c.Ready.Reason), c.Ready.Message)
}

func machinesReady(p Plan) *fnv1.Condition {
	var waiting []string
	for _, m := range p.Machines {
		switch {
		case m.Ready():
		case m.Seen == nil || m.Seen.Ready.Reason == "" || m.Seen.Ready.Stale:
			waiting = append(waiting, m.Name)
		default:
			waiting = append(waiting, m.Name+because(m.Seen.Ready))
		}
	}
	if len(waiting) == 0 {
		return condition(topology.TypeMachinesReady, fnv1.Status_STATUS_CONDITION_TRUE, topology.ReasonAllReady, "")
	}
	return condition(topology.TypeMachinesReady, fnv1.Status_STATUS_CONDITION_FALSE, topology.ReasonNotReady, "Not ready: "+strings.Join(waiting, ", "))
}

func machinesListed(p Plan) *fnv1.Condition {
	if len(p.Kept) == 0 {
		return condition(topology.TypeMachinesListed, fnv1.Status_STATUS_CONDITION_TRUE, topology.ReasonAllListed, "")
	}
	return condition(topology.TypeMachinesListed, fnv1.Status_STATUS_CONDITION_FALSE, topology.ReasonKept,
		fmt.Sprintf("Kept as they are although they are not listed: %s. To remove a machine, name it in spec.removals; to keep it, list it again", strings.Join(p.Kept, ", ")))
}

func removal(r Removal) *fnv1.Condition {
	status := fnv1.Status_STATUS_CONDITION_TRUE
	if r.Step == Nothing {
		status = fnv1.Status_STATUS_CONDITION_FALSE
	}
	return condition(topology.TypeRemoval, status, r.Reason, r.Message)
}

func deletionProtected(f Facts) *fnv1.Condition {
	if f.Owner.AllowDelete {
		return condition(topology.TypeDeletionProtected, fnv1.Status_STATUS_CONDITION_FALSE, topology.ReasonAllowed,
			"Deleting the topology takes the whole cluster down and wipes its machines. Take the annotation "+v1alpha1.AnnotationAllowDelete+" off to protect it again")
	}
	wanted := []string{nameGuard}
	if f.Owner.Claim != "" {
		wanted = append(wanted, nameClaimGuard)
	}
	for _, name := range wanted {
		if !f.Guards[name].True() {
			return condition(topology.TypeDeletionProtected, fnv1.Status_STATUS_CONDITION_FALSE, topology.ReasonProtecting, "Its Usage is not in place yet")
		}
	}
	return condition(topology.TypeDeletionProtected, fnv1.Status_STATUS_CONDITION_TRUE, topology.ReasonProtected,
		"To take the whole cluster down, annotate it with "+v1alpha1.AnnotationAllowDelete+": \"true\" and delete it")
}

func condition(t string, s fnv1.Status, reason, message string) *fnv1.Condition {
	c := &fnv1.Condition{Type: t, Status: s, Reason: reason, Target: fnv1.Target_TARGET_COMPOSITE_AND_CLAIM.Enum()}
	if message != "" {
		c.Message = &message
	}
	return c
}

// Status of the topology.
func Status(f Facts, p Plan) (*structpb.Struct, error) {
	s := topology.TalosTopologyStatus{Cluster: f.Owner.Base(), Kept: p.Kept}
	if p.Removal.Step != Nothing {
		s.Removing = p.Removal.Machine
	}
	for _, m := range p.Machines {
		counts := &s.Workers
		if m.Role() == v1alpha1.RoleControlPlane {
			counts = &s.ControlPlanes
		}
		counts.Composed++
		if m.Ready() {
			counts.Ready++
		}
	}
	for _, counts := range []*topology.Counts{&s.ControlPlanes, &s.Workers} {
		counts.Summary = fmt.Sprintf("%d/%d", counts.Ready, counts.Composed)
	}
	status, err := structOf(&struct {
		Status topology.TalosTopologyStatus `json:"composite"`
	}{s})
	if err != nil {
		return nil, err
	}
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		"apiVersion": structpb.NewStringValue(f.Owner.APIVersion),
		"kind":       structpb.NewStringValue(f.Owner.Kind),
		"status":     status.GetFields()["composite"],
	}}, nil
}
