package survey

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubectl/pkg/drain"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/facts"
)

// A nodeReader holds the Nodes of a cluster, or why they are not known.
type nodeReader struct {
	kube  kubernetes.Interface
	nodes []corev1.Node
	why   string
}

// readNodes lists the Nodes of the cluster.
func readNodes(ctx context.Context, a Access) nodeReader {
	ctx, cancel := context.WithTimeout(ctx, nodeBudget)
	defer cancel()
	kube, err := a.Kubernetes()
	if err != nil {
		return nodeReader{why: err.Error()}
	}
	l, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nodeReader{why: fmt.Sprintf("cannot list the Nodes of the cluster: %v", err)}
	}
	for i := range l.Items {
		l.Items[i].ManagedFields, l.Items[i].Status.Images = nil, nil // Most of a Node, and nothing here looks at them.
	}
	return nodeReader{kube: kube, nodes: l.Items}
}

// matchNodes tells for each machine what is known of its Node, and for the target what is still on it.
func (o *objects) matchNodes(ctx context.Context, r nodeReader, target facts.MachineID) {
	ctx, cancel := context.WithTimeout(ctx, nodeBudget)
	defer cancel()
	for i := range o.machines {
		m := &o.machines[i]
		m.Node = r.nodeOf(*m, o.declared[i].Status.AtProvider.NodeName)
		if node, _ := m.Node.Get(); node.Exists {
			if other := o.alsoNode(i, node.Name); other != "" {
				m.Node = facts.Unknown[facts.Node](fmt.Sprintf("Node %s is now of this machine by its UUID and was that of %s: two machines have one hostname. Give one of them another", node.Name, other))
			}
		}
		if node, ok := m.Node.Get(); ok && node.Exists && m.ID == target {
			m.Node = r.withLoad(ctx, node)
		}
	}
}

// alsoNode names another machine that runs and whose Node had this name when it was last seen, or returns nothing. The
// kubelets of two machines of one hostname write to one Node in turns: to drain or delete it for the one would hit the other.
func (o *objects) alsoNode(i int, node string) string {
	for k, other := range o.machines {
		live, answers := other.Live.Get()
		if k != i && !other.Removed && answers && live.Mode == facts.Configured && o.declared[k].Status.AtProvider.NodeName == node {
			return other.Name
		}
	}
	return ""
}

// nodeOf finds the Node of a machine: the one whose kubelet saw the same SMBIOS UUID. A hostname proves nothing, so a name
// counts only if the Node tells no UUID (its kubelet never reported) and its name was recorded when it did.
func (r nodeReader) nodeOf(m facts.Machine, recorded string) facts.Known[facts.Node] {
	if r.why != "" {
		return facts.Unknown[facts.Node](r.why)
	}
	uuid := m.UUID
	if live, ok := m.Live.Get(); ok && uuid == "" {
		uuid = live.UUID
	}
	var found []*corev1.Node
	var names []string
	for i := range r.nodes {
		n := &r.nodes[i]
		seen := strings.ToLower(n.Status.NodeInfo.SystemUUID)
		if (seen != "" && seen == uuid) || (seen == "" && recorded != "" && n.GetName() == recorded) {
			found = append(found, n)
			names = append(names, n.GetName())
		}
	}
	switch {
	case len(found) > 1:
		slices.Sort(names)
		return facts.Unknown[facts.Node](fmt.Sprintf("the Nodes %s are all of this machine by its UUID; delete those that are left over", strings.Join(names, ", ")))
	case len(found) == 1:
		return facts.Of(nodeFacts(found[0], m.ID))
	case uuid == "":
		return facts.Unknown[facts.Node]("the machine's UUID is not known, so its Node cannot be found")
	}
	return facts.Of(facts.Node{})
}

func nodeFacts(n *corev1.Node, id facts.MachineID) facts.Node {
	f := facts.Node{
		Exists:         true,
		Name:           n.GetName(),
		KubeletVersion: n.Status.NodeInfo.KubeletVersion,
		Cordoned:       n.Spec.Unschedulable,
		Ours:           n.GetAnnotations()[v1alpha1.AnnotationCordonedBy] == string(id),
	}
	for _, a := range n.Status.Addresses {
		f.Addresses = append(f.Addresses, a.Address)
	}
	slices.Sort(f.Addresses)
	f.Addresses = slices.Compact(f.Addresses)
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			f.Ready = c.Status == corev1.ConditionTrue
		}
	}
	return f
}

// withLoad adds what is still on the Node. If that cannot be read the Node is unknown as a whole: an empty list would
// read as drained.
func (r nodeReader) withLoad(ctx context.Context, n facts.Node) facts.Known[facts.Node] {
	var err error
	if n.Evictable, err = evictable(ctx, r.kube, n.Name); err != nil {
		return facts.Unknown[facts.Node](err.Error())
	}
	if n.Attached, err = attached(ctx, r.kube, n.Name); err != nil {
		return facts.Unknown[facts.Node](err.Error())
	}
	return facts.Of(n)
}

// evictable are the pods that have to go before the Node is drained, by the filters of kubectl's own drain: all but those
// of DaemonSets and static ones. Pods that a drain may not evict without being told to are among them: they have to go
// as well, and whether they may be evicted is for the drain to say.
func evictable(ctx context.Context, kube kubernetes.Interface, node string) ([]string, error) {
	h := &drain.Helper{
		Ctx: ctx, Client: kube, Out: io.Discard, ErrOut: io.Discard,
		GracePeriodSeconds: -1, IgnoreAllDaemonSets: true, Force: true, DeleteEmptyDirData: true,
	}
	list, errs := h.GetPodsForDeletion(node)
	if len(errs) > 0 {
		return nil, fmt.Errorf("cannot tell which pods are still on Node %q: %w", node, errs[0])
	}
	var names []string
	for _, p := range list.Pods() {
		names = append(names, p.GetNamespace()+"/"+p.GetName())
	}
	slices.Sort(names)
	return names, nil
}

// attached are the volumes that are attached to the Node, by the names of their PersistentVolumes.
func attached(ctx context.Context, kube kubernetes.Interface, node string) ([]string, error) {
	l, err := kube.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot list the volumes that are attached to Node %q: %w", node, err)
	}
	var names []string
	for _, a := range l.Items {
		if a.Spec.NodeName != node {
			continue
		}
		name := a.GetName()
		if pv := a.Spec.Source.PersistentVolumeName; pv != nil {
			name = *pv
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}
