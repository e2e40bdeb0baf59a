package talosmachine

import (
	"context"
	"fmt"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/act"
	"github.com/maesh/provider-ichor/internal/decide/facts"
)

// configure gives a blank machine its first configuration, with the keys of the cluster in it. All that could make that a
// mistake is read afresh first: a cache may not have heard yet that the machine is to go, or that it is declared twice.
// A pass that ended after the call and before the UUID was pinned is no harm: the machine is adopted by its configuration.
func (e *external) configure(ctx context.Context, mg *v1alpha1.TalosMachine) error {
	if e.doors == nil || e.seen.Live.Mode != facts.Maintenance {
		return errors.New("the machine is not known to be blank")
	}
	if err := e.mayConfigure(ctx, mg); err != nil {
		return err
	}
	uuid := strings.ToLower(e.seen.Live.UUID)
	if pinned := mg.PinnedUUID(); pinned != "" {
		uuid = pinned
	}
	config, err := e.render(ctx, mg, e.seen.Live.TalosVersion)
	if err != nil {
		return err
	}
	p := mg.Spec.ForProvider
	target := act.Target{ID: idOf(mg), Name: mg.GetName(), UUID: uuid}
	if err := act.FirstConfig(ctx, target, e.doors.Maintenance(p.Address, p.MaintenanceFingerprint), config); err != nil {
		return err
	}
	meta.SetExternalName(mg, uuid)
	return nil
}

// mayConfigure returns an error unless the machine may be given its first configuration now.
func (e *external) mayConfigure(ctx context.Context, mg *v1alpha1.TalosMachine) error {
	now := &v1alpha1.TalosMachine{}
	if err := e.reader.Get(ctx, client.ObjectKeyFromObject(mg), now); err != nil {
		return errors.Wrap(err, "cannot get the TalosMachine")
	}
	record, err := now.RemovalRecord()
	if err != nil {
		return err
	}
	switch {
	case now.GetUID() != mg.GetUID() || meta.WasDeleted(now):
		return fmt.Errorf("TalosMachine %q is being deleted: nothing is sent to it", mg.GetName())
	case !now.Spec.ForProvider.Approved:
		return fmt.Errorf("TalosMachine %q is not approved: nothing is sent to it", mg.GetName())
	case record != nil:
		return fmt.Errorf("TalosMachine %q was removed from its cluster, or is about to be: nothing is sent to it", mg.GetName())
	}
	cluster := &v1alpha1.TalosCluster{}
	if err := e.reader.Get(ctx, clusterOf(mg), cluster); err != nil {
		return errors.Wrap(err, "cannot get the TalosCluster")
	}
	if meta.WasDeleted(cluster) {
		return fmt.Errorf("TalosCluster %q is being deleted: nothing is sent to a blank machine", cluster.GetName())
	}
	f, err := e.survey.Objects(ctx, clusterOf(mg))
	if err != nil {
		return errors.Wrap(err, "cannot read the machines of the cluster")
	}
	if err := singular(mg, f); err != nil {
		return err
	}
	return namesake(mg, f)
}

// namesake returns an error if another machine of the cluster is declared with the same hostname: Talos takes a member of etcd
// of its own name for its former self when it joins, and throws it out, which no guard would have let through.
func namesake(mg *v1alpha1.TalosMachine, f facts.Cluster) error {
	m, ok := f.Machine(idOf(mg))
	if !ok || len(m.SameHostname) == 0 {
		return nil
	}
	message := fmt.Sprintf("Hostname %q is declared for %s as well: the two would have one Node between them, and one that joins etcd would throw the other one out of it. "+
		"The configuration of neither is changed. Set another spec.forProvider.hostname, or remove one of them first", mg.Hostname(), strings.Join(m.SameHostname, ", "))
	mark(mg, xpv2.TypeReady, corev1.ConditionFalse, xpv2.ReasonUnavailable, message)
	return errors.New(message)
}
