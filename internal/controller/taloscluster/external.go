package taloscluster

import (
	"context"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/clusterlock"
	"github.com/maesh/provider-ichor/internal/controller/waiting"
	"github.com/maesh/provider-ichor/internal/decide/bootstrap"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/metrics"
	"github.com/maesh/provider-ichor/internal/survey"
)

// A task is the one thing that a pass has left to do to a cluster.
type task func(ctx context.Context, c *v1alpha1.TalosCluster) (managed.ExternalUpdate, error)

// An external is one pass over one TalosCluster: Observe looks and picks at most one task, Update carries it out.
type external struct {
	kube     client.Client
	uncached client.Reader
	keeper   *keeper
	survey   Surveyor
	locks    Locks
	actor    Actor
	clock    clock.PassiveClock
	record   event.Recorder
	hints    *waiting.Hints

	// access to the machines; nil while the cluster has no PKI or is being deleted.
	access Access

	// What Observe found, for the rest of the same pass.
	todo task
	// details are what is published already. Whoever observes without them has the managed reconciler write the
	// connection Secret anew in every pass.
	details managed.ConnectionDetails
	pki     *pki
	left    []facts.Machine
}

var _ managed.TypedExternalClient[*v1alpha1.TalosCluster] = &external{}

// Observe tells whether the PKI exists, which is what a TalosCluster makes, and what its machines say. It makes nothing
// and changes nothing: a PKI that is made while looking is made again whenever somebody looks at the wrong moment.
func (e *external) Observe(ctx context.Context, c *v1alpha1.TalosCluster) (managed.ExternalObservation, error) {
	p, err := e.keeper.get(ctx, c)
	if err != nil {
		return managed.ExternalObservation{}, err
	}
	if meta.WasDeleted(c) {
		return e.observeTeardown(ctx, c, p)
	}
	if p == nil {
		if err := refuseSecond(c); err != nil {
			e.mark(c, condition(xpv2.TypeReady, corev1.ConditionFalse, v1alpha1.ReasonPKIMissing, err.Error()))
			return managed.ExternalObservation{}, err
		}
		return managed.ExternalObservation{}, nil
	}
	c.Status.AtProvider.ClusterID = p.bundle.ClusterID()

	// No rest is granted: this is the poll that makes the overview for all machines of the cluster.
	f, err := e.survey.Overview(ctx, name(c), 0)
	if err != nil {
		return managed.ExternalObservation{}, errors.Wrap(err, "cannot survey the cluster")
	}
	approved, err := survey.CountApprovedControlPlanes(ctx, e.uncached, c.GetNamespace(), c.GetName())
	if err != nil {
		return managed.ExternalObservation{}, errors.Wrap(err, "cannot count the approved control planes")
	}
	lock, err := e.locks.Peek(ctx, name(c))
	if err != nil {
		return managed.ExternalObservation{}, err
	}
	h, d := healthOf(f), bootstrap.Next(f)
	fill(c, f, h, approved, lock)
	measure(c, h, lock)
	ready := e.readiness(f, h, d)
	if err := p.checkKept(); err != nil {
		// Beside whatever Synced says: in a namespace that is being deleted, nothing can be published and nothing else tells.
		ready.Message = strings.TrimPrefix(ready.Message+"; "+err.Error(), "; ")
	}
	e.mark(c, transitioning(approved), etcdHealthy(h), ready)
	if c.GetCondition(xpv2.TypeReady).Status != corev1.ConditionTrue || approved != f.ApprovedControlPlanes() {
		// A cluster that is on its way is looked at more often than one that is there, and again if the survey is older
		// than what woke this pass up.
		e.hints.Give(name(c))
	}
	if e.todo, err = e.next(ctx, c, f, p, d, lock); err != nil {
		return managed.ExternalObservation{}, err
	}
	return managed.ExternalObservation{ResourceExists: true, ResourceUpToDate: e.todo == nil, ConnectionDetails: e.details}, nil
}

// next picks the one thing to do now, or nothing. What keeps the PKI comes before anything that relies on it.
func (e *external) next(ctx context.Context, c *v1alpha1.TalosCluster, f facts.Cluster, p *pki, d bootstrap.Decision, lock *clusterlock.Info) (task, error) {
	credentials, err := e.credentialsTask(ctx, c, f, p)
	if err != nil {
		return nil, err
	}
	if meta.GetExternalName(c) == "" {
		return e.nameCluster(p), nil
	}
	if !p.protected() {
		return func(ctx context.Context, _ *v1alpha1.TalosCluster) (managed.ExternalUpdate, error) {
			return managed.ExternalUpdate{}, e.keeper.protect(ctx, p)
		}, nil
	}
	if t := e.bootstrapTask(d); t != nil {
		return t, nil
	}
	if lock != nil && lock.Holder.UID == c.GetUID() {
		return func(ctx context.Context, c *v1alpha1.TalosCluster) (managed.ExternalUpdate, error) {
			return managed.ExternalUpdate{}, e.giveBackLock(ctx, c)
		}, nil
	}
	if credentials != nil {
		return credentials, nil
	}
	return e.complaintTask(ctx, c, p)
}

// nameCluster makes up for a process that died between creating the PKI and writing down the external name.
func (e *external) nameCluster(p *pki) task {
	return func(ctx context.Context, c *v1alpha1.TalosCluster) (managed.ExternalUpdate, error) {
		err := e.annotate(ctx, c, func(c *v1alpha1.TalosCluster) { meta.SetExternalName(c, p.bundle.ClusterID()) })
		return managed.ExternalUpdate{}, errors.Wrap(err, "cannot write down the ID of the cluster")
	}
}

// credentialsTask issues credentials if those that are published are due. Their expiry is shown in any case.
func (e *external) credentialsTask(ctx context.Context, c *v1alpha1.TalosCluster, f facts.Cluster, p *pki) (task, error) {
	w := wantedOf(c, f, p)
	pub, err := e.published(ctx, c, w)
	if err != nil {
		return nil, err
	}
	c.Status.AtProvider.CredentialsExpireAt = nil
	if pub == nil {
		return nil, nil
	}
	e.details = pub.details
	if !pub.notAfter.IsZero() {
		at := metav1.NewTime(pub.notAfter).Rfc3339Copy()
		c.Status.AtProvider.CredentialsExpireAt = &at
		metrics.CredentialsExpiry(c.GetNamespace(), c.GetName(), pub.notAfter)
	}
	why, due := pub.due(e.clock.Now())
	if !due {
		return nil, nil
	}
	return func(_ context.Context, c *v1alpha1.TalosCluster) (managed.ExternalUpdate, error) {
		details, err := e.issue(c, p, w)
		if err != nil {
			return managed.ExternalUpdate{}, err
		}
		e.record.Event(c, event.Normal("IssuedCredentials", "Issued a new kubeconfig and talosconfig: "+why))
		return managed.ExternalUpdate{ConnectionDetails: details}, nil
	}, nil
}

// complaintTask shows what is wrong with the PKI or with what it was imported from. It comes last and changes nothing:
// such trouble must not keep a cluster from anything else.
func (e *external) complaintTask(ctx context.Context, c *v1alpha1.TalosCluster, p *pki) (task, error) {
	err := p.checkKept()
	if err == nil {
		err = e.keeper.checkSource(ctx, c, p)
	}
	if err == nil {
		return nil, nil
	}
	return func(context.Context, *v1alpha1.TalosCluster) (managed.ExternalUpdate, error) {
		return managed.ExternalUpdate{}, err
	}, nil
}

// Create makes the PKI, once in a cluster's life.
func (e *external) Create(ctx context.Context, c *v1alpha1.TalosCluster) (managed.ExternalCreation, error) {
	if e.access != nil && c.Spec.ForProvider.SecretsRef == nil {
		// The ProviderConfig opens a cluster that has no PKI here: somebody else made it.
		return managed.ExternalCreation{}, errors.New("spec.forProvider.secretsRef must be set: the ProviderConfig has credentials for a cluster that exists already (spec.credentials.source Secret), and a new PKI would not be the one of its machines")
	}
	p, err := e.keeper.create(ctx, c)
	if err != nil {
		return managed.ExternalCreation{}, err
	}
	meta.SetExternalName(c, p.bundle.ClusterID())
	return managed.ExternalCreation{}, nil
}

// Update carries out the one thing that Observe found to do.
func (e *external) Update(ctx context.Context, c *v1alpha1.TalosCluster) (managed.ExternalUpdate, error) {
	if e.todo == nil {
		return managed.ExternalUpdate{}, nil
	}
	return e.todo(ctx, c)
}

// Disconnect does nothing: connections are pooled across passes.
func (e *external) Disconnect(context.Context) error { return nil }

// annotate changes the annotations of the cluster, and fails if anybody changed the object since it was read. A copy is
// patched: the answer would overwrite the status that this pass has set and not persisted yet.
func (e *external) annotate(ctx context.Context, c *v1alpha1.TalosCluster, change func(*v1alpha1.TalosCluster)) error {
	after := c.DeepCopy()
	change(after)
	if err := e.kube.Patch(ctx, after, client.MergeFromWithOptions(c.DeepCopy(), client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	c.SetAnnotations(after.GetAnnotations())
	c.SetResourceVersion(after.GetResourceVersion())
	return nil
}

func name(c *v1alpha1.TalosCluster) types.NamespacedName {
	return types.NamespacedName{Namespace: c.GetNamespace(), Name: c.GetName()}
}
