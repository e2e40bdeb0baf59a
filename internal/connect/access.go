package connect

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/machineconfig"
	"github.com/maesh/provider-ichor/internal/talos"
)

// A source is what an Access was made from. Two equal ones make the same Access.
type source struct{ site, pki, endpoint string }

// An Access holds the keys to one cluster, for as long as its certificates are valid. It is safe for concurrent use, and
// need not be closed.
type Access struct {
	// Settings of the site.
	Settings Settings

	source      source
	renewAt     time.Time
	pool        *talos.Pool
	credentials talos.Credentials
	bundle      *machineconfig.Bundle
	kube        kubernetes.Interface
}

// Machine opens the Talos API of a machine of this cluster. Nothing is dialled before the first call.
func (a *Access) Machine(address string) *talos.Client {
	return a.pool.Machine(address, a.credentials).WithTimeouts(a.Settings.RequestTimeout, a.Settings.DialTimeout)
}

// Maintenance opens the Talos API of a blank machine. The fingerprint pins its certificate unless it is empty.
func (a *Access) Maintenance(address, fingerprint string) *talos.Client {
	return a.pool.Maintenance(address, fingerprint).WithTimeouts(a.Settings.RequestTimeout, a.Settings.DialTimeout)
}

// Kubernetes opens the Kubernetes API of this cluster as an administrator. It is one client for as long as the Access is
// used; another Access has another one. Calls have no deadline but that of their context.
func (a *Access) Kubernetes() (kubernetes.Interface, error) {
	if a.kube == nil {
		return nil, errors.New("the Kubernetes API of the cluster cannot be used, because the provider does not have the PKI of the cluster; import it by spec.forProvider.secretsRef")
	}
	return a.kube, nil
}

// Bundle is the PKI of this cluster; nil if the provider does not have it.
func (a *Access) Bundle() *machineconfig.Bundle { return a.bundle }

// issue makes an Access: from the talosconfig of the site if it has one, else from the cluster's own PKI.
func (c *Connector) issue(cluster *v1alpha1.TalosCluster, s site, pki *corev1.Secret, now time.Time) (*Access, error) {
	a := &Access{Settings: s.settings, pool: c.pool, renewAt: now.Add(CredentialsTTL / 2)}
	var err error
	if pki != nil {
		if a.bundle, err = bundle(cluster, pki); err != nil {
			return nil, err
		}
		if a.kube, err = kubeClient(cluster, a.bundle, now); err != nil {
			return nil, fmt.Errorf("cannot make a client for the Kubernetes API of TalosCluster %q: %w", cluster.GetName(), err)
		}
	}
	if s.talosconfig != nil {
		a.credentials, err = talos.ParseTalosconfig(s.talosconfig)
		return a, err
	}
	a.credentials, err = talosCredentials(a.bundle, now)
	return a, err
}

// The rates at which one cluster's Kubernetes API is asked. client-go's own default of five a second makes a drain of a
// full Node wait for its own evictions.
const (
	kubeQPS   = 50
	kubeBurst = 100
)

func kubeClient(cluster *v1alpha1.TalosCluster, b *machineconfig.Bundle, now time.Time) (kubernetes.Interface, error) {
	kubeconfig, err := b.Kubeconfig(cluster.GetName(), cluster.Spec.ForProvider.Endpoint, CredentialsTTL, now)
	if err != nil {
		return nil, err
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Burst = kubeQPS, kubeBurst
	// With a function in it the transport is not put into client-go's cache, which keeps one for every certificate that
	// ever was. This one goes when the Access goes.
	cfg.Proxy = http.ProxyFromEnvironment
	return kubernetes.NewForConfig(cfg)
}

// talosRoles are the roles of the client certificate that is used for machines: there is no lesser one that may read the
// machine configuration.
var talosRoles = []string{"os:admin"}

func talosCredentials(b *machineconfig.Bundle, now time.Time) (talos.Credentials, error) {
	ca, crt, key, err := b.TalosClient(talosRoles, CredentialsTTL, now)
	if err != nil {
		return talos.Credentials{}, fmt.Errorf("cannot issue a client certificate for the Talos API: %w", err)
	}
	return talos.Credentials{CA: ca, Cert: crt, Key: key}, nil
}
