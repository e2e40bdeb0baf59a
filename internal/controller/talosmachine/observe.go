package talosmachine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/configchange"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/machineconfig"
	"github.com/maesh/provider-ichor/internal/survey"
)

// roleInit is what old clusters call their first control plane.
const roleInit = "init"

// sight is what Observe found in a pass.
type sight struct {
	survey.Observation
	// desired is the configuration that is declared.
	desired []byte
	// config is how what the machine runs compares to it.
	config configchange.Config
	// ours is true if a disruption of this machine holds the lock; cordoned is true if one has cordoned its Node.
	ours, cordoned bool
}

// observeUnapproved looks at a machine that nobody approved yet, so that a person can see what would be approved. It
// exists and is up to date as far as Crossplane is concerned, or Create would be called, which must send nothing.
func (e *external) observeUnapproved(ctx context.Context, mg *v1alpha1.TalosMachine) (managed.ExternalObservation, error) {
	mark(mg, xpv2.TypeReady, corev1.ConditionFalse, v1alpha1.ReasonAwaitingApproval,
		"Nothing is sent to the machine before spec.forProvider.approved is true")
	mark(mg, v1alpha1.TypeRemovable, corev1.ConditionTrue, v1alpha1.ReasonNothingToUndo, "The machine was never approved")
	if e.doors == nil {
		return upToDate, nil
	}
	o, err := e.doors.Look(ctx, mg)
	if err != nil {
		markUnreachable(mg, err)
		return upToDate, nil // A machine that is not up yet is no failure before it is approved.
	}
	showLive(mg, o)
	return upToDate, nil
}

// observeRemoved is for a machine that went with its cluster and whose object is still there. If the process ended between
// the last two steps the lock is still held, and no other machine of the cluster could go.
func (e *external) observeRemoved(ctx context.Context, mg *v1alpha1.TalosMachine) (managed.ExternalObservation, error) {
	e.marker.removed(mg)
	mark(mg, xpv2.TypeReady, corev1.ConditionFalse, v1alpha1.ReasonRemoved, "The machine was removed from its cluster")
	held, _, err := e.gate.HeldBy(ctx, clusterOf(mg), holderOf(mg, purposeRemoval))
	return managed.ExternalObservation{ResourceExists: true, ResourceUpToDate: !held}, err
}

// observeWithoutCluster is for a machine whose cluster has no PKI. A machine that was never configured waits for it.
func (e *external) observeWithoutCluster(mg *v1alpha1.TalosMachine) (managed.ExternalObservation, error) {
	if meta.GetExternalName(mg) != "" {
		return managed.ExternalObservation{}, errors.Wrap(e.shut, "cannot open the machine")
	}
	mark(mg, xpv2.TypeReady, corev1.ConditionFalse, v1alpha1.ReasonAwaitingCluster, sentence(e.shut))
	return upToDate, nil
}

// observe looks at an approved machine.
func (e *external) observe(ctx context.Context, mg *v1alpha1.TalosMachine) (managed.ExternalObservation, error) {
	ours, _, err := e.gate.HeldBy(ctx, clusterOf(mg), holderOf(mg, purposeReboot))
	if err != nil {
		return managed.ExternalObservation{}, err
	}
	if ours {
		e.wait(mg) // A disruption of our own is looked after at its own pace, above all while the machine reboots.
	}
	o, err := e.doors.Look(ctx, mg)
	if err != nil {
		mark(mg, xpv2.TypeReady, corev1.ConditionFalse, xpv2.ReasonUnavailable, sentence(err))
		// Whether it can be removed is for the other machines to say, and asked above all of one that is dead.
		if f, surveyErr := e.survey.Overview(ctx, clusterOf(mg), 0); surveyErr == nil {
			e.showFacts(mg, f)
		}
		markUnreachable(mg, err) // Last: the overview may have been made while it still answered.
		return managed.ExternalObservation{}, errors.Wrap(err, "cannot look at the machine")
	}
	showLive(mg, o)
	if err := identify(mg, o.Live.UUID); err != nil {
		mark(mg, xpv2.TypeReady, corev1.ConditionFalse, xpv2.ReasonUnavailable, err.Error())
		return managed.ExternalObservation{}, err
	}
	f, err := e.survey.Overview(ctx, clusterOf(mg), e.rest)
	if err != nil {
		return managed.ExternalObservation{}, errors.Wrap(err, "cannot survey the cluster")
	}
	f = withLive(f, idOf(mg), o.Live)
	e.showFacts(mg, f)
	if err := singular(mg, f); err != nil {
		return managed.ExternalObservation{}, err
	}
	e.seen = sight{Observation: o, ours: ours}
	if o.Live.Mode == facts.Maintenance {
		return e.observeBlank(mg, f)
	}
	return e.observeConfigured(ctx, mg, f)
}

// observeBlank is for a machine in maintenance mode. It does not exist yet, as far as Crossplane is concerned, so that
// Create is called. The exception is a control plane whose etcd member outlived its disk: Talos would put a new member in
// the place of the old one on its own, past every guard.
func (e *external) observeBlank(mg *v1alpha1.TalosMachine, f facts.Cluster) (managed.ExternalObservation, error) {
	markBlank(mg)
	m, _ := f.Machine(idOf(mg))
	if listed(f, m.LastMember) {
		message := "The machine is blank although etcd still lists its member. Delete this TalosMachine to remove the member, and declare the machine anew"
		mark(mg, xpv2.TypeReady, corev1.ConditionFalse, xpv2.ReasonUnavailable, message)
		return managed.ExternalObservation{}, errors.New(message)
	}
	if err := namesake(mg, f); err != nil {
		return managed.ExternalObservation{}, err
	}
	mark(mg, xpv2.TypeReady, corev1.ConditionFalse, xpv2.ReasonCreating, "The machine waits for its configuration")
	if e.cluster.GetDeletionTimestamp() != nil {
		mark(mg, xpv2.TypeReady, corev1.ConditionFalse, v1alpha1.ReasonAwaitingCluster, "The TalosCluster is being deleted: nothing is sent to a blank machine")
		return upToDate, nil
	}
	return managed.ExternalObservation{ResourceExists: false}, nil
}

// listed tells whether any member of etcd still lists the given one.
func listed(f facts.Cluster, id facts.MemberID) bool {
	if id == 0 {
		return false
	}
	return slices.ContainsFunc(f.Etcd.Views, func(v facts.View) bool {
		members, _ := v.Members.Get()
		return slices.ContainsFunc(members, func(m facts.Member) bool { return m.ID == id })
	})
}

// observeConfigured compares what a machine of the cluster runs to what is declared.
func (e *external) observeConfigured(ctx context.Context, mg *v1alpha1.TalosMachine, f facts.Cluster) (managed.ExternalObservation, error) {
	late, err := e.adopt(mg)
	if err != nil {
		return managed.ExternalObservation{}, err
	}
	if err := e.compare(ctx, mg); err != nil {
		mark(mg, v1alpha1.TypeConfigApplied, corev1.ConditionFalse, v1alpha1.ReasonConfigRejected, sentence(err))
		markReady(mg, e.seen.Observation, f, e.marker.clock.Now())
		return managed.ExternalObservation{}, err
	}
	markReady(mg, e.seen.Observation, f, e.marker.clock.Now())
	state := markConfig(mg, e.seen.config)
	// A Node that we cordoned, or a lock that we hold, is a reboot that is not finished.
	m, _ := f.Machine(idOf(mg))
	node, _ := m.Node.Get()
	e.seen.cordoned = node.Ours
	unfinished := node.Ours || e.seen.ours
	return managed.ExternalObservation{
		ResourceExists:          true,
		ResourceUpToDate:        (state == configchange.InSync || state == configchange.Unknown) && !unfinished,
		ResourceLateInitialized: late,
		Diff:                    mg.Status.AtProvider.Config.Diff,
	}, nil
}

// adopt takes a machine with our configuration as the one that this object declares. With a pinned UUID it has proved
// to be it. Without one, as when the object was restored without its annotations, its configuration must name this
// cluster, role and hostname. The UUID is pinned from then on, by Crossplane's late initialization.
func (e *external) adopt(mg *v1alpha1.TalosMachine) (late bool, err error) {
	uuid := strings.ToLower(e.seen.Live.UUID)
	if meta.GetExternalName(mg) != "" {
		return false, nil
	}
	if mg.PinnedUUID() == "" {
		if err := e.sameConfig(mg); err != nil {
			message := fmt.Sprintf("A configured machine answers at %s, and it is not the one that is declared: %s. Nothing is sent to it. "+
				"Correct the declaration, pin the machine with spec.forProvider.uuid, or reset it", mg.Spec.ForProvider.Address, err)
			notItself(mg, v1alpha1.ReasonForeignCluster, message)
			mark(mg, xpv2.TypeReady, corev1.ConditionFalse, xpv2.ReasonUnavailable, message)
			return false, errors.New(message)
		}
	}
	if uuid == "" {
		return false, errors.New("the machine does not tell its SMBIOS UUID")
	}
	meta.SetExternalName(mg, uuid)
	return true, nil
}

// sameConfig returns an error unless the configuration that the machine runs names this very machine of this cluster.
func (e *external) sameConfig(mg *v1alpha1.TalosMachine) error {
	config, ok := e.seen.Config.Get()
	if !ok {
		return fmt.Errorf("its configuration cannot be read: %s", e.seen.Config.Why())
	}
	is, err := machineconfig.Identify(config.Active)
	if err != nil {
		return err
	}
	switch bundle := e.doors.Bundle(); {
	case bundle == nil:
		return errors.New("the PKI of its cluster is not known, so it must be pinned by its UUID")
	case is.ClusterID != bundle.ClusterID():
		return fmt.Errorf("it belongs to the cluster with ID %q", is.ClusterID)
	case roleOf(is) != mg.Spec.ForProvider.Role:
		return fmt.Errorf("its role is %q", is.Role)
	case is.Hostname != mg.Hostname():
		return fmt.Errorf("its hostname is %q", is.Hostname)
	}
	return nil
}

// roleOf is the role that a configuration gives its machine.
func roleOf(is machineconfig.Identity) v1alpha1.MachineRole {
	if is.Role == roleInit {
		return v1alpha1.RoleControlPlane
	}
	return v1alpha1.MachineRole(is.Role)
}

// sentence makes a sentence of an error, for a condition.
func sentence(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:]
}
