package taloscluster

import (
	"context"
	"errors"
	"strings"
	"testing"

	xperrors "github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/clusterlock"
	"github.com/maesh/provider-ichor/internal/connect"
	"github.com/maesh/provider-ichor/internal/controller/waiting"
)

// heldLocks are locks with one holder.
type heldLocks struct {
	freeLocks
	info *clusterlock.Info
}

func (l *heldLocks) Peek(context.Context, types.NamespacedName) (*clusterlock.Info, error) {
	return l.info, nil
}

// connectionSecret publishes what the test cluster wants to be published.
func connectionSecret(t *testing.T) *corev1.Secret {
	t.Helper()
	details, _ := issued(t, 0, testNow)
	s := resource.LocalConnectionSecretFor(newCluster(), v1alpha1.TalosClusterGroupVersionKind)
	s.Data = details
	return s
}

// TestObserve holds that Observe never writes, and that a pass has one thing to do at most.
func TestObserve(t *testing.T) {
	ours, id := bundle(t, 0)
	named := annotated(meta.AnnotationKeyExternalName, id)
	cases := map[string]struct {
		reason   string
		cluster  *v1alpha1.TalosCluster
		objs     []client.Object
		lock     *clusterlock.Info
		exists   bool
		upToDate bool
		err      string
		// What Update does, if Observe finds something to do.
		writes   []string
		issues   bool
		releases bool
		updates  string // part of the error of Update
	}{
		"New": {
			reason:  "A new cluster has no PKI yet.",
			cluster: newCluster(),
		},
		"PKIGone": {
			reason:  "A PKI that is gone is an error, and no reason to create one.",
			cluster: newCluster(named),
			err:     "is gone",
		},
		"UpToDate": {
			reason:  "A cluster that is as declared needs nothing.",
			cluster: newCluster(named),
			objs:    []client.Object{pkiSecret(ours), connectionSecret(t)},
			exists:  true, upToDate: true,
		},
		"NotNamed": {
			reason:  "A process that died before it wrote the external name down left that to do.",
			cluster: newCluster(),
			objs:    []client.Object{pkiSecret(ours), connectionSecret(t)},
			exists:  true,
			writes:  []string{"patch *v1alpha1.TalosCluster/prod"},
		},
		"Unprotected": {
			reason:  "A PKI that was restored without its finalizer gets it back, before anything else.",
			cluster: newCluster(named),
			objs:    []client.Object{pkiSecret(ours, func(s *corev1.Secret) { s.Finalizers = nil })},
			exists:  true,
			writes:  []string{"patch *v1.Secret/" + connect.PKISecretName(testCluster)},
		},
		"Owned": {
			reason:  "A PKI that the garbage collector could take is freed from its owner.",
			cluster: newCluster(named),
			objs: []client.Object{connectionSecret(t), pkiSecret(ours, func(s *corev1.Secret) {
				s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"}}
			})},
			exists: true,
			writes: []string{"patch *v1.Secret/" + connect.PKISecretName(testCluster)},
		},
		"Unpublished": {
			reason:  "Credentials that are missing are issued; the managed reconciler writes them.",
			cluster: newCluster(named),
			objs:    []client.Object{pkiSecret(ours)},
			exists:  true,
			issues:  true,
		},
		"NothingToPublish": {
			reason: "A cluster that publishes nothing needs no credentials.",
			cluster: newCluster(named, func(c *v1alpha1.TalosCluster) {
				c.SetWriteConnectionSecretToReference(nil)
			}),
			objs:   []client.Object{pkiSecret(ours)},
			exists: true, upToDate: true,
		},
		"LockLeftBehind": {
			reason:   "A lock that a pass of this cluster left behind is given back.",
			cluster:  newCluster(named),
			objs:     []client.Object{pkiSecret(ours), connectionSecret(t)},
			lock:     &clusterlock.Info{Holder: clusterlock.Holder{Kind: "TalosCluster", Name: testCluster, UID: testUID}},
			exists:   true,
			releases: true,
		},
		"LockOfAnother": {
			reason:  "The lock of another holder is left alone.",
			cluster: newCluster(named),
			objs:    []client.Object{pkiSecret(ours), connectionSecret(t)},
			lock:    &clusterlock.Info{Holder: clusterlock.Holder{Kind: "TalosMachine", Name: "cp-1", UID: "another"}},
			exists:  true, upToDate: true,
		},
		"SourceChanged": {
			reason:  "A source that changed is told once nothing else is to be done.",
			cluster: newCluster(named, importing("import")),
			objs: []client.Object{
				pkiSecret(ours, noted(v1alpha1.AnnotationInputsDigest, digest([]byte("before")))), connectionSecret(t),
				secret("import", "secrets.yaml", ours),
			},
			exists:  true,
			updates: "has changed since it was imported",
		},
		"SourceVanishedAndUnpublished": {
			reason:  "Trouble with the source keeps no cluster from its credentials.",
			cluster: newCluster(named, importing("import")),
			objs:    []client.Object{pkiSecret(ours, noted(v1alpha1.AnnotationInputsDigest, digest(ours)))},
			exists:  true,
			issues:  true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := newAPI(t, append(tc.objs, tc.cluster)...)
			cluster := &v1alpha1.TalosCluster{}
			if err := api.Get(context.Background(), client.ObjectKeyFromObject(tc.cluster), cluster); err != nil {
				t.Fatalf("cannot read the TalosCluster: %v", err)
			}
			l := &heldLocks{info: tc.lock}
			e := &external{
				kube: api, uncached: api, keeper: &keeper{kube: api, uncached: api}, survey: &surveys{snapshot: controlPlanes(3)}, locks: l,
				clock: newClock(), record: &events{}, hints: waiting.NewHints(0),
			}
			o, err := e.Observe(context.Background(), cluster)
			checkError(t, tc.reason, err, tc.err)
			if len(api.log) != 0 {
				t.Errorf("\n%s\nObserve wrote: %v", tc.reason, api.log)
			}
			if o.ResourceExists != tc.exists || o.ResourceUpToDate != tc.upToDate {
				t.Errorf("\n%s\nObserve(...): exists %t, up to date %t; want %t, %t", tc.reason, o.ResourceExists, o.ResourceUpToDate, tc.exists, tc.upToDate)
			}
			u, err := e.Update(context.Background(), cluster)
			checkError(t, tc.reason, err, tc.updates)
			if diff := cmp.Diff(tc.writes, api.log); diff != "" {
				t.Errorf("\n%s\nwrites of Update: -want, +got:\n%s", tc.reason, diff)
			}
			if tc.exists && !keptPKI(t, api) && len(tc.writes) > 0 && strings.HasSuffix(tc.writes[0], connect.PKISecretSuffix) {
				t.Errorf("\n%s\nthe PKI Secret is not protected", tc.reason)
			}
			if got := len(u.ConnectionDetails) > 0; got != tc.issues {
				t.Errorf("\n%s\nUpdate issued credentials: %t, want %t", tc.reason, got, tc.issues)
			}
			if got := len(l.released) > 0; got != tc.releases {
				t.Errorf("\n%s\nUpdate released the lock: %t, want %t", tc.reason, got, tc.releases)
			}
		})
	}
}

// TestObserveKeepsStatus holds that what Update patches does not undo what Observe found in the same pass.
func TestObserveKeepsStatus(t *testing.T) {
	ours, _ := bundle(t, 0)
	api := newAPI(t, newCluster(), pkiSecret(ours), connectionSecret(t))
	c := &v1alpha1.TalosCluster{}
	if err := api.Get(context.Background(), types.NamespacedName{Namespace: testNamespace, Name: testCluster}, c); err != nil {
		t.Fatalf("cannot read the TalosCluster: %v", err)
	}
	e := &external{
		kube: api, uncached: api, keeper: &keeper{kube: api, uncached: api}, survey: &surveys{snapshot: controlPlanes(3)}, locks: &freeLocks{},
		clock: newClock(), record: &events{}, hints: waiting.NewHints(0),
	}
	if _, err := e.Observe(context.Background(), c); err != nil {
		t.Fatalf("Observe(...): %v", err)
	}
	if _, err := e.Update(context.Background(), c); err != nil {
		t.Fatalf("Update(...): %v", err)
	}
	if got := c.Status.AtProvider.ControlPlanes.Voters; got != 3 {
		t.Errorf("status.atProvider.controlPlanes.voters is %d after Update, want 3", got)
	}
	if err := api.Status().Update(context.Background(), c); err != nil {
		t.Errorf("the status cannot be written after Update: %v", err)
	}
}

// TestConnect holds that a deletion needs no ProviderConfig, and that a cluster that somebody else made gets no new PKI.
func TestConnect(t *testing.T) {
	boom := errors.New("boom")
	cases := map[string]struct {
		reason  string
		cluster *v1alpha1.TalosCluster
		track   error
		open    error
		wantErr bool
		create  string // part of the error of Create
	}{
		"NoPKI":             {reason: "A cluster without a PKI can be connected to, to make it.", cluster: newCluster(importing("import")), open: &connect.NotReadyError{}},
		"Untracked":         {reason: "A use that cannot be noted is an error.", cluster: newCluster(), track: boom, wantErr: true},
		"NamespaceGoes":     {reason: "In a namespace that is being deleted no use can be noted, and a cluster that lives on says what is the matter.", cluster: newCluster(importing("import")), track: terminating(), open: &connect.NotReadyError{}},
		"NoProviderConfig":  {reason: "A ProviderConfig that is missing is an error.", cluster: newCluster(), open: boom, wantErr: true},
		"Deleted":           {reason: "A cluster that is being deleted needs neither.", cluster: newCluster(deleted, importing("import")), track: boom, open: boom},
		"SomebodyElsesMade": {reason: "A cluster that can be opened without a PKI was made by somebody else.", cluster: newCluster(), create: "spec.forProvider.secretsRef must be set"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ours, _ := bundle(t, 0)
			api := newAPI(t, secret("import", "secrets.yaml", ours))
			c := &connector{
				usage: tracker{tc.track}, open: openers{tc.open},
				with: external{keeper: &keeper{kube: api, uncached: api}},
			}
			e, err := c.Connect(context.Background(), tc.cluster)
			if (err != nil) != tc.wantErr {
				t.Fatalf("\n%s\nConnect(...): error %v, want one: %t", tc.reason, err, tc.wantErr)
			}
			if err != nil {
				return
			}
			_, err = e.Create(context.Background(), tc.cluster)
			checkError(t, tc.reason, err, tc.create)
			if tc.create != "" && len(api.log) != 0 {
				t.Errorf("\n%s\nwrites: %v", tc.reason, api.log)
			}
		})
	}
}

// terminating is what the API server answers to a create in a namespace that is being deleted.
func terminating() error {
	err := kerrors.NewForbidden(schema.GroupResource{}, "usage", errors.New("it is being terminated"))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
	return xperrors.Wrap(err, "cannot create object")
}

type tracker struct{ err error }

func (t tracker) Track(context.Context, resource.ModernManaged) error { return t.err }

type openers struct{ err error }

func (o openers) Open(context.Context, *v1alpha1.TalosCluster) (Access, error) {
	if o.err != nil {
		return nil, o.err
	}
	return &world{}, nil
}
