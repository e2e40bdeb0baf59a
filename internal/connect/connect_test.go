package connect

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/machineconfig"
	"github.com/maesh/provider-ichor/internal/talos"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const site1 = "site-1"

type world struct {
	kube      client.Client
	clock     *clocktesting.FakePassiveClock
	connector *Connector
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	s := kruntime.NewScheme()
	for _, add := range []func(*kruntime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	p := talos.NewPool(talos.Options{})
	t.Cleanup(p.Close)
	w := &world{kube: fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).Build(), clock: clocktesting.NewFakePassiveClock(start)}
	w.connector = New(w.kube, p, w.clock)
	return w
}

func cluster(change ...func(*v1alpha1.TalosCluster)) *v1alpha1.TalosCluster {
	c := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: site1, Name: "home", UID: "home-uid"}}
	c.Spec.ForProvider.Endpoint = "https://192.0.2.10:6443"
	for _, f := range change {
		f(c)
	}
	return c
}

func deleted(c *v1alpha1.TalosCluster) {
	now := metav1.NewTime(start)
	c.SetDeletionTimestamp(&now)
}

func using(kind, name string) func(*v1alpha1.TalosCluster) {
	return func(c *v1alpha1.TalosCluster) {
		c.SetProviderConfigReference(&xpv2.ProviderConfigReference{Kind: kind, Name: name})
	}
}

// newBundle makes one PKI for all tests: its RSA key takes a second.
var newBundle = sync.OnceValues(func() (*machineconfig.Bundle, error) { return machineconfig.NewBundle("v1.13.9") })

// pkiSecret holds the PKI of the cluster home.
func pkiSecret(t *testing.T) (*corev1.Secret, *machineconfig.Bundle) {
	t.Helper()
	b, err := newBundle()
	if err != nil {
		t.Fatal(err)
	}
	data, err := b.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: site1, Name: "home-talos-pki", UID: "pki-uid"},
		Data:       map[string][]byte{"secrets.yaml": data},
	}, b
}

func siteConfig(change ...func(*v1alpha1.ProviderConfigSpec)) *v1alpha1.ClusterProviderConfig {
	p := &v1alpha1.ClusterProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "pc-uid", Generation: 1}}
	p.Spec.Credentials.Source = xpv2.CredentialsSourceNone
	for _, f := range change {
		f(&p.Spec)
	}
	return p
}

func ownConfig(change ...func(*v1alpha1.ProviderConfigSpec)) *v1alpha1.ProviderConfig {
	p := &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Namespace: site1, Name: "own", UID: "own-uid", Generation: 1}}
	p.Spec = siteConfig(change...).Spec
	return p
}

func credentialsFrom(namespace, name string) func(*v1alpha1.ProviderConfigSpec) {
	return func(s *v1alpha1.ProviderConfigSpec) {
		s.Credentials.Source = xpv2.CredentialsSourceSecret
		s.Credentials.SecretRef = &xpv2.SecretKeySelector{SecretReference: xpv2.SecretReference{Namespace: namespace, Name: name}, Key: "talosconfig"}
	}
}

func talosconfigSecret(namespace, name, ca string) *corev1.Secret {
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "creds-uid"},
		Data: map[string][]byte{"talosconfig": fmt.Appendf(nil,
			"context: c\ncontexts:\n  c:\n    ca: %s\n    crt: %s\n    key: %s\n", b64(ca), b64("crt"), b64("key"))},
	}
}

func TestCredentialsFromThePKI(t *testing.T) {
	pki, b := pkiSecret(t)
	w := newWorld(t, siteConfig(), pki)
	a, err := w.connector.Cluster(t.Context(), cluster(func(c *v1alpha1.TalosCluster) { meta.SetExternalName(c, b.ClusterID()) }))
	if err != nil {
		t.Fatal(err)
	}
	if a.Bundle() == nil || a.Bundle().ClusterID() != b.ClusterID() {
		t.Errorf("the bundle is not the one in the Secret")
	}
	if len(a.credentials.CA) == 0 || len(a.credentials.Cert) == 0 || len(a.credentials.Key) == 0 {
		t.Error("the credentials for the Talos API are not complete")
	}
	if k, err := a.Kubernetes(); err != nil || k == nil {
		t.Errorf("Kubernetes: %v", err)
	}
	if got := a.Machine("192.0.2.11").Address(); got != "192.0.2.11" {
		t.Errorf("address: got %q", got)
	}
}

func TestDefaultsOfSettings(t *testing.T) {
	seconds := func(n int) *metav1.Duration { return &metav1.Duration{Duration: time.Duration(n) * time.Second} }
	cases := map[string]struct {
		spec v1alpha1.ProviderConfigSpec
		want Settings
	}{
		"Empty": {want: Settings{RequestTimeout: 10 * time.Second, DialTimeout: 5 * time.Second, ImageFactory: "factory.talos.dev"}},
		"Zero": {
			spec: v1alpha1.ProviderConfigSpec{Timeouts: v1alpha1.Timeouts{Request: seconds(0), Dial: seconds(-1)}},
			want: Settings{RequestTimeout: 10 * time.Second, DialTimeout: 5 * time.Second, ImageFactory: "factory.talos.dev"},
		},
		"Set": {
			spec: v1alpha1.ProviderConfigSpec{
				Timeouts: v1alpha1.Timeouts{Request: seconds(3), Dial: seconds(2)}, Drain: v1alpha1.MachineDrain{Force: true}, ImageFactory: "factory.site",
			},
			want: Settings{RequestTimeout: 3 * time.Second, DialTimeout: 2 * time.Second, Drain: v1alpha1.MachineDrain{Force: true}, ImageFactory: "factory.site"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, settingsOf(tc.spec)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// What is made from a PKI is kept as long as nothing that it was made from changes, and not longer than half its life.
func TestAccessIsKept(t *testing.T) {
	pki, _ := pkiSecret(t)
	cases := map[string]struct {
		reason string
		change func(t *testing.T, w *world, c *v1alpha1.TalosCluster)
		kept   bool
	}{
		"Nothing": {"The same again.", func(*testing.T, *world, *v1alpha1.TalosCluster) {}, true},
		"HalfLife": {"Almost half of the life of the certificates.", func(_ *testing.T, w *world, _ *v1alpha1.TalosCluster) {
			w.clock.SetTime(start.Add(CredentialsTTL/2 - 1))
		}, true},
		"Renewal": {"Half of the life of the certificates.", func(_ *testing.T, w *world, _ *v1alpha1.TalosCluster) { w.clock.SetTime(start.Add(CredentialsTTL / 2)) }, false},
		"PKI": {"Another PKI.", func(t *testing.T, w *world, _ *v1alpha1.TalosCluster) {
			other, _ := pkiSecret(t)
			other.UID = "another"
			if err := w.kube.Update(t.Context(), other); err != nil {
				t.Fatal(err)
			}
		}, false},
		"PKIRestored": {"Another PKI in the same Secret.", func(t *testing.T, w *world, _ *v1alpha1.TalosCluster) {
			s := &corev1.Secret{}
			if err := w.kube.Get(t.Context(), client.ObjectKeyFromObject(pki), s); err != nil {
				t.Fatal(err)
			}
			s.SetLabels(map[string]string{"changed": "yes"})
			if err := w.kube.Update(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}, false},
		"Config": {"Another ProviderConfig.", func(t *testing.T, w *world, _ *v1alpha1.TalosCluster) {
			p := &v1alpha1.ClusterProviderConfig{}
			if err := w.kube.Get(t.Context(), client.ObjectKey{Name: "default"}, p); err != nil {
				t.Fatal(err)
			}
			p.Generation++
			if err := w.kube.Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}, false},
		"Endpoint": {"Another Kubernetes API.", func(_ *testing.T, _ *world, c *v1alpha1.TalosCluster) {
			c.Spec.ForProvider.Endpoint = "https://192.0.2.99:6443"
		}, false},
		"Status":    {"What is not in the spec changes nothing.", func(_ *testing.T, _ *world, c *v1alpha1.TalosCluster) { c.Status.AtProvider.ClusterID = "x" }, true},
		"Recreated": {"Another cluster of the same name.", func(_ *testing.T, _ *world, c *v1alpha1.TalosCluster) { c.UID = "another" }, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w, c := newWorld(t, siteConfig(), pki.DeepCopy()), cluster()
			first, err := w.connector.Cluster(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			tc.change(t, w, c)
			second, err := w.connector.Cluster(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if got := first == second; got != tc.kept {
				t.Errorf("\n%s\nkept: got %v, want %v", tc.reason, got, tc.kept)
			}
		})
	}
}

// Credentials that a person put in place of others are used from then on: the ones before may be revoked or have expired.
func TestRenewedCredentialsAreUsed(t *testing.T) {
	w := newWorld(t, siteConfig(credentialsFrom("vault", "creds")), talosconfigSecret("vault", "creds", "first"))
	for _, ca := range []string{"first", "second"} {
		s := &corev1.Secret{}
		if err := w.kube.Get(t.Context(), client.ObjectKey{Namespace: "vault", Name: "creds"}, s); err != nil {
			t.Fatal(err)
		}
		s.Data = talosconfigSecret("vault", "creds", ca).Data
		if err := w.kube.Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		a, err := w.connector.Cluster(t.Context(), cluster())
		if err != nil || string(a.credentials.CA) != ca {
			t.Errorf("the %s credentials are not used: %v", ca, err)
		}
	}
}

// A PKI that cannot be read is a failure: taken for one that does not exist, it would be a wait for what is there already.
func TestUnreadablePKI(t *testing.T) {
	pki, _ := pkiSecret(t)
	down := errors.New("the API server is down")
	w := newWorld(t, siteConfig(), pki)
	w.connector.reader = interceptor.NewClient(w.kube.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if k.Name == pki.GetName() {
				return down
			}
			return c.Get(ctx, k, o, opts...)
		},
	})
	_, err := w.connector.Cluster(t.Context(), cluster())
	if notReady := (*NotReadyError)(nil); !errors.Is(err, down) || errors.As(err, &notReady) {
		t.Errorf("got %v, want what failed", err)
	}
}

// Clusters that are gone take no room for ever.
func TestOldAccessGoes(t *testing.T) {
	pki, _ := pkiSecret(t)
	w := newWorld(t, siteConfig(), pki)
	for _, uid := range []types.UID{"a", "b"} {
		if _, err := w.connector.Cluster(t.Context(), cluster(func(c *v1alpha1.TalosCluster) { c.UID = uid })); err != nil {
			t.Fatal(err)
		}
		w.clock.SetTime(w.clock.Now().Add(CredentialsTTL))
	}
	if got := len(w.connector.opened); got != 1 {
		t.Errorf("kept: got %d, want 1", got)
	}
}

func TestNotReady(t *testing.T) {
	w := newWorld(t, siteConfig())
	for name, open := range map[string]func() (*Access, error){
		"Cluster":    func() (*Access, error) { return w.connector.Cluster(t.Context(), cluster()) },
		"Deleted":    func() (*Access, error) { return w.connector.Cluster(t.Context(), cluster(deleted)) },
		"ForRemoval": func() (*Access, error) { return w.connector.ForRemoval(t.Context(), cluster()) },
	} {
		_, err := open()
		if e := (*NotReadyError)(nil); !errors.As(err, &e) || !strings.Contains(e.Error(), "home-talos-pki") {
			t.Errorf("%s: got %v, want a NotReadyError that names the Secret", name, err)
		}
	}
}

// A PKI that cannot be used, or that is another cluster's, opens nothing, and shows nothing of itself.
func TestUnusablePKI(t *testing.T) {
	pki, _ := pkiSecret(t)
	cases := map[string]struct {
		reason string
		secret func(s *corev1.Secret)
		change func(c *v1alpha1.TalosCluster)
	}{
		"Empty":   {reason: "Nothing is in it.", secret: func(s *corev1.Secret) { s.Data = nil }},
		"Garbage": {reason: "Something else is in it.", secret: func(s *corev1.Secret) { s.Data["secrets.yaml"] = []byte("hunter2: [") }},
		"Foreign": {reason: "It is the PKI of another cluster.", change: func(c *v1alpha1.TalosCluster) { meta.SetExternalName(c, "another") }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, c := pki.DeepCopy(), cluster()
			if tc.secret != nil {
				tc.secret(s)
			}
			if tc.change != nil {
				tc.change(c)
			}
			_, err := newWorld(t, siteConfig(), s).connector.Cluster(t.Context(), c)
			if e := (*NotReadyError)(nil); err == nil || errors.As(err, &e) {
				t.Fatalf("\n%s\ngot %v, want an error that is no wait", tc.reason, err)
			}
			if strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "home-talos-pki") {
				t.Errorf("\n%s\n%v", tc.reason, err)
			}
		})
	}
}

func TestProviderConfigs(t *testing.T) {
	pki, _ := pkiSecret(t)
	cases := map[string]struct {
		reason  string
		cluster *v1alpha1.TalosCluster
		objects []client.Object
		removal bool
		problem string
		ca      string
	}{
		"NoReference": {
			reason: "The default is a ClusterProviderConfig.", cluster: cluster(), objects: []client.Object{siteConfig(), pki},
		},
		"Missing": {
			reason: "A config that is not there is not guessed: its image factory would be another one.", cluster: cluster(), objects: []client.Object{pki},
			problem: `cannot get ClusterProviderConfig "default"`,
		},
		"MissingButDeleted": {
			reason: "A deletion does not wait for what was deleted before it.", cluster: cluster(deleted), objects: []client.Object{pki},
		},
		"MissingButForRemoval": {
			reason: "The removal of a machine does not either.", cluster: cluster(), objects: []client.Object{pki}, removal: true,
		},
		"OtherKind": {
			reason: "No such kind.", cluster: cluster(using("Secret", "x")), objects: []client.Object{pki}, removal: true,
			problem: `cannot get Secret "x"`,
		},
		"OtherSource": {
			reason: "No such source.", cluster: cluster(), problem: "None and Secret are possible",
			objects: []client.Object{siteConfig(func(s *v1alpha1.ProviderConfigSpec) { s.Credentials.Source = "Filesystem" }), pki},
		},
		"Talosconfig": {
			reason: "Credentials that a person gave are used instead of made ones.", cluster: cluster(), ca: "given",
			objects: []client.Object{siteConfig(credentialsFrom("vault", "creds")), talosconfigSecret("vault", "creds", "given"), pki},
		},
		"TalosconfigWithoutPKI": {
			reason: "They also open clusters whose PKI the provider does not have.", cluster: cluster(), ca: "given",
			objects: []client.Object{siteConfig(credentialsFrom("vault", "creds")), talosconfigSecret("vault", "creds", "given")},
		},
		"OwnNamespace": {
			reason: "The Secret of a ProviderConfig is in its own namespace.", cluster: cluster(using("ProviderConfig", "own")), ca: "mine",
			objects: []client.Object{ownConfig(credentialsFrom("", "creds")), talosconfigSecret(site1, "creds", "mine"), pki},
		},
		"OthersNamespace": {
			reason: "Otherwise a tenant could use the Secrets of others.", cluster: cluster(using("ProviderConfig", "own")),
			objects: []client.Object{ownConfig(credentialsFrom("vault", "creds")), talosconfigSecret("vault", "creds", "stolen"), pki},
			problem: "must be in its own namespace",
		},
		"OthersNamespaceForRemoval": {
			reason: "Also not when it would be convenient.", cluster: cluster(using("ProviderConfig", "own"), deleted), removal: true,
			objects: []client.Object{ownConfig(credentialsFrom("vault", "creds")), talosconfigSecret("vault", "creds", "stolen"), pki},
			problem: "must be in its own namespace",
		},
		"NoSuchKey": {
			reason: "The Secret has other keys.", cluster: cluster(), problem: `nothing under key "talosconfig"`,
			objects: []client.Object{siteConfig(credentialsFrom("vault", "creds")), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vault", Name: "creds"}}, pki},
		},
		"SecretGone": {
			reason: "Credentials that are not there are said to be missing.", cluster: cluster(), problem: "cannot get the credentials",
			objects: []client.Object{siteConfig(credentialsFrom("vault", "creds")), pki},
		},
		"SecretGoneButDeleted": {
			reason: "The PKI of the cluster opens it as well.", cluster: cluster(deleted),
			objects: []client.Object{siteConfig(credentialsFrom("vault", "creds")), pki},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.objects...)
			open := w.connector.Cluster
			if tc.removal {
				open = w.connector.ForRemoval
			}
			a, err := open(t.Context(), tc.cluster)
			if tc.problem != "" {
				if err == nil || !strings.Contains(err.Error(), tc.problem) {
					t.Errorf("\n%s\ngot %v, want an error that says %q", tc.reason, err, tc.problem)
				}
				return
			}
			if err != nil {
				t.Fatalf("\n%s\n%v", tc.reason, err)
			}
			if tc.ca != "" && string(a.credentials.CA) != tc.ca {
				t.Errorf("\n%s\nthe credentials are not those that were given", tc.reason)
			}
			if a.Settings.ImageFactory != DefaultImageFactory {
				t.Errorf("\n%s\nimage factory: got %q", tc.reason, a.Settings.ImageFactory)
			}
		})
	}
}

// Without the PKI there is no way into Kubernetes, which is said and not guessed.
func TestNoKubernetesWithoutPKI(t *testing.T) {
	w := newWorld(t, siteConfig(credentialsFrom("vault", "creds")), talosconfigSecret("vault", "creds", "given"))
	a, err := w.connector.Cluster(t.Context(), cluster())
	if err != nil {
		t.Fatal(err)
	}
	if k, err := a.Kubernetes(); err == nil || k != nil {
		t.Errorf("got %v, %v", k, err)
	}
	if a.Bundle() != nil {
		t.Error("there is a bundle from nowhere")
	}
}
