package workload

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Node is what a machine's kubelet and Talos's own controllers tell Kubernetes about the machine.
type Node struct {
	Name         string
	Address      netip.Addr
	ControlPlane bool

	// Schedulable lets ordinary pods run on a control plane (cluster.allowSchedulingOnControlPlanes): it gets no taint.
	Schedulable bool

	// Labels, Annotations and Taints of the machine's configuration, beside those that every node gets.
	Labels, Annotations map[string]string
	Taints              []corev1.Taint

	// KubeletVersion such as "v1.35.4", and OSImage such as "Talos (v1.13.9)".
	KubeletVersion, OSImage string

	// UUID is the SMBIOS one. A new BootID is a new start: the pods on the node are started again.
	UUID, BootID string
}

const (
	controlPlaneRole = "node-role.kubernetes.io/control-plane"

	// Talos lists what it manages in these annotations and leaves alone what others have set.
	ownedLabels      = "talos.dev/owned-labels"
	ownedAnnotations = "talos.dev/owned-annotations"
	ownedTaints      = "talos.dev/owned-taints"
)

// shape turns a Node object into what kubelet and Talos make of it. It keeps what others have set, and takes off what was
// set by an earlier configuration and is in this one no more. It changes the object that it is given.
func (n Node) shape(object *corev1.Node, now time.Time) error {
	object.Name = n.Name
	object.Labels = set(object.Labels, map[string]string{
		corev1.LabelHostname:   n.Name,
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: runtime.GOARCH,
	})
	if object.Annotations == nil {
		object.Annotations = map[string]string{}
	}
	if err := n.shapeOwned(object); err != nil {
		return err
	}
	n.shapeStatus(&object.Status, now)
	return nil
}

// shapeOwned does what Talos's node controller does.
func (n Node) shapeOwned(object *corev1.Node) error {
	labels, taints := set(nil, n.Labels), slices.Clone(n.Taints)
	if n.ControlPlane {
		labels[controlPlaneRole] = ""
		if !n.Schedulable {
			taints = append(taints, corev1.Taint{Key: controlPlaneRole, Effect: corev1.TaintEffectNoSchedule})
		}
	}
	var err error
	if object.Labels, err = own(object, ownedLabels, object.Labels, labels); err != nil {
		return err
	}
	if object.Annotations, err = own(object, ownedAnnotations, object.Annotations, n.Annotations); err != nil {
		return err
	}
	return ownTaints(object, taints)
}

// own sets the wanted entries and removes those that the list says were ours and are wanted no more. An entry that somebody
// else has set to another value stays theirs.
func own(object *corev1.Node, list string, have, want map[string]string) (map[string]string, error) {
	owned, err := readList(object, list)
	if err != nil {
		return nil, err
	}
	have = set(nil, have)
	for _, key := range owned {
		if _, wanted := want[key]; !wanted {
			delete(have, key)
		}
	}
	var now []string
	for key, value := range want {
		current, exists := have[key]
		if exists && current != value && !slices.Contains(owned, key) {
			continue
		}
		have[key] = value
		now = append(now, key)
	}
	if list == ownedAnnotations {
		// have becomes the object's annotations, which is where the list itself lives.
		object.Annotations = have
	}
	return have, writeList(object, list, now)
}

// ownTaints does for taints what own does for labels. A taint is one of ours by its key.
func ownTaints(object *corev1.Node, want []corev1.Taint) error {
	owned, err := readList(object, ownedTaints)
	if err != nil {
		return err
	}
	keys := make([]string, 0, len(want))
	for _, t := range want {
		keys = append(keys, t.Key)
	}
	kept := slices.DeleteFunc(slices.Clone(object.Spec.Taints), func(t corev1.Taint) bool {
		return slices.Contains(owned, t.Key) || slices.Contains(keys, t.Key)
	})
	object.Spec.Taints = append(kept, want...)
	return writeList(object, ownedTaints, keys)
}

func readList(object *corev1.Node, annotation string) ([]string, error) {
	text, exists := object.Annotations[annotation]
	if !exists {
		return nil, nil
	}
	var list []string
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("cannot read annotation %q: %w", annotation, err)
	}
	return list, nil
}

func writeList(object *corev1.Node, annotation string, list []string) error {
	if len(list) == 0 {
		delete(object.Annotations, annotation)
		return nil
	}
	slices.Sort(list)
	text, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("cannot write annotation %q: %w", annotation, err)
	}
	object.Annotations[annotation] = string(text)
	return nil
}

// shapeStatus does what the kubelet does. The size of the machine is made up; nothing runs on it.
func (n Node) shapeStatus(status *corev1.NodeStatus, now time.Time) {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("4"),
		corev1.ResourceMemory: resource.MustParse("8Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	status.Capacity, status.Allocatable = capacity, capacity.DeepCopy()
	status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: n.Address.String()},
		{Type: corev1.NodeHostName, Address: n.Name},
	}
	status.NodeInfo = corev1.NodeSystemInfo{
		MachineID:               n.UUID,
		SystemUUID:              n.UUID,
		BootID:                  n.BootID,
		OSImage:                 n.OSImage,
		KubeletVersion:          n.KubeletVersion,
		OperatingSystem:         "linux",
		Architecture:            runtime.GOARCH,
		ContainerRuntimeVersion: "containerd://2.1.4",
		KernelVersion:           "6.18.0-talos",
	}
	setCondition(status, corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", now)
	setCondition(status, corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", now)
	setCondition(status, corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", now)
	setCondition(status, corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", now)
}

// setCondition leaves a condition that says the same already as it is, times included, so that an unchanged node is not
// written again: the lease is the heartbeat.
func setCondition(status *corev1.NodeStatus, kind corev1.NodeConditionType, value corev1.ConditionStatus, reason string, now time.Time) {
	i := slices.IndexFunc(status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
	if i < 0 {
		i = len(status.Conditions)
		status.Conditions = append(status.Conditions, corev1.NodeCondition{Type: kind})
	}
	c := &status.Conditions[i]
	if c.Status == value && c.Reason == reason {
		return
	}
	if c.Status != value {
		c.LastTransitionTime = metav1.NewTime(now)
	}
	c.Status, c.Reason, c.Message, c.LastHeartbeatTime = value, reason, "", metav1.NewTime(now)
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// set adds entries to a copy of a map.
func set(to, entries map[string]string) map[string]string {
	out := make(map[string]string, len(to)+len(entries))
	maps.Copy(out, to)
	maps.Copy(out, entries)
	return out
}
