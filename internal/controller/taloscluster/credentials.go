package taloscluster

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"slices"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/facts"
)

// Keys of the connection Secret.
const (
	keyKubeconfig  = xpv2.CredentialsSecretKubeconfigKey
	keyEndpoint    = xpv2.CredentialsSecretEndpointKey
	keyClusterCA   = xpv2.CredentialsSecretCAKey
	keyTalosconfig = "talosconfig"
)

// credentialsTTL is how long published credentials are valid. They are renewed at half of it, so that whoever copied
// them has six weeks to notice, and so that a provider that is down for a month breaks nobody.
const credentialsTTL = 90 * 24 * time.Hour

// wanted is what published credentials should lead to.
type wanted struct {
	endpoint  string   // URL of the Kubernetes API.
	clusterCA []byte   // Certificate of the CA of Kubernetes, in PEM.
	talosCA   []byte   // Certificate of the CA of Talos, in PEM.
	endpoints []string // Addresses of Talos APIs: those of all approved control planes, in order.
}

// published is what is known of the credentials in a connection Secret.
type published struct {
	notBefore, notAfter time.Time                 // Of whichever expires first.
	problem             string                    // Why they cannot be used or lead elsewhere; empty if they are as wanted.
	details             managed.ConnectionDetails // Everything in the Secret.
}

// talosEndpoints are the addresses that a talosconfig should name.
func talosEndpoints(f facts.Cluster) []string {
	var addresses []string
	for _, m := range f.Machines {
		if m.IsApprovedControlPlane() {
			addresses = append(addresses, m.Address)
		}
	}
	slices.Sort(addresses)
	return addresses
}

// inspect the credentials in a connection Secret.
func inspect(s *corev1.Secret, w wanted) published {
	kube, kubeProblem := inspectKubeconfig(s.Data[keyKubeconfig], w)
	talos, talosProblem := inspectTalosconfig(s.Data[keyTalosconfig], w)
	p := published{details: s.Data}
	switch {
	case kubeProblem != "":
		p.problem = kubeProblem
	case talosProblem != "":
		p.problem = talosProblem
	case string(s.Data[keyEndpoint]) != w.endpoint:
		p.problem = "endpoint is another one"
	case !bytes.Equal(s.Data[keyClusterCA], w.clusterCA):
		p.problem = "clusterCA is another one"
	}
	for _, cert := range []*x509.Certificate{kube, talos} {
		if cert != nil && (p.notAfter.IsZero() || cert.NotAfter.Before(p.notAfter)) {
			p.notBefore, p.notAfter = cert.NotBefore, cert.NotAfter
		}
	}
	return p
}

// due tells whether the credentials are to be issued anew at a time, and why.
func (p published) due(now time.Time) (string, bool) {
	if p.problem != "" {
		return p.problem, true
	}
	half := p.notBefore.Add(p.notAfter.Sub(p.notBefore) / 2)
	if !now.Before(half) {
		return "half of their life is over", true
	}
	return "", false
}

// inspectKubeconfig returns the client certificate in a kubeconfig, and what is wrong with it.
func inspectKubeconfig(data []byte, w wanted) (*x509.Certificate, string) {
	if len(data) == 0 {
		return nil, "kubeconfig is missing"
	}
	cfg, err := clientcmd.Load(data)
	if err != nil {
		return nil, "kubeconfig cannot be read"
	}
	cluster, user := current(cfg)
	if cluster == nil || user == nil {
		return nil, "kubeconfig has no current context"
	}
	cert := certificate(user.ClientCertificateData)
	switch {
	case cert == nil:
		return nil, "kubeconfig has no client certificate"
	case cluster.Server != w.endpoint:
		return cert, "kubeconfig leads to another endpoint"
	case !bytes.Equal(cluster.CertificateAuthorityData, w.clusterCA):
		return cert, "kubeconfig trusts another CA"
	}
	return cert, ""
}

func current(cfg *clientcmdapi.Config) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo) {
	ctx := cfg.Contexts[cfg.CurrentContext]
	if ctx == nil {
		return nil, nil
	}
	return cfg.Clusters[ctx.Cluster], cfg.AuthInfos[ctx.AuthInfo]
}

// inspectTalosconfig returns the client certificate in a talosconfig, and what is wrong with it.
func inspectTalosconfig(data []byte, w wanted) (*x509.Certificate, string) {
	if len(data) == 0 {
		return nil, "talosconfig is missing"
	}
	// The part of a talosconfig that matters here. The type of it belongs to the client, which only internal/talos uses.
	var cfg struct {
		Context  string `json:"context"`
		Contexts map[string]struct {
			Endpoints []string `json:"endpoints"`
			CA        string   `json:"ca"`
			Crt       string   `json:"crt"`
		} `json:"contexts"`
	}
	if err := yaml.Unmarshal(data, &cfg); err != nil {
		return nil, "talosconfig cannot be read"
	}
	ctx, ok := cfg.Contexts[cfg.Context]
	if !ok {
		return nil, "talosconfig has no current context"
	}
	cert := certificate(decoded(ctx.Crt))
	switch {
	case cert == nil:
		return nil, "talosconfig has no client certificate"
	case !slices.Equal(slices.Sorted(slices.Values(ctx.Endpoints)), w.endpoints):
		return cert, "talosconfig leads to other control planes"
	case !bytes.Equal(decoded(ctx.CA), w.talosCA):
		return cert, "talosconfig trusts another CA"
	}
	return cert, ""
}

// decoded returns what a base64 text holds, or nothing if it is none.
func decoded(text string) []byte {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	return data
}

// certificate returns the first certificate of a PEM text, or nil if there is none that can be read.
func certificate(text []byte) *x509.Certificate {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	return cert
}

// wantedOf is what the credentials of a cluster should lead to now.
func wantedOf(c *v1alpha1.TalosCluster, f facts.Cluster, p *pki) wanted {
	return wanted{
		endpoint:  c.Spec.ForProvider.Endpoint,
		clusterCA: p.bundle.K8sCA(),
		talosCA:   p.bundle.OSCA(),
		endpoints: talosEndpoints(f),
	}
}

// published reads what is known of the credentials that are published. It is nil if none are to be.
func (e *external) published(ctx context.Context, c *v1alpha1.TalosCluster, w wanted) (*published, error) {
	ref := c.GetWriteConnectionSecretToReference()
	if ref == nil {
		return nil, nil
	}
	s := &corev1.Secret{}
	err := e.uncached.Get(ctx, types.NamespacedName{Namespace: c.GetNamespace(), Name: ref.Name}, s)
	if client.IgnoreNotFound(err) != nil {
		return nil, errors.Wrapf(err, "cannot read the connection Secret %q", ref.Name)
	}
	p := inspect(s, w)
	return &p, nil
}

// issue makes new credentials. What was published before stays valid until it expires: nothing is revoked.
func (e *external) issue(c *v1alpha1.TalosCluster, p *pki, w wanted) (managed.ConnectionDetails, error) {
	now := e.clock.Now()
	kubeconfig, err := p.bundle.Kubeconfig(c.GetName(), w.endpoint, credentialsTTL, now)
	if err != nil {
		return nil, errors.Wrap(err, "cannot issue a kubeconfig")
	}
	talosconfig, err := p.bundle.Talosconfig(c.GetName(), w.endpoints, credentialsTTL, now)
	if err != nil {
		return nil, errors.Wrap(err, "cannot issue a talosconfig")
	}
	return managed.ConnectionDetails{
		keyKubeconfig:  kubeconfig,
		keyTalosconfig: talosconfig,
		keyEndpoint:    []byte(w.endpoint),
		keyClusterCA:   w.clusterCA,
	}, nil
}
