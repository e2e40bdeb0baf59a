package taloscluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/connect"
	"github.com/maesh/provider-ichor/internal/controller/lagging"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/machineconfig"
)

const (
	testNamespace = "metal"
	testCluster   = "prod"
	testUID       = types.UID("c1a5e000-0000-4000-8000-000000000001")
	testEndpoint  = "https://192.0.2.10:6443"
	testTalos     = "v1.13.9"
)

var testNow = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// newCluster returns a declared TalosCluster, as changed by the given functions.
func newCluster(changes ...func(*v1alpha1.TalosCluster)) *v1alpha1.TalosCluster {
	c := &v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: testCluster, UID: testUID, Generation: 1},
		Spec: v1alpha1.TalosClusterSpec{
			ManagedResourceSpec: xpv2.ManagedResourceSpec{
				ManagementPolicies:               xpv2.ManagementPolicies{xpv2.ManagementActionAll},
				ProviderConfigReference:          &xpv2.ProviderConfigReference{Kind: "ClusterProviderConfig", Name: "default"},
				WriteConnectionSecretToReference: &xpv2.LocalSecretReference{Name: "prod-connection"},
			},
			ForProvider: v1alpha1.TalosClusterParameters{
				Endpoint:     testEndpoint,
				ControlPlane: v1alpha1.ControlPlaneParameters{Count: 3},
				Versions:     v1alpha1.ClusterVersions{Talos: testTalos, Kubernetes: "v1.35.4"},
			},
		},
	}
	for _, change := range changes {
		change(c)
	}
	return c
}

func annotated(key, value string) func(*v1alpha1.TalosCluster) {
	return func(c *v1alpha1.TalosCluster) { meta.AddAnnotations(c, map[string]string{key: value}) }
}

func importing(secret string) func(*v1alpha1.TalosCluster) {
	return func(c *v1alpha1.TalosCluster) {
		c.Spec.ForProvider.SecretsRef = &v1alpha1.SecretsBundleReference{Name: secret}
	}
}

// deleted marks a cluster as being deleted.
func deleted(c *v1alpha1.TalosCluster) {
	now := metav1.NewTime(testNow)
	c.SetDeletionTimestamp(&now)
	c.SetFinalizers([]string{v1alpha1.FinalizerCluster})
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		t.Fatalf("cannot build the scheme: %v", err)
	}
	return s
}

// bundles are made once: nothing in these tests depends on which keys are in them.
var bundles = sync.OnceValues(func() ([][]byte, error) {
	var all [][]byte
	for range 2 {
		b, err := machineconfig.NewBundle(testTalos)
		if err != nil {
			return nil, err
		}
		data, err := b.Marshal()
		if err != nil {
			return nil, err
		}
		all = append(all, data)
	}
	return all, nil
})

// bundle returns the i-th secrets bundle of two, and the cluster ID in it.
func bundle(t *testing.T, i int) (data []byte, id string) {
	t.Helper()
	all, err := bundles()
	if err != nil {
		t.Fatalf("cannot make bundles: %v", err)
	}
	b, err := machineconfig.ParseBundle(all[i])
	if err != nil {
		t.Fatalf("ParseBundle(...): %v", err)
	}
	return all[i], b.ClusterID()
}

// pkiSecret returns the PKI Secret of the test cluster with the given bundle, as changed by the given functions.
func pkiSecret(data []byte, changes ...func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   testNamespace,
			Name:        connect.PKISecretName(testCluster),
			Labels:      map[string]string{v1alpha1.LabelCluster: testCluster},
			Annotations: map[string]string{v1alpha1.AnnotationClusterUID: string(testUID)},
			Finalizers:  []string{v1alpha1.FinalizerPKI},
		},
		Data: map[string][]byte{connect.PKISecretKey: data},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func noted(key, value string) func(*corev1.Secret) {
	return func(s *corev1.Secret) { meta.AddAnnotations(s, map[string]string{key: value}) }
}

func secret(name, key string, data []byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: name}, Data: map[string][]byte{key: data}}
}

// writes are the writes that reached an API server, in order, as "verb Kind/name".
type writes struct {
	client.Client
	log     []string
	history *lagging.History
	// before is called before each write; an error of it is returned and the write is not made.
	before func(n int) error
	// after is called after each write; an error of it is returned although the write was made.
	after func(n int) error
	// patch, if set, is asked to do each patch, of which it gets the text. What it returns is the answer.
	patch func(text string, do func() error) error
}

// newAPI returns an API server with the given objects, and everything that is written to it.
func newAPI(t *testing.T, objs ...client.Object) *writes {
	t.Helper()
	w := &writes{history: lagging.NewHistory()}
	write := func(ctx context.Context, verb string, server client.Reader, o client.Object, do func() error) error {
		n := len(w.log)
		if w.before != nil {
			if err := w.before(n); err != nil {
				return err
			}
		}
		w.log = append(w.log, fmt.Sprintf("%s %T/%s", verb, o, o.GetName()))
		if err := w.history.Write(ctx, server, o, do); err != nil {
			return err
		}
		if w.after != nil {
			return w.after(n)
		}
		return nil
	}
	w.Client = fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(objs...).
		WithStatusSubresource(&v1alpha1.TalosCluster{}, &v1alpha1.TalosMachine{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				return write(ctx, "create", c, o, func() error { return c.Create(ctx, o, opts...) })
			},
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				return write(ctx, "update", c, o, func() error { return c.Update(ctx, o, opts...) })
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				return write(ctx, "patch", c, o, func() error { return w.doPatch(o, p, func() error { return c.Patch(ctx, o, p, opts...) }) })
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				return write(ctx, "delete", c, o, func() error { return deleteIf(ctx, c, o, opts...) })
			},
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
				return write(ctx, "update-"+sub, c, o, func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
			},
		}).Build()
	return w
}

func (w *writes) doPatch(o client.Object, p client.Patch, do func() error) error {
	if w.patch == nil {
		return do()
	}
	text, err := p.Data(o)
	if err != nil {
		return err
	}
	return w.patch(string(text), do)
}

// deleteIf deletes an object if it is the one that is meant, which the fake API server does not look at.
func deleteIf(ctx context.Context, c client.Client, o client.Object, opts ...client.DeleteOption) error {
	meant := (&client.DeleteOptions{}).ApplyOptions(opts).Preconditions
	if meant != nil && meant.UID != nil {
		is := &metav1.PartialObjectMetadata{}
		gvk, err := c.GroupVersionKindFor(o)
		if err != nil {
			return err
		}
		is.SetGroupVersionKind(gvk)
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), is); err != nil {
			return err
		}
		if is.GetUID() != *meant.UID {
			return kerrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("it is another object"))
		}
	}
	return c.Delete(ctx, o, opts...)
}

// secretData returns the data of a Secret, or nil if there is none.
func secretData(t *testing.T, c client.Reader, name string) map[string][]byte {
	t.Helper()
	s := &corev1.Secret{}
	err := c.Get(context.Background(), types.NamespacedName{Namespace: testNamespace, Name: name}, s)
	if client.IgnoreNotFound(err) != nil {
		t.Fatalf("cannot read Secret %q: %v", name, err)
	}
	return s.Data
}

// surveys answers with facts, or with an error.
type surveys struct {
	objects, snapshot, fresh facts.Cluster
	err                      error
	asked                    []string
}

func (s *surveys) Objects(context.Context, types.NamespacedName) (facts.Cluster, error) {
	s.asked = append(s.asked, "objects")
	return s.objects, s.err
}

func (s *surveys) Overview(context.Context, types.NamespacedName, time.Duration) (facts.Cluster, error) {
	s.asked = append(s.asked, "snapshot")
	return s.snapshot, s.err
}

func (s *surveys) Cluster(context.Context, types.NamespacedName, facts.MachineID) (facts.Cluster, error) {
	s.asked = append(s.asked, "fresh")
	return s.fresh, s.err
}

// events are the reasons of the events that were recorded.
type events struct{ reasons []string }

func (e *events) Event(_ runtime.Object, ev event.Event) {
	e.reasons = append(e.reasons, string(ev.Reason))
}

func (e *events) WithAnnotations(...string) event.Recorder { return e }

func newClock() *testclock.FakePassiveClock { return testclock.NewFakePassiveClock(testNow) }
