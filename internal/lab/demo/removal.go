package demo

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/lab"
	"github.com/maesh/provider-ichor/internal/lab/story"
)

// A removal is a machine that is about to be removed, as it was before.
type removal struct {
	name   string
	before lab.Machine
	// from is the number of the last call before.
	from         uint64
	controlPlane bool
	// told is what the removal was last seen to say.
	told string
}

// beginRemoval looks at a machine before its delete.
func (d *Demo) beginRemoval(ctx context.Context, name string) (*removal, error) {
	m, err := d.machine(ctx, name)
	if err != nil {
		return nil, err
	}
	before, err := d.seen(ctx, name)
	if err != nil {
		return nil, err
	}
	from, err := d.lab.Fleet.LastCall(ctx)
	return &removal{name: name, before: before, from: from, controlPlane: m.IsApprovedControlPlane(clusterName)}, err
}

// ends waits until a removal has come to its end, and looks at what it left.
func (d *Demo) ends(ctx context.Context, r *removal) error {
	err := d.await(ctx, r.name+" is gone", func(ctx context.Context) error { return d.gone(ctx, r) })
	if err != nil {
		return err
	}
	return d.left(ctx, r)
}

// gone wants the object to be gone, and shows what the removal says meanwhile.
func (d *Demo) gone(ctx context.Context, r *removal) error {
	m, err := d.machine(ctx, r.name)
	if kerrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	c := m.GetCondition(v1alpha1.TypeRemoval)
	if now := fmt.Sprintf("%s: %s", c.Reason, c.Message); c.Reason != "" && now != r.told {
		r.told = now
		d.sayf("        %s: %s\n", r.name, now)
	}
	return fmt.Errorf("its removal says: %s", r.told)
}

// left wants what a removal has to leave: a machine that left etcd before it was reset, that is blank in a new boot, and
// no Node.
func (d *Demo) left(ctx context.Context, r *removal) error {
	after, err := d.lab.Fleet.At(ctx, r.before.Address)
	if err != nil {
		return err
	}
	if after.Stage != stageMaintenance || after.BootID == r.before.BootID || after.UUID != r.before.UUID {
		return fmt.Errorf("machine %s is in stage %q of boot %s (it was in boot %s): it was not reset", after.Name, after.Stage, after.BootID, r.before.BootID)
	}
	calls, err := d.lab.Fleet.Changes(ctx, r.before.Name, r.from)
	if err != nil {
		return err
	}
	if err := story.InOrder(calls, r.controlPlane); err != nil {
		return err
	}
	kube, err := d.workload(ctx)
	if err != nil {
		return err
	}
	_, err = kube.CoreV1().Nodes().Get(ctx, r.before.Hostname, metav1.GetOptions{})
	if err == nil {
		return fmt.Errorf("the Node %q is still there", r.before.Hostname)
	}
	return client.IgnoreNotFound(err)
}

// serve waits until so many control planes serve. An even number is a change half done, and is said to be.
func (d *Demo) serve(ctx context.Context, controlPlanes int) error {
	transitioning := corev1.ConditionFalse
	if controlPlanes%2 == 0 {
		transitioning = corev1.ConditionTrue
	}
	what := fmt.Sprintf("%d voters are healthy and Transitioning is %s", controlPlanes, transitioning)
	return d.await(ctx, what, func(ctx context.Context) error {
		if err := d.clusterHas(ctx, controlPlanes); err != nil {
			return err
		}
		return d.transitioning(ctx, transitioning)
	})
}

const manifest = `apiVersion: ichor.maesh.dev/v1alpha1
kind: TalosMachine
metadata: {name: NAME, namespace: default}
spec:
  forProvider:
    clusterRef: {name: demo}
    role: ROLE
    approved: true
    address: ADDRESS
    install: {disk: /dev/sda}
`

// declare an approved machine on a blank one.
func (d *Demo) declare(ctx context.Context, name string, role v1alpha1.MachineRole) error {
	free, err := d.blank(ctx)
	if err != nil {
		return err
	}
	return d.apply(ctx, strings.NewReplacer("NAME", name, "ROLE", string(role), "ADDRESS", free.Address).Replace(manifest))
}

// anotherJoins adds a control plane under the next name that is free.
func (d *Demo) anotherJoins(ctx context.Context) error {
	names, err := d.controlPlanes(ctx)
	if err != nil {
		return err
	}
	d.joined++
	if err := d.declare(ctx, fmt.Sprintf("cp-%d", firstReplacement+d.joined), v1alpha1.RoleControlPlane); err != nil {
		return err
	}
	return d.serve(ctx, len(names)+1)
}
