package e2e

import (
	"context"
	"fmt"
	"strings"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	topology "github.com/maesh/provider-ichor/apis/topology/v1alpha1"
	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/lab/story"
)

// namespace of the claim and of everything that is composed for it.
const namespace = "default"

// What the control API of the machines calls things.
const (
	stageMaintenance = "maintenance"
)

// topology is a topology of any of its kinds, or a claim. The name of one without a namespace is that of an XTalosTopology.
func (e *E2E) topology(ctx context.Context, kind, name string) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(topology.SchemeGroupVersion.WithKind(kind))
	key := client.ObjectKey{Namespace: namespace, Name: name}
	if kind == topology.KindLegacyTopology {
		key.Namespace = ""
	}
	return u, e.kube.Get(ctx, key, u)
}

// condition of an object, whatever its kind. One that is not there says nothing.
func condition(u *unstructured.Unstructured, kind string) (xpv2.Condition, error) {
	o := struct {
		Status xpv2.ConditionedStatus `json:"status"`
	}{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o); err != nil {
		return xpv2.Condition{}, fmt.Errorf("cannot read the conditions of %s %q: %w", u.GetKind(), u.GetName(), err)
	}
	return o.Status.GetCondition(xpv2.ConditionType(kind)), nil
}

// wants a condition to have a status, and every one of these words in its reason or its message.
func wants(u *unstructured.Unstructured, kind string, status corev1.ConditionStatus, words ...string) error {
	c, err := condition(u, kind)
	if err != nil {
		return err
	}
	said := fmt.Sprintf("%s: %s", c.Reason, c.Message)
	if c.Status != status {
		return fmt.Errorf("condition %s of %s %q is %s (%s), want %s", kind, u.GetKind(), u.GetName(), c.Status, said, status)
	}
	if err := says(said, words...); err != nil {
		return fmt.Errorf("condition %s of %s %q: %w", kind, u.GetKind(), u.GetName(), err)
	}
	return nil
}

// says wants every one of these words in a text.
func says(text string, words ...string) error {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return fmt.Errorf("it does not say %q, but: %s", w, text)
		}
	}
	return nil
}

// machines are the TalosMachines that there are.
func (e *E2E) machines(ctx context.Context) ([]v1alpha1.TalosMachine, error) {
	list := &v1alpha1.TalosMachineList{}
	err := e.kube.List(ctx, list, client.InNamespace(namespace))
	return list.Items, err
}

// allBlank wants every machine in maintenance mode.
func (e *E2E) allBlank(ctx context.Context) error {
	all, err := e.lab.Fleet.Machines(ctx)
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Stage != stageMaintenance {
			return fmt.Errorf("machine %s is in stage %s, want %s", m.Name, m.Stage, stageMaintenance)
		}
	}
	return nil
}

// untouched wants nothing to have been sent to a machine, or to any if the name is empty, after the given call.
func (e *E2E) untouched(ctx context.Context, machine string, after uint64) error {
	sent, err := e.lab.Fleet.Changes(ctx, machine, after)
	if err != nil {
		return err
	}
	if len(sent) > 0 {
		return fmt.Errorf("%s was sent to %s", sent[0].Method, sent[0].Machine)
	}
	return nil
}

// workload reaches a cluster with the kubeconfig of a connection Secret.
func (e *E2E) workload(ctx context.Context, secret string) (kubernetes.Interface, error) {
	return story.Workload(ctx, e.kube, client.ObjectKey{Namespace: namespace, Name: secret})
}

// nodes wants so many Nodes, and every one of them Ready.
func (e *E2E) nodes(ctx context.Context, secret string, want int) error {
	kube, err := e.workload(ctx, secret)
	if err != nil {
		return err
	}
	return story.NodesReady(ctx, kube, want)
}
