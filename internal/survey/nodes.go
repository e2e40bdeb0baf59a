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
		// What client-go tries again by itself ends in another way each time, with a port that is another one each time.
		text, _, _ := strings.Cut(err.Error(), " - error from a previous attempt: ")
		return nodeReader{why: "cannot list the Nodes of the cluster: " + text}
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
		o.machines[i].Node = r.nodeOf(&o.machines[i], o.declared[i].Status.AtProvider.NodeName)
	}
	o.matchNodenames()
	for i := range o.machines {
		m := &o.machines[i]
		if node, ok := m.Node.Get(); ok && node.Exists && m.ID == target {
			m.Node = r.withLoad(ctx, node)
		}
	}
}

// nodeOf finds the Node of a machine: the one whose kubelet saw the same SMBIOS UUID. A hostname proves nothing, so a name
// counts only if the Node tells no UUID (its kubelet never reported) and its name was recorded: when it told one, or when the
// machine itself told that its kubelet has that name. Which name the machine tells now counts against what is found: the Node
// may be another one's by now.
func (r nodeReader) nodeOf(m *facts.Machine, recorded string) facts.Known[facts.Node] {
	live, _ := m.Live.Get()
	own, told := live.Nodename.Get()
	m.Nodename, m.SameNodename, m.LeftoverNodes = recorded, nil, nil
	if told {
		m.Nodename = own
	}
	if r.why != "" {
		return facts.Unknown[facts.Node](r.why)
	}
	uuid := uuidOf(*m)
	found := r.find(func(n *corev1.Node, seen string) bool {
		return (seen != "" && seen == uuid) || (seen == "" && recorded != "" && n.GetName() == recorded)
	})
	namesake := told && slices.ContainsFunc(r.nodes, func(n corev1.Node) bool { return n.GetName() == own })
	switch {
	case len(found) > 1:
		for _, n := range found {
			m.LeftoverNodes = append(m.LeftoverNodes, n.GetName())
		}
		slices.Sort(m.LeftoverNodes)
		return facts.Unknown[facts.Node](fmt.Sprintf("the Nodes %s are all of this machine by its UUID", strings.Join(m.LeftoverNodes, ", ")))
	case len(found) == 1 && told && found[0].GetName() != own:
		m.LeftoverNodes = []string{found[0].GetName()}
		return facts.Unknown[facts.Node](fmt.Sprintf("Node %s is of this machine by its UUID, and its kubelet runs under the name %s by now", found[0].GetName(), own))
	case len(found) == 1:
		m.Nodename = found[0].GetName()
		return facts.Of(nodeFacts(found[0], m.ID))
	case uuid == "":
		return facts.Unknown[facts.Node]("the machine's UUID is not known, so its Node cannot be found")
	case namesake:
		// The kubelet that runs under this name has not written to the Node yet, or another one did after it.
		m.LeftoverNodes = []string{own}
		return facts.Unknown[facts.Node](fmt.Sprintf("Node %s has its name and the UUID of another machine", own))
	}
	return facts.Of(facts.Node{})
}

// find returns the Nodes that fit, by themselves and by the SMBIOS UUID that their kubelets saw.
func (r nodeReader) find(fits func(n *corev1.Node, seen string) bool) []*corev1.Node {
	var found []*corev1.Node
	for i := range r.nodes {
		if n := &r.nodes[i]; fits(n, strings.ToLower(n.Status.NodeInfo.SystemUUID)) {
			found = append(found, n)
		}
	}
	return found
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
