package demo

import (
	"context"
	"fmt"
	"strings"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/lab"
	"github.com/maesh/provider-ichor/internal/lab/story"
)

// Machines is how many machines the demo needs. Those that were reset are used again.
const Machines = 5

func (d *Demo) blankMachines(ctx context.Context) error {
	return d.await(ctx, "all machines are in maintenance mode", func(ctx context.Context) error {
		return d.inStage(ctx, stageMaintenance, Machines)
	})
}

func (d *Demo) nothingBeforeApproval(ctx context.Context) error {
	if _, err := d.kubectl(ctx, "apply", "-f", example("providerconfig.yaml"), "-f", example("cluster.yaml"), "-f", example("machines.yaml")); err != nil {
		return err
	}
	err := d.await(ctx, "every machine says that it awaits approval", func(ctx context.Context) error {
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
	sent, err := d.lab.Fleet.Changes(ctx, "", 0)
	if err != nil {
		return err
	}
	if len(sent) > 0 {
		return fmt.Errorf("%s was sent to %s", sent[0].Method, sent[0].Machine)
	}
	return nil
}

func (d *Demo) comesUp(ctx context.Context) error {
	_, err := d.kubectl(ctx, "patch", "talosmachines", "cp-1", "cp-2", "cp-3", "worker-1", "--type=merge", "-p", `{"spec":{"forProvider":{"approved":true}}}`)
	if err != nil {
		return err
	}
	err = d.await(ctx, "three voters are healthy and the cluster is Ready", func(ctx context.Context) error {
		return d.clusterHas(ctx, 3)
	})
	if err != nil {
		return err
	}
	sent, err := d.lab.Fleet.Changes(ctx, "", 0)
	if err != nil {
		return err
	}
	if n := count(sent, story.CallBootstrap); n != 1 {
		return fmt.Errorf("the call Bootstrap was sent %d times", n)
	}
	return d.watchEtcd(ctx)
}

func count(calls []lab.RPC, method string) int {
	n := 0
	for _, c := range calls {
		if c.Method == method {
			n++
		}
	}
	return n
}

func (d *Demo) nodesReady(ctx context.Context) error {
	err := d.await(ctx, "kubectl wait can tell that four Nodes are Ready", func(ctx context.Context) error {
		return d.nodes(ctx, 4)
	})
	if err != nil {
		return err
	}
	text, err := d.kubectlDemo(ctx, "", "get", "nodes", "--no-headers")
	if err != nil {
		return err
	}
	ready := 0
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 && f[1] == "Ready" {
			ready++
		}
	}
	if ready != 4 {
		return fmt.Errorf("kubectl lists %d Nodes as Ready, want 4", ready)
	}
	return nil
}
