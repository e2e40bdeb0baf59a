package connect

import (
	"cmp"
	"context"
	"fmt"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/talos"
)

// DefaultImageFactory is the image factory of a site that names none.
const DefaultImageFactory = "factory.talos.dev"

// Settings are what a site decides once for all of its clusters, with defaults filled in.
type Settings struct {
	// RequestTimeout is the deadline of one quick call to a machine.
	RequestTimeout time.Duration
	// DialTimeout is the deadline for a connection to a machine.
	DialTimeout time.Duration
	// Drain holds what applies to machines that declare nothing themselves.
	Drain v1alpha1.MachineDrain
	// ImageFactory is the host of the image factory.
	ImageFactory string
}

func settingsOf(s v1alpha1.ProviderConfigSpec) Settings {
	out := Settings{
		RequestTimeout: talos.DefaultRequestTimeout,
		DialTimeout:    talos.DefaultDialTimeout,
		Drain:          s.Drain,
		ImageFactory:   cmp.Or(s.ImageFactory, DefaultImageFactory),
	}
	if d := s.Timeouts.Request; d != nil && d.Duration > 0 {
		out.RequestTimeout = d.Duration
	}
	if d := s.Timeouts.Dial; d != nil && d.Duration > 0 {
		out.DialTimeout = d.Duration
	}
	return out
}

// A site is what a ProviderConfig says.
type site struct {
	settings Settings
	// talosconfig holds credentials that a person gave; nil if they are made from the cluster's own PKI.
	talosconfig []byte
	// version changes whenever any of this may have changed.
	version string
}

// site reads the ProviderConfig of a cluster. If it is gone and that is tolerated, the defaults stand in.
func (c *Connector) site(ctx context.Context, cluster *v1alpha1.TalosCluster, lenient bool) (site, error) {
	ref := cluster.GetProviderConfigReference()
	if ref == nil {
		ref = &xpv2.ProviderConfigReference{Kind: v1alpha1.ClusterProviderConfigKind, Name: "default"}
	}
	spec, version, err := c.spec(ctx, cluster.GetNamespace(), ref)
	if kerrors.IsNotFound(err) && lenient {
		return site{settings: settingsOf(v1alpha1.ProviderConfigSpec{}), version: "defaults"}, nil
	}
	if err != nil {
		return site{}, fmt.Errorf("cannot get %s %q: %w", ref.Kind, ref.Name, err)
	}
	out := site{settings: settingsOf(spec), version: version}
	switch spec.Credentials.Source {
	case xpv2.CredentialsSourceNone:
		return out, nil
	case xpv2.CredentialsSourceSecret:
	default:
		return site{}, fmt.Errorf("%s %q asks for credentials from %q; None and Secret are possible", ref.Kind, ref.Name, spec.Credentials.Source)
	}

	s, err := c.talosconfig(ctx, cluster.GetNamespace(), ref, spec.Credentials.SecretRef)
	if kerrors.IsNotFound(err) && lenient {
		// The cluster's own PKI is tried instead. If there is none either, that is what is said to be missing.
		return out, nil
	}
	if err != nil {
		return site{}, fmt.Errorf("cannot get the credentials of %s %q: %w", ref.Kind, ref.Name, err)
	}
	out.talosconfig = s.Data[spec.Credentials.SecretRef.Key]
	out.version += "+" + string(s.GetUID()) + "/" + s.GetResourceVersion()
	if len(out.talosconfig) == 0 {
		return site{}, fmt.Errorf("the Secret %q with the credentials of %s %q has nothing under key %q", s.GetName(), ref.Kind, ref.Name, spec.Credentials.SecretRef.Key)
	}
	return out, nil
}

// spec reads either kind of config, and what changes with each change of its spec.
func (c *Connector) spec(ctx context.Context, namespace string, ref *xpv2.ProviderConfigReference) (v1alpha1.ProviderConfigSpec, string, error) {
	var o client.Object
	var spec *v1alpha1.ProviderConfigSpec
	nn := types.NamespacedName{Name: ref.Name}
	switch ref.Kind {
	case v1alpha1.ProviderConfigKind:
		p := &v1alpha1.ProviderConfig{}
		o, spec, nn.Namespace = p, &p.Spec, namespace
	case v1alpha1.ClusterProviderConfigKind:
		p := &v1alpha1.ClusterProviderConfig{}
		o, spec = p, &p.Spec
	default:
		return v1alpha1.ProviderConfigSpec{}, "", fmt.Errorf("there is no such kind; %s and %s are possible", v1alpha1.ProviderConfigKind, v1alpha1.ClusterProviderConfigKind)
	}
	err := c.reader.Get(ctx, nn, o)
	return *spec, fmt.Sprintf("%s/%d", o.GetUID(), o.GetGeneration()), err
}

// talosconfig reads the Secret that a config names.
//
// The Secret of a ProviderConfig is in that config's own namespace. The provider may read Secrets anywhere, so following a
// reference elsewhere would let whoever may write a ProviderConfig use the Secrets of others.
func (c *Connector) talosconfig(ctx context.Context, namespace string, ref *xpv2.ProviderConfigReference, sel *xpv2.SecretKeySelector) (*corev1.Secret, error) {
	if sel == nil {
		return nil, fmt.Errorf("spec.credentials.secretRef is not set")
	}
	nn := types.NamespacedName{Namespace: sel.Namespace, Name: sel.Name}
	if ref.Kind == v1alpha1.ProviderConfigKind {
		if sel.Namespace != "" && sel.Namespace != namespace {
			return nil, fmt.Errorf("spec.credentials.secretRef names namespace %q, but the Secret of a ProviderConfig must be in its own namespace %q", sel.Namespace, namespace)
		}
		nn.Namespace = namespace
	}
	s := &corev1.Secret{}
	if err := c.reader.Get(ctx, nn, s); err != nil {
		return nil, err
	}
	return s, nil
}
