package taloscluster

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/connect"
)

// TestCreatePKI holds that a PKI is made once: whatever is there already is taken or refused, and never overwritten.
func TestCreatePKI(t *testing.T) {
	ours, oursID := bundle(t, 0)
	other, otherID := bundle(t, 1)
	kept := connect.PKISecretName(testCluster)

	cases := map[string]struct {
		reason  string
		cluster *v1alpha1.TalosCluster
		objs    []client.Object
		wantErr string // part of the error
		wantID  string // "any" if only the invariants of a new PKI matter
		want    []byte // bundle that is in the Secret afterwards
		writes  int
	}{
		"New": {
			reason:  "A cluster without a PKI gets one.",
			cluster: newCluster(),
			wantID:  "any",
			writes:  1,
		},
		"DiedAfterCreate": {
			reason:  "A process that died right after it made the PKI finds it again.",
			cluster: newCluster(),
			objs:    []client.Object{pkiSecret(ours)},
			wantID:  oursID,
			want:    ours,
		},
		"Imported": {
			reason:  "The bundle to import is copied as it is.",
			cluster: newCluster(importing("import")),
			objs:    []client.Object{secret("import", "secrets.yaml", other)},
			wantID:  otherID,
			want:    other,
			writes:  1,
		},
		"NotOurs": {
			reason:  "A Secret of that name that is no PKI of ours is not touched.",
			cluster: newCluster(),
			objs:    []client.Object{pkiSecret(other, func(s *corev1.Secret) { s.Labels = nil })},
			wantErr: "has label",
			want:    other,
		},
		"OfAnEarlierCluster": {
			reason:  "The PKI of an earlier cluster of that name is only taken by a person's word.",
			cluster: newCluster(),
			objs:    []client.Object{pkiSecret(other, noted(v1alpha1.AnnotationClusterUID, "another"))},
			wantErr: otherID,
			want:    other,
		},
		"Unreadable": {
			reason:  "A PKI that cannot be read is an error, and not a reason for another one.",
			cluster: newCluster(),
			objs:    []client.Object{pkiSecret([]byte("garbage"))},
			wantErr: "restore it from a backup",
			want:    []byte("garbage"),
		},
		"ImportMissing": {
			reason:  "Without the bundle to import, nothing is made.",
			cluster: newCluster(importing("import")),
			wantErr: `spec.forProvider.secretsRef: Secret "import"`,
		},
		"ImportWithoutKey": {
			reason:  "Without the key of the bundle to import, nothing is made.",
			cluster: newCluster(importing("import")),
			objs:    []client.Object{secret("import", "other", other)},
			wantErr: `Secret "import" has no key "secrets.yaml"`,
		},
		"ImportUnreadable": {
			reason:  "A bundle that is none is not imported.",
			cluster: newCluster(importing("import")),
			objs:    []client.Object{secret("import", "secrets.yaml", []byte("a: b"))},
			wantErr: "is not a Talos secrets bundle",
		},
		"ImportFromOtherNamespace": {
			reason:  "Only a Secret in the cluster's own namespace is read.",
			cluster: newCluster(importing("import")),
			objs: []client.Object{func() client.Object {
				s := secret("import", "secrets.yaml", other)
				s.Namespace = "elsewhere"
				return s
			}()},
			wantErr: `in namespace "metal"`,
		},
		"NamedBefore": {
			reason:  "A cluster that has an external name had a PKI: another one is never made.",
			cluster: newCluster(annotated(meta.AnnotationKeyExternalName, oursID)),
			wantErr: "is gone",
		},
		"BootstrappedBefore": {
			reason:  "A cluster that was bootstrapped had a PKI: another one is never made.",
			cluster: newCluster(annotated(v1alpha1.AnnotationBootstrapped, "uuid")),
			wantErr: "is gone",
		},
		"CreatedBefore": {
			reason:  "A cluster that was created had a PKI: another one is never made.",
			cluster: newCluster(annotated(meta.AnnotationKeyExternalCreateSucceeded, "2026-01-02T03:04:05Z")),
			wantErr: "is gone",
		},
		"SeenBefore": {
			reason:  "A cluster whose ID was seen had a PKI: another one is never made.",
			cluster: newCluster(func(c *v1alpha1.TalosCluster) { c.Status.AtProvider.ClusterID = oursID }),
			wantErr: "is gone",
		},
		"ImportedBefore": {
			reason:  "A PKI that was imported once and is gone is not imported again: it may have changed since.",
			cluster: newCluster(importing("import"), annotated(meta.AnnotationKeyExternalName, otherID)),
			objs:    []client.Object{secret("import", "secrets.yaml", other)},
			wantErr: "is gone",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := newAPI(t, tc.objs...)
			e := &external{keeper: &keeper{kube: api, uncached: api}}
			before := meta.GetExternalName(tc.cluster)
			_, err := e.Create(context.Background(), tc.cluster)
			checkError(t, tc.reason, err, tc.wantErr)
			if len(api.log) != tc.writes {
				t.Errorf("\n%s\nwrites: %v, want %d", tc.reason, api.log, tc.writes)
			}
			got := secretData(t, api, kept)[connect.PKISecretKey]
			switch {
			case tc.wantID == "any":
				checkNewPKI(t, api, tc.cluster)
			case string(got) != string(tc.want): // Never printed: it holds keys.
				t.Errorf("\n%s\nthe PKI Secret does not hold what it should", tc.reason)
			case tc.wantID != "" && meta.GetExternalName(tc.cluster) != tc.wantID:
				t.Errorf("\n%s\nexternal name %q, want %q", tc.reason, meta.GetExternalName(tc.cluster), tc.wantID)
			case tc.wantID == "" && meta.GetExternalName(tc.cluster) != before:
				t.Errorf("\n%s\nexternal name was set to %q", tc.reason, meta.GetExternalName(tc.cluster))
			}
		})
	}
}

// checkNewPKI checks what must hold of every PKI Secret that was just made.
func checkNewPKI(t *testing.T, c client.Reader, cluster *v1alpha1.TalosCluster) {
	t.Helper()
	s := &corev1.Secret{}
	nn := types.NamespacedName{Namespace: testNamespace, Name: connect.PKISecretName(testCluster)}
	if err := c.Get(context.Background(), nn, s); err != nil {
		t.Fatalf("cannot read the PKI Secret: %v", err)
	}
	want := metav1.ObjectMeta{
		Labels:      map[string]string{v1alpha1.LabelCluster: testCluster},
		Annotations: map[string]string{v1alpha1.AnnotationClusterUID: string(testUID)},
		Finalizers:  []string{v1alpha1.FinalizerPKI},
	}
	got := metav1.ObjectMeta{Labels: s.Labels, Annotations: s.Annotations, Finalizers: s.Finalizers, OwnerReferences: s.OwnerReferences}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("PKI Secret: -want, +got:\n%s", diff)
	}
	k := &keeper{uncached: c}
	p, err := k.get(context.Background(), cluster)
	if err != nil {
		t.Fatalf("the PKI cannot be read back: %v", err)
	}
	if got, want := meta.GetExternalName(cluster), p.bundle.ClusterID(); got != want {
		t.Errorf("external name %q, want the ID of the cluster %q", got, want)
	}
}

// TestCreatePKIReadsBack holds that a PKI is never used as it was made, only as it is kept.
func TestCreatePKIReadsBack(t *testing.T) {
	theirs, theirsID := bundle(t, 1)
	t.Run("AnotherWasFaster", func(t *testing.T) {
		api := newAPI(t)
		api.before = func(int) error { // Another process makes the PKI between our look and our write.
			api.before = nil
			return api.Create(context.Background(), pkiSecret(theirs))
		}
		c := newCluster()
		if _, err := (&external{keeper: &keeper{kube: api, uncached: api}}).Create(context.Background(), c); err != nil {
			t.Fatalf("Create(...): %v", err)
		}
		if got := meta.GetExternalName(c); got != theirsID {
			t.Errorf("external name %q, want that of the PKI that was first: %q", got, theirsID)
		}
	})
	t.Run("AnswerLost", func(t *testing.T) {
		api := newAPI(t)
		api.after = func(int) error { return errors.New("connection lost") } // The write was made all the same.
		c := newCluster()
		e := &external{keeper: &keeper{kube: api, uncached: api}}
		if _, err := e.Create(context.Background(), c); err == nil {
			t.Fatalf("Create(...): a write whose answer was lost was taken for made")
		}
		made := secretData(t, api, connect.PKISecretName(testCluster))
		api.after = nil
		if _, err := e.Create(context.Background(), c); err != nil {
			t.Fatalf("Create(...) again: %v", err)
		}
		if diff := cmp.Diff(made, secretData(t, api, connect.PKISecretName(testCluster))); diff != "" {
			t.Errorf("the PKI was made twice")
		}
	})
	t.Run("DeletedAtOnce", func(t *testing.T) {
		api := newAPI(t)
		c := newCluster()
		e := &external{keeper: &keeper{kube: api, uncached: newAPI(t)}} // Whoever reads does not see it.
		if _, err := e.Create(context.Background(), c); err == nil {
			t.Errorf("Create(...): a PKI that could not be read back was taken for made")
		}
		if got := meta.GetExternalName(c); got != "" {
			t.Errorf("external name was set to %q", got)
		}
	})
}

// TestCheckSource holds that trouble with what a PKI was imported from is told, and touches nothing.
func TestCheckSource(t *testing.T) {
	ours, id := bundle(t, 0)
	other, _ := bundle(t, 1)
	imported := noted(v1alpha1.AnnotationInputsDigest, digest(ours))

	cases := map[string]struct {
		reason  string
		cluster *v1alpha1.TalosCluster
		pki     *corev1.Secret
		objs    []client.Object
		wantErr string
	}{
		"NeverImported": {
			reason:  "A PKI that was made here has no source.",
			cluster: newCluster(),
			pki:     pkiSecret(ours),
		},
		"Unchanged": {
			reason:  "A source that is as it was is no trouble.",
			cluster: newCluster(importing("import")),
			pki:     pkiSecret(ours, imported),
			objs:    []client.Object{secret("import", "secrets.yaml", ours)},
		},
		"Changed": {
			reason:  "A source that changed is told, and not imported again.",
			cluster: newCluster(importing("import")),
			pki:     pkiSecret(ours, imported),
			objs:    []client.Object{secret("import", "secrets.yaml", other)},
			wantErr: "has changed since it was imported",
		},
		"Vanished": {
			reason:  "A source that is gone is told.",
			cluster: newCluster(importing("import")),
			pki:     pkiSecret(ours, imported),
			wantErr: `Secret "import"`,
		},
		"ReferenceVanished": {
			reason:  "A reference that is gone is told.",
			cluster: newCluster(),
			pki:     pkiSecret(ours, imported),
			wantErr: "secretsRef has vanished",
		},
		"ReferenceAppeared": {
			reason:  "A reference that appeared later is told, and nothing is imported over the PKI.",
			cluster: newCluster(importing("import")),
			pki:     pkiSecret(ours),
			objs:    []client.Object{secret("import", "secrets.yaml", other)},
			wantErr: "has appeared",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := newAPI(t, append(tc.objs, tc.pki)...)
			meta.SetExternalName(tc.cluster, id)
			k := &keeper{kube: api, uncached: api}
			p, err := k.get(context.Background(), tc.cluster)
			if err != nil {
				t.Fatalf("get(...): %v", err)
			}
			checkError(t, tc.reason, k.checkSource(context.Background(), tc.cluster, p), tc.wantErr)
			if len(api.log) != 0 {
				t.Errorf("\n%s\nwrites: %v, want none", tc.reason, api.log)
			}
		})
	}
}

// TestForeignPKI holds that a PKI whose cluster ID is not the one that was written down is never used.
func TestForeignPKI(t *testing.T) {
	ours, oursID := bundle(t, 0)
	_, otherID := bundle(t, 1)
	cases := map[string]struct {
		reason  string
		cluster *v1alpha1.TalosCluster
		pki     *corev1.Secret
		wantErr string
	}{
		"Restored": {
			reason:  "After a restore from a backup the UID is another one, and the ID of the cluster proves the PKI.",
			cluster: newCluster(annotated(meta.AnnotationKeyExternalName, oursID)),
			pki:     pkiSecret(ours, noted(v1alpha1.AnnotationClusterUID, "before the restore")),
		},
		"OtherID": {
			reason:  "The PKI of another cluster is not used, even if it was made for this object.",
			cluster: newCluster(annotated(meta.AnnotationKeyExternalName, otherID)),
			pki:     pkiSecret(ours),
			wantErr: "nothing is done with it",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			k := &keeper{uncached: newAPI(t, tc.pki)}
			_, err := k.get(context.Background(), tc.cluster)
			checkError(t, tc.reason, err, tc.wantErr)
		})
	}
}

// checkError checks that err says want, or that there is none if want is empty.
func checkError(t *testing.T, reason string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("\n%s\nunexpected error: %v", reason, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("\n%s\nerror %v, want one that says %q", reason, err, want)
	}
}
