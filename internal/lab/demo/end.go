package demo

import (
	"context"
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

func (d *Demo) teardown(ctx context.Context) error {
	if err := d.allow(ctx, "taloscluster", clusterName); err != nil {
		return err
	}
	if _, err := d.kubectl(ctx, "delete", "taloscluster", clusterName, "--wait=false"); err != nil {
		return err
	}
	return d.await(ctx, "every machine is blank and nothing remains", func(ctx context.Context) error {
		if err := d.nothingRemains(ctx); err != nil {
			return fmt.Errorf("%w%s", err, d.removals(ctx))
		}
		return d.inStage(ctx, stageMaintenance, Machines)
	})
}

func (d *Demo) nothingRemains(ctx context.Context) error {
	if c, err := d.cluster(ctx); !kerrors.IsNotFound(err) {
		if err != nil {
			return err
		}
		return fmt.Errorf("the TalosCluster is still there: %s", c.GetCondition(v1alpha1.TypeRemoval).Message)
	}
	for _, list := range []client.ObjectList{
		&v1alpha1.TalosMachineList{}, &v1alpha1.ProviderConfigUsageList{}, &corev1.SecretList{}, &coordinationv1.LeaseList{},
	} {
		if err := d.kube.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		if n := meta.LenList(list); n > 0 {
			return fmt.Errorf("a %T still has %d objects", list, n)
		}
	}
	return nil
}

// removals says where the removal of every machine is.
func (d *Demo) removals(ctx context.Context) string {
	all, err := d.declared(ctx)
	if err != nil {
		return "; " + err.Error()
	}
	var out strings.Builder
	for i := range all {
		m := &all[i]
		c, s := m.GetCondition(v1alpha1.TypeRemoval), m.GetCondition("Synced")
		fmt.Fprintf(&out, "; %s: %s: %s (%s)", m.GetName(), c.Reason, c.Message, s.Message)
	}
	return out.String()
}
