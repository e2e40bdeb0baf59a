package topology

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// settle does with every object what the provider does in time: machines join, the cluster comes up and counts them. What is
// being removed goes on being removed.
func (c *core) settle() {
	approved := 0
	for _, m := range c.machines() {
		is, _, _ := unstructured.NestedBool(m.Object, "spec", "forProvider", "approved")
		role, _, _ := unstructured.NestedString(m.Object, "spec", "forProvider", "role")
		if is && role == string(v1alpha1.RoleControlPlane) {
			approved++
		}
		if m.GetDeletionTimestamp() != nil {
			set(m, "Removal", "True", "Drain", "Draining Node "+m.GetName())
			continue
		}
		if !is {
			set(m, "Ready", "False", "AwaitingApproval", "")
			set(m, "Removable", "True", "NothingToUndo", "")
			continue
		}
		put(m, m.GetName(), "status", "atProvider", "nodeName")
		set(m, "Reachable", "True", "Answering", "")
		set(m, "Ready", "True", "Available", "")
		if m.GetAnnotations()[v1alpha1.AnnotationAllowDelete] == "true" {
			set(m, "Removable", "True", "Removable", "")
		} else {
			set(m, "Removable", "False", "NotAllowed", "Nobody allowed it")
		}
	}
	cluster, there := c.objects[nameCluster]
	if !there {
		return
	}
	put(cluster, "uuid-of-cp-1", "status", "atProvider", "bootstrappedBy")
	put(cluster, int64(approved), "status", "atProvider", "controlPlanes", "approved")
	unstructured.RemoveNestedField(cluster.Object, "status", "atProvider", "disruption")
	set(cluster, "Ready", "True", "Available", "")
	if approved%2 == 0 {
		set(cluster, "Transitioning", "True", "EvenControlPlaneCount", "")
	} else {
		set(cluster, "Transitioning", "False", "StableControlPlaneCount", "")
	}
	for _, name := range []string{nameGuard, nameClaimGuard} {
		if u, there := c.objects[name]; there {
			set(u, "Ready", "True", "Available", "")
		}
	}
}

// tell lets an object say something else than settle did: condition=Status/Reason/a_message, and a few words more.
func (c *core) tell(name, what string) error {
	o, there := c.objects[name]
	if !there {
		return fmt.Errorf("there is no %q", name)
	}
	key, value, _ := strings.Cut(what, "=")
	switch key {
	case "gone":
		delete(c.objects, name)
	case "deleted":
		o.SetDeletionTimestamp(ptr.To(metav1.Unix(1, 0)))
	case "undeleted": // As in a cache that has not seen the deletion.
		o.SetDeletionTimestamp(nil)
	case "allowed":
		annotations := o.GetAnnotations()
		annotations[v1alpha1.AnnotationAllowDelete] = "true"
		o.SetAnnotations(annotations)
	case "stale":
		o.SetGeneration(o.GetGeneration() + 1)
	case "dark":
		unstructured.RemoveNestedField(o.Object, "status")
	case "disruption":
		put(o, map[string]any{"holder": value, "for": "reboot"}, "status", "atProvider", "disruption")
	case "approved":
		put(o, int64(len(value)), "status", "atProvider", "controlPlanes", "approved")
	case "uid":
		o.SetOwnerReferences([]metav1.OwnerReference{{Kind: "Other", Name: "other", UID: "other", Controller: ptr.To(true)}})
	case "lost":
		for i, ref := range c.refs {
			if ref == name {
				c.refs = append(c.refs[:i], c.refs[i+1:]...)
				break
			}
		}
	default:
		status, reason, _ := strings.Cut(value, "/")
		reason, message, _ := strings.Cut(reason, "/")
		set(o, key, status, reason, strings.ReplaceAll(message, "_", " "))
	}
	return nil
}

// set a condition of an object at its generation.
func set(o *unstructured.Unstructured, t, status, reason, message string) {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	want := map[string]any{"type": t, "status": status, "reason": reason, "message": message, "observedGeneration": o.GetGeneration(), "lastTransitionTime": "2026-01-01T00:00:00Z"}
	for i, c := range conditions {
		if c.(map[string]any)["type"] == t {
			conditions[i] = want
			put(o, conditions, "status", "conditions")
			return
		}
	}
	put(o, append(conditions, want), "status", "conditions")
}

func put(o *unstructured.Unstructured, value any, path ...string) {
	if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
		panic(err)
	}
}
