package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/maesh/provider-ichor/internal/lab/story"
	"github.com/maesh/provider-ichor/internal/talos"
)

const (
	// rackLabel is something that Talos changes while it runs.
	rackLabel = "topology.example.org/rack"
	// envName is something that Talos changes only with a reboot.
	envName  = "DEMO"
	envPatch = `{"spec":{"forProvider":{"configPatches":[{"scope":"ControlPlane","inline":"machine:\n  env:\n    DEMO: reboots\n"}]}}}`
)

func (d *Demo) changeWithoutReboot(ctx context.Context) error {
	before, err := d.seen(ctx, "worker-1")
	if err != nil {
		return err
	}
	from, err := d.lab.Fleet.LastCall(ctx)
	if err != nil {
		return err
	}
	if _, err := d.kubectl(ctx, "patch", "talosmachine", "worker-1", "--type=merge", "-p", `{"spec":{"forProvider":{"node":{"labels":{"`+rackLabel+`":"r1"}}}}}`); err != nil {
		return err
	}
	err = d.await(ctx, "worker-1 runs the changed configuration and its Node shows it", func(ctx context.Context) error {
		runs, err := d.runs(ctx, before.Address)
		if err != nil {
			return err
		}
		if got := runs.Machine().NodeLabels()[rackLabel]; got != "r1" {
			return fmt.Errorf("the machine runs with label %s=%q", rackLabel, got)
		}
		return d.nodeHasLabel(ctx, before.Hostname, "r1")
	})
	if err != nil {
		return err
	}
	sent, err := d.lab.Fleet.Changes(ctx, before.Name, from)
	if err != nil {
		return err
	}
	after, err := d.seen(ctx, "worker-1")
	if err != nil {
		return err
	}
	if after.BootID != before.BootID || count(sent, story.CallReboot) > 0 {
		return errors.New("the machine was rebooted")
	}
	return nil
}

// runs is the configuration that a machine runs, as it tells itself to whoever has the talosconfig of the connection Secret.
func (d *Demo) runs(ctx context.Context, address string) (config.Config, error) {
	s := &corev1.Secret{}
	if err := d.object(ctx, connectionSecret, s); err != nil {
		return nil, fmt.Errorf("cannot get the connection Secret: %w", err)
	}
	credentials, err := talos.ParseTalosconfig(s.Data["talosconfig"])
	if err != nil {
		return nil, err
	}
	pool := talos.NewPool(talos.Options{})
	defer pool.Close()
	runs, err := pool.Machine(address, credentials).Config(ctx)
	if err != nil {
		return nil, err
	}
	provider, err := configloader.NewFromBytes(runs.Active)
	if err != nil {
		return nil, fmt.Errorf("cannot read what %s runs: %w", address, err)
	}
	return provider, nil
}

func (d *Demo) nodeHasLabel(ctx context.Context, node, want string) error {
	kube, err := d.workload(ctx)
	if err != nil {
		return err
	}
	n, err := kube.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if got := n.Labels[rackLabel]; got != want {
		return fmt.Errorf("Node %s has label %s=%q, want %q", node, rackLabel, got, want) //nolint:staticcheck // the kind
	}
	return nil
}

// changeWithReboot changes what all control planes run. A machine that runs the change has been rebooted by the end, and a
// rebootWatch has looked on.
func (d *Demo) changeWithReboot(ctx context.Context) error {
	names, err := d.controlPlanes(ctx)
	if err != nil {
		return err
	}
	w, err := d.watchReboots(ctx, names)
	if err != nil {
		return err
	}
	defer w.stop()
	if _, err := d.kubectl(ctx, "patch", "taloscluster", clusterName, "--type=merge", "-p", envPatch); err != nil {
		return err
	}
	err = d.await(ctx, "every control plane runs the change and is in service again", func(ctx context.Context) error {
		if err := w.broken(); err != nil {
			return nil //nolint:nilerr // Told below, without waiting any longer.
		}
		for _, name := range names {
			if err := d.rebooted(ctx, name); err != nil {
				return err
			}
		}
		return d.clusterHas(ctx, len(names))
	})
	if err != nil {
		return err
	}
	w.stop()
	for _, r := range w.order {
		d.sayf("        %s was rebooted: emptied before, lock held, back after %s\n", r.machine, r.took.Round(100*time.Millisecond))
	}
	return w.verdict(len(names))
}

// rebooted wants a machine to run the change, and its Node to take pods again.
func (d *Demo) rebooted(ctx context.Context, name string) error {
	m, err := d.seen(ctx, name)
	if err != nil {
		return err
	}
	if m.Stage != stageRunning || !m.Ready {
		return fmt.Errorf("%s is in stage %q", name, m.Stage)
	}
	runs, err := d.runs(ctx, m.Address)
	if err != nil {
		return err
	}
	if runs.Machine().Env()[envName] == "" {
		return fmt.Errorf("%s does not run the change", name)
	}
	kube, err := d.workload(ctx)
	if err != nil {
		return err
	}
	n, err := kube.CoreV1().Nodes().Get(ctx, m.Hostname, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if n.Spec.Unschedulable || !story.IsReady(n) {
		return fmt.Errorf("Node %s is cordoned or not Ready", m.Hostname) //nolint:staticcheck // the kind
	}
	return nil
}
