package lab

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// patience is how long the demo waits for what takes a machine a few boots.
const patience = 4 * time.Minute

func (d *Demo) checks() []check {
	return []check{
		{"five blank machines answer in maintenance mode", d.blankMachines},
		{"nothing is sent to a machine that is not approved", d.nothingBeforeApproval},
		{"once approved, three voters start and Bootstrap is sent exactly once", d.comesUp},
		{"the kubeconfig of the connection Secret lists every Node as Ready", d.nodesReady},
		{"the delete of a control plane that nobody allowed is refused", d.deleteNotAllowed},
		{"with permission, at three of three, it is refused with the way out", d.deleteBelowCount},
		{"a worker is drained, reset and gone", d.removeWorker},
		{"a fourth control plane joins, and the cluster is in transition", d.fourthJoins},
		{"the second control plane is removed: leave, reset, blank, gone", d.removeSecond},
		{"the cluster is deleted: every machine ends blank, and nothing remains", d.teardown},
	}
}

func (d *Demo) blankMachines(ctx context.Context) error {
	return await(ctx, "five machines are in maintenance mode", time.Minute, func(ctx context.Context) error {
		return d.countStage(ctx, "maintenance", 5)
	})
}

func (d *Demo) countStage(ctx context.Context, stage string, want int) error {
	ms, err := d.lab.Fleet.Machines(ctx)
	if err != nil {
		return err
	}
	var there []string
	n := 0
	for _, m := range ms {
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

func (d *Demo) nothingBeforeApproval(ctx context.Context) error {
	if _, err := d.kubectl(ctx, "apply", "-f", example("providerconfig.yaml"), "-f", example("cluster.yaml"), "-f", example("machines.yaml")); err != nil {
		return err
	}
	err := await(ctx, "every machine says that it awaits approval", patience, func(ctx context.Context) error {
		for _, name := range []string{"cp-1", "cp-2", "cp-3", "worker-1"} {
			if err := d.condition(ctx, name, "Ready", string(v1alpha1.ReasonAwaitingApproval)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	sent, err := d.mutations(ctx)
	if err != nil {
		return err
	}
	if len(sent) > 0 {
		return fmt.Errorf("%s was sent to %s", sent[0].Method, sent[0].Machine)
	}
	return nil
}

func (d *Demo) condition(ctx context.Context, machine, kind, reason string) error {
	m, err := d.machine(ctx, machine)
	if err != nil {
		return err
	}
	for _, c := range m.Status.Conditions {
		if string(c.Type) == kind {
			if string(c.Reason) != reason {
				return fmt.Errorf("condition %s of %s is %s/%s (%s), want reason %s", kind, machine, c.Status, c.Reason, c.Message, reason)
			}
			return nil
		}
	}
	return fmt.Errorf("%s has no condition %s yet, want reason %s", machine, kind, reason)
}

func (d *Demo) comesUp(ctx context.Context) error {
	_, err := d.kubectl(ctx, "patch", "talosmachines", "cp-1", "cp-2", "cp-3", "worker-1", "--type=merge", "-p", `{"spec":{"forProvider":{"approved":true}}}`)
	if err != nil {
		return err
	}
	err = await(ctx, "three voters are healthy and the cluster is Ready", patience, func(ctx context.Context) error {
		return d.clusterHas(ctx, 3, 3)
	})
	if err != nil {
		return err
	}
	sent, err := d.mutations(ctx)
	if err != nil {
		return err
	}
	n := 0
	for _, r := range sent {
		if strings.HasSuffix(r.Method, "/Bootstrap") {
			n++
		}
	}
	if n != 1 {
		return fmt.Errorf("machines were sent %d calls of Bootstrap, not 1", n)
	}
	return nil
}

func (d *Demo) cluster(ctx context.Context) (*v1alpha1.TalosCluster, error) {
	c := &v1alpha1.TalosCluster{}
	err := d.kube.Get(ctx, client.ObjectKey{Namespace: "default", Name: "demo"}, c)
	return c, err
}

func (d *Demo) clusterHas(ctx context.Context, approved, healthy int) error {
	c, err := d.cluster(ctx)
	if err != nil {
		return err
	}
	cps := c.Status.AtProvider.ControlPlanes
	if cps.Approved != approved || cps.Voters != healthy || cps.HealthyVoters != healthy {
		return fmt.Errorf("%d approved, %d voters, %d of them healthy; want %d approved and %d healthy voters (Ready: %s)",
			cps.Approved, cps.Voters, cps.HealthyVoters, approved, healthy, c.GetCondition("Ready").Message)
	}
	if ready := c.GetCondition("Ready"); ready.Status != corev1.ConditionTrue {
		return fmt.Errorf("the cluster is not Ready: %s: %s", ready.Reason, ready.Message)
	}
	return nil
}

func (d *Demo) nodesReady(ctx context.Context) error {
	return await(ctx, "four Nodes are Ready", patience, func(ctx context.Context) error {
		kube, err := d.workload(ctx)
		if err != nil {
			return err
		}
		nodes, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready := 0
		for _, n := range nodes.Items {
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}
		if ready != 4 {
			return fmt.Errorf("%d of %d Nodes are Ready", ready, len(nodes.Items))
		}
		return nil
	})
}

func (d *Demo) deleteNotAllowed(ctx context.Context) error {
	return d.refused(ctx, []string{"NotAllowed", v1alpha1.AnnotationAllowDelete}, "delete", "talosmachine", "cp-2", "--wait=false")
}

func (d *Demo) allow(ctx context.Context, kind, name string) error {
	_, err := d.kubectl(ctx, "annotate", kind, name, v1alpha1.AnnotationAllowDelete+"=true", "--overwrite")
	return err
}

func (d *Demo) deleteBelowCount(ctx context.Context) error {
	if err := d.allow(ctx, "talosmachine", "cp-2"); err != nil {
		return err
	}
	return d.refused(ctx, []string{"BelowDeclaredCount", "Approve a replacement first"}, "delete", "talosmachine", "cp-2", "--wait=false")
}

// remove deletes a machine and waits until its object is gone and the machine is blank.
func (d *Demo) remove(ctx context.Context, name, simulated string) error {
	before, err := d.seen(ctx, simulated)
	if err != nil {
		return err
	}
	if err := d.allow(ctx, "talosmachine", name); err != nil {
		return err
	}
	if _, err := d.kubectl(ctx, "delete", "talosmachine", name, "--wait=false"); err != nil {
		return err
	}
	last := ""
	err = await(ctx, name+" is gone", patience, func(ctx context.Context) error {
		m, err := d.machine(ctx, name)
		if kerrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		c := m.GetCondition(v1alpha1.TypeRemoval)
		if now := fmt.Sprintf("%s: %s", c.Reason, c.Message); now != last {
			last = now
			fmt.Fprintf(d.out, "        Removal of %s: %s\n", name, now)
		}
		return fmt.Errorf("removal: %s", last)
	})
	if err != nil {
		return err
	}
	after, err := d.seen(ctx, simulated)
	if err != nil {
		return err
	}
	if after.Stage != "maintenance" || after.BootID == before.BootID {
		return fmt.Errorf("machine %s is in stage %s of boot %s (it was %s in boot %s): it was not reset", simulated, after.Stage, after.BootID, before.Stage, before.BootID)
	}
	return nil
}

// seen is a machine as it is seen from outside of the product.
func (d *Demo) seen(ctx context.Context, name string) (Machine, error) {
	ms, err := d.lab.Fleet.Machines(ctx)
	if err != nil {
		return Machine{}, err
	}
	for _, m := range ms {
		if m.Name == name {
			return m, nil
		}
	}
	return Machine{}, fmt.Errorf("the fleet has no machine %q", name)
}

func (d *Demo) removeWorker(ctx context.Context) error { return d.remove(ctx, "worker-1", "m4") }

func (d *Demo) fourthJoins(ctx context.Context) error {
	if _, err := d.kubectl(ctx, "apply", "-f", example("replacement.yaml")); err != nil {
		return err
	}
	return await(ctx, "four voters are healthy and Transitioning is True", patience, func(ctx context.Context) error {
		if err := d.clusterHas(ctx, 4, 4); err != nil {
			return err
		}
		return d.transitioning(ctx, corev1.ConditionTrue)
	})
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

func (d *Demo) removeSecond(ctx context.Context) error {
	if err := d.remove(ctx, "cp-2", "m2"); err != nil {
		return err
	}
	return await(ctx, "three voters are healthy and Transitioning is False", patience, func(ctx context.Context) error {
		if err := d.clusterHas(ctx, 3, 3); err != nil {
			return err
		}
		return d.transitioning(ctx, corev1.ConditionFalse)
	})
}

func (d *Demo) teardown(ctx context.Context) error {
	if err := d.allow(ctx, "taloscluster", "demo"); err != nil {
		return err
	}
	if _, err := d.kubectl(ctx, "delete", "taloscluster", "demo", "--wait=false"); err != nil {
		return err
	}
	return await(ctx, "every machine is blank and nothing remains", patience, func(ctx context.Context) error {
		if c, err := d.cluster(ctx); !kerrors.IsNotFound(err) {
			if err != nil {
				return err
			}
			return fmt.Errorf("the TalosCluster is still there: %s%s", c.GetCondition(v1alpha1.TypeRemoval).Message, d.removals(ctx))
		}
		ms := &v1alpha1.TalosMachineList{}
		if err := d.kube.List(ctx, ms); err != nil {
			return err
		}
		if len(ms.Items) > 0 {
			return fmt.Errorf("%d TalosMachines are still there", len(ms.Items))
		}
		secrets := &corev1.SecretList{}
		if err := d.kube.List(ctx, secrets, client.InNamespace("default")); err != nil {
			return err
		}
		if len(secrets.Items) > 0 {
			return fmt.Errorf("the Secret %q is still there", secrets.Items[0].Name)
		}
		return d.countStage(ctx, "maintenance", 5)
	})
}

// removals says where the removal of every machine is.
func (d *Demo) removals(ctx context.Context) string {
	ms := &v1alpha1.TalosMachineList{}
	if err := d.kube.List(ctx, ms); err != nil {
		return "; " + err.Error()
	}
	var out strings.Builder
	for i := range ms.Items {
		m := &ms.Items[i]
		c, s := m.GetCondition(v1alpha1.TypeRemoval), m.GetCondition("Synced")
		fmt.Fprintf(&out, "; %s: %s: %s (%s)", m.GetName(), c.Reason, c.Message, s.Message)
	}
	return out.String()
}
