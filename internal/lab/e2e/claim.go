package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	topology "github.com/maesh/provider-ichor/apis/topology/v1alpha1"
	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/lab"
	"github.com/maesh/provider-ichor/internal/lab/story"
)

// What the example of a claim names.
const (
	claimName   = "three"
	claimSecret = "three-connection"
	// singleName is that of the example without a claim.
	singleName = "single"
	// spare is the address of a machine that no example uses, and freed that of the one that the replacement frees.
	spare, freed = "127.10.0.16", "127.10.0.12"
)

// claimed writes the claim, and waits until it says that it is Ready and the world agrees.
func (e *E2E) claimed(ctx context.Context) (err error) {
	if e.claim, err = e.example("three-control-planes-claim.yaml"); err != nil {
		return err
	}
	if err := e.write(ctx, e.claim); err != nil {
		return err
	}
	if err := e.await(ctx, "the claim is Ready", e.claimReady); err != nil {
		return err
	}
	if err := e.voters(ctx, 3); err != nil {
		return err
	}
	sent, err := e.lab.Fleet.Changes(ctx, "", 0)
	if err != nil {
		return err
	}
	if n := count(sent, story.CallBootstrap); n != 1 {
		return fmt.Errorf("the call Bootstrap was sent %d times", n)
	}
	return nil
}

// claimReady wants the claim to be Ready, and each of its machines.
func (e *E2E) claimReady(ctx context.Context) error {
	c, err := e.topology(ctx, topology.KindClaim, claimName)
	if err != nil {
		return err
	}
	for _, kind := range []string{topology.TypeClusterReady, topology.TypeMachinesReady, "Ready"} {
		if err := wants(c, kind, corev1.ConditionTrue); err != nil {
			return err
		}
	}
	return nil
}

// voters wants the cluster of the claim to have so many control planes, each a healthy voter of etcd, and the machines to
// agree.
func (e *E2E) voters(ctx context.Context, want int) error {
	c := &v1alpha1.TalosCluster{}
	if err := e.object(ctx, claimName, c); err != nil {
		return err
	}
	is := c.Status.AtProvider.ControlPlanes
	if is.Approved != want || is.Voters != want || is.HealthyVoters != want {
		return fmt.Errorf("of %d approved control planes %d are voters and %d of those healthy, want %d of each", is.Approved, is.Voters, is.HealthyVoters, want)
	}
	all, err := e.lab.Fleet.Machines(ctx)
	if err != nil {
		return err
	}
	healthy := 0
	for _, m := range all {
		if m.EtcdHealthy {
			healthy++
		}
	}
	if healthy != want {
		return fmt.Errorf("etcd is healthy on %d machines, want %d", healthy, want)
	}
	return nil
}

func (e *E2E) nodesReady(ctx context.Context) error {
	return e.await(ctx, "four Nodes are Ready", func(ctx context.Context) error { return e.nodes(ctx, claimSecret, 4) })
}

// atRest counts writes to managed resources by their versions. Making a cluster is a burst of events, for which core may have
// stopped to take all of them; from then on there are none.
func (e *E2E) atRest(ctx context.Context) error {
	if err := e.await(ctx, "the topology is Responsive", e.responsive); err != nil {
		return err
	}
	if err := e.settled(ctx); err != nil {
		return err
	}
	if err := e.quiet(ctx, 5*poll+time.Second); err != nil {
		return err
	}
	return e.responsive(ctx)
}

// responsive wants core to take every event of the topology's parts.
func (e *E2E) responsive(ctx context.Context) error {
	c, err := e.topology(ctx, topology.KindClaim, claimName)
	if err != nil {
		return err
	}
	x, err := e.topology(ctx, topology.KindLegacyTopology, compositeOf(c))
	if err != nil {
		return err
	}
	return wants(x, "Responsive", corev1.ConditionTrue)
}

// settled waits until what the last change has left to say is said.
func (e *E2E) settled(ctx context.Context) error {
	err := e.quiet(ctx, 2*poll)
	if err == nil {
		return nil
	}
	e.sayf("        %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	return e.quiet(ctx, 2*poll)
}

// quiet wants no write to any managed resource for a while.
func (e *E2E) quiet(ctx context.Context, d time.Duration) error {
	before, err := e.versions(ctx)
	if err != nil {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	after, err := e.versions(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for name, version := range after {
		if before[name] != version {
			errs = append(errs, fmt.Errorf("%s was written within %s", name, d))
		}
	}
	return errors.Join(errs...)
}

// versions of all managed resources. Each write makes a new one.
func (e *E2E) versions(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	clusters := &v1alpha1.TalosClusterList{}
	if err := e.kube.List(ctx, clusters); err != nil {
		return nil, err
	}
	for i := range clusters.Items {
		out["TalosCluster "+clusters.Items[i].GetName()] = clusters.Items[i].GetResourceVersion()
	}
	machines, err := e.machines(ctx)
	if err != nil {
		return nil, err
	}
	for i := range machines {
		out["TalosMachine "+machines[i].GetName()] = machines[i].GetResourceVersion()
	}
	if len(machines) == 0 {
		return nil, errors.New("there are no machines")
	}
	return out, nil
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
