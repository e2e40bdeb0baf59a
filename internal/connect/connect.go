// Package connect turns a TalosCluster and its ProviderConfig into credentials and doors: to the Talos API of its machines
// and to its Kubernetes API. It must never decide or change anything, and never make a PKI where there is none.
package connect

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/machineconfig"
	"github.com/maesh/provider-ichor/internal/talos"
)

const (
	// PKISecretSuffix ends the name of the Secret with a cluster's PKI.
	PKISecretSuffix = "-talos-pki"

	// PKISecretKey is the key in that Secret whose value is the Talos secrets bundle, in YAML.
	PKISecretKey = "secrets.yaml"

	// CredentialsTTL is how long the client certificates live that are made from a cluster's PKI. They stay in memory.
	CredentialsTTL = 24 * time.Hour
)

// PKISecretName is the name of the Secret with the PKI of the cluster of the given name, in its namespace.
func PKISecretName(cluster string) string { return cluster + PKISecretSuffix }

// A NotReadyError says that a cluster cannot be opened yet, because it has no PKI. It is a wait and not a failure.
type NotReadyError struct {
	// Cluster is the name of the TalosCluster.
	Cluster string
	// Message says what is missing.
	Message string
}

func (e *NotReadyError) Error() string {
	return fmt.Sprintf("TalosCluster %q cannot be opened yet: %s", e.Cluster, e.Message)
}

// A Connector opens clusters. It is safe for concurrent use.
type Connector struct {
	reader client.Reader
	pool   *talos.Pool
	clock  clock.PassiveClock

	mu     sync.Mutex
	opened map[types.UID]*Access
}

// New returns a Connector. The reader must not be cached: Secrets are never kept in a cache, and a PKI that a cache has not
// seen yet would look like one that does not exist.
func New(reader client.Reader, pool *talos.Pool, c clock.PassiveClock) *Connector {
	return &Connector{reader: reader, pool: pool, clock: c, opened: map[types.UID]*Access{}}
}

// Cluster opens a cluster, by what its ProviderConfig says. A cluster without a PKI is a *NotReadyError. A missing
// ProviderConfig is an error unless the cluster is being deleted: a deletion must not wait for what was deleted before it.
func (c *Connector) Cluster(ctx context.Context, cluster *v1alpha1.TalosCluster) (*Access, error) {
	return c.open(ctx, cluster, meta.WasDeleted(cluster))
}

// ForRemoval opens a cluster also if its ProviderConfig is gone: with defaults, which force nothing. It is meant for
// surveys and for the removal of a machine, which must not wait for what was deleted before it.
func (c *Connector) ForRemoval(ctx context.Context, cluster *v1alpha1.TalosCluster) (*Access, error) {
	return c.open(ctx, cluster, true)
}

func (c *Connector) open(ctx context.Context, cluster *v1alpha1.TalosCluster, lenient bool) (*Access, error) {
	site, err := c.site(ctx, cluster, lenient)
	if err != nil {
		return nil, err
	}
	pki, err := c.pki(ctx, cluster)
	if err != nil {
		return nil, err
	}
	if pki == nil && site.talosconfig == nil {
		return nil, &NotReadyError{Cluster: cluster.GetName(),
			Message: fmt.Sprintf("its PKI Secret %q does not exist (restore it from a backup if it did)", PKISecretName(cluster.GetName()))}
	}
	of := source{site: site.version, endpoint: cluster.Spec.ForProvider.Endpoint}
	if pki != nil {
		of.pki = string(pki.GetUID()) + "/" + pki.GetResourceVersion()
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if a := c.opened[cluster.GetUID()]; a != nil && a.source == of && now.Before(a.renewAt) {
		return a, nil
	}
	a, err := c.issue(cluster, site, pki, now)
	if err != nil {
		return nil, err
	}
	a.source = of
	c.forgetOld(now)
	c.opened[cluster.GetUID()] = a
	return a, nil
}

// forgetOld drops what is due for renewal: a cluster that is still there is opened anew, one that is gone takes no room.
func (c *Connector) forgetOld(now time.Time) {
	for uid, a := range c.opened {
		if !now.Before(a.renewAt) {
			delete(c.opened, uid)
		}
	}
}

// pki reads the Secret with the cluster's PKI; nil if there is none.
func (c *Connector) pki(ctx context.Context, cluster *v1alpha1.TalosCluster) (*corev1.Secret, error) {
	s := &corev1.Secret{}
	nn := types.NamespacedName{Namespace: cluster.GetNamespace(), Name: PKISecretName(cluster.GetName())}
	err := c.reader.Get(ctx, nn, s)
	if kerrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot get the PKI Secret %q: %w", nn.Name, err)
	}
	return s, nil
}

// bundle reads the PKI out of its Secret, and makes sure that it is the one of this cluster: another one would open the
// wrong machines.
func bundle(cluster *v1alpha1.TalosCluster, s *corev1.Secret) (*machineconfig.Bundle, error) {
	b, err := machineconfig.ParseBundle(s.Data[PKISecretKey])
	if err != nil {
		return nil, fmt.Errorf("cannot use key %q of the PKI Secret %q: %w", PKISecretKey, s.GetName(), err)
	}
	if id := meta.GetExternalName(cluster); id != "" && id != b.ClusterID() {
		return nil, fmt.Errorf("the PKI Secret %q is of the cluster with ID %q, but TalosCluster %q has the ID %q; restore its own PKI from a backup",
			s.GetName(), b.ClusterID(), cluster.GetName(), id)
	}
	return b, nil
}
