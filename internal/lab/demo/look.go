package demo

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/lab"
	"github.com/maesh/provider-ichor/internal/lab/story"
)

// Names of what the examples declare.
const (
	namespace        = "default"
	clusterName      = "demo"
	connectionSecret = "demo-connection"
	pkiSecret        = "demo-talos-pki"
)

// What the control API of the machines calls things.
const (
	stageMaintenance = "maintenance"
	stageRunning     = "running"
)

func (d *Demo) object(ctx context.Context, name string, into client.Object) error {
	return d.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
}

func (d *Demo) cluster(ctx context.Context) (*v1alpha1.TalosCluster, error) {
	c := &v1alpha1.TalosCluster{}
	return c, d.object(ctx, clusterName, c)
}

func (d *Demo) machine(ctx context.Context, name string) (*v1alpha1.TalosMachine, error) {
	m := &v1alpha1.TalosMachine{}
	return m, d.object(ctx, name, m)
}

func (d *Demo) declared(ctx context.Context) ([]v1alpha1.TalosMachine, error) {
	list := &v1alpha1.TalosMachineList{}
	err := d.kube.List(ctx, list, client.InNamespace(namespace))
	return list.Items, err
}

// controlPlanes are the names of those control planes that nobody has deleted.
func (d *Demo) controlPlanes(ctx context.Context) ([]string, error) {
	all, err := d.declared(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range all {
		if m := &all[i]; m.IsApprovedControlPlane(clusterName) && m.GetDeletionTimestamp() == nil {
			names = append(names, m.GetName())
		}
	}
	return names, nil
}

// condition wants a condition of a machine to have this reason.
func (d *Demo) condition(ctx context.Context, machine, kind, reason string) error {
	m, err := d.machine(ctx, machine)
	if err != nil {
		return err
	}
	for _, c := range m.Status.Conditions {
		if string(c.Type) != kind {
			continue
		}
		if string(c.Reason) != reason {
			return fmt.Errorf("condition %s of %s is %s/%s (%s), want reason %s", kind, machine, c.Status, c.Reason, c.Message, reason)
		}
		return nil
	}
	return fmt.Errorf("%s has no condition %s yet, want reason %s", machine, kind, reason)
}

// clusterHas wants so many approved control planes, every one of them a healthy voter, and a cluster that is Ready.
func (d *Demo) clusterHas(ctx context.Context, controlPlanes int) error {
	c, err := d.cluster(ctx)
	if err != nil {
		return err
	}
	ready, is := c.GetCondition("Ready"), c.Status.AtProvider.ControlPlanes
	if is.Approved != controlPlanes || is.Voters != controlPlanes || is.HealthyVoters != controlPlanes {
		return fmt.Errorf("of %d approved control planes %d are voters and %d of those healthy, want %d of each (Ready: %s)",
			is.Approved, is.Voters, is.HealthyVoters, controlPlanes, ready.Message)
	}
	if ready.Status != corev1.ConditionTrue {
		return fmt.Errorf("the cluster is not Ready: %s: %s", ready.Reason, ready.Message)
	}
	return nil
}

func (d *Demo) transitioning(ctx context.Context, want corev1.ConditionStatus) error {
	c, err := d.cluster(ctx)
	if err != nil {
		return err
	}
	if t := c.GetCondition(v1alpha1.TypeTransitioning); t.Status != want {
		return fmt.Errorf("condition Transitioning is %s (%s), want %s", t.Status, t.Reason, want)
	}
	return nil
}

// seen is the machine that a TalosMachine declares, as it is seen from outside of the product.
func (d *Demo) seen(ctx context.Context, name string) (lab.Machine, error) {
	m, err := d.machine(ctx, name)
	if err != nil {
		return lab.Machine{}, err
	}
	return d.lab.Fleet.At(ctx, m.Spec.ForProvider.Address)
}

// blank is a machine in maintenance mode that no TalosMachine declares.
func (d *Demo) blank(ctx context.Context) (lab.Machine, error) {
	all, err := d.lab.Fleet.Machines(ctx)
	if err != nil {
		return lab.Machine{}, err
	}
	declared, err := d.declared(ctx)
	if err != nil {
		return lab.Machine{}, err
	}
	taken := map[string]bool{}
	for i := range declared {
		taken[declared[i].Spec.ForProvider.Address] = true
	}
	for _, m := range all {
		if m.Stage == stageMaintenance && !taken[m.Address] {
			return m, nil
		}
	}
	return lab.Machine{}, fmt.Errorf("none of %d machines is blank and free", len(all))
}

// inStage wants so many machines to be in a stage.
func (d *Demo) inStage(ctx context.Context, stage string, want int) error {
	all, err := d.lab.Fleet.Machines(ctx)
	if err != nil {
		return err
	}
	n, there := 0, []string(nil)
	for _, m := range all {
		if m.Stage == stage {
			n++
		}
		there = append(there, m.Name+" "+m.Stage)
	}
	if n != want {
		return fmt.Errorf("%d machines are in stage %s, want %d: %s", n, stage, want, strings.Join(there, ", "))
	}
	return nil
}

// workload reaches the cluster that the demo makes, with the kubeconfig of its connection Secret.
func (d *Demo) workload(ctx context.Context) (kubernetes.Interface, error) {
	return story.Workload(ctx, d.kube, client.ObjectKey{Namespace: namespace, Name: connectionSecret})
}
