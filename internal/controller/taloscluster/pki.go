package taloscluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/connect"
	"github.com/maesh/provider-ichor/internal/machineconfig"
)

// A pki is the PKI of a cluster as it was read back from its Secret.
type pki struct {
	secret *corev1.Secret
	bundle *machineconfig.Bundle
}

// A keeper keeps the PKI of clusters, each in a Secret of its own. No owner reference points from that Secret anywhere,
// or the garbage collector could take it while machines still need it.
//
// Invariant: the keys in a PKI Secret are written by one create and by nothing else. There is no update of them here,
// and what is there already is never overwritten, whatever it is.
type keeper struct {
	kube client.Client
	// uncached reads: a cache that has not seen the Secret yet would be a reason to make another one.
	uncached client.Reader
}

// get reads the PKI of a cluster back. It is nil if there is no Secret. A Secret that cannot be used, or that is not
// this cluster's, is an error and never nothing.
func (k *keeper) get(ctx context.Context, c *v1alpha1.TalosCluster) (*pki, error) {
	s := &corev1.Secret{}
	nn := types.NamespacedName{Namespace: c.GetNamespace(), Name: connect.PKISecretName(c.GetName())}
	if err := k.uncached.Get(ctx, nn, s); kerrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, errors.Wrapf(err, "cannot read the PKI Secret %q", nn.Name)
	}
	b, err := machineconfig.ParseBundle(s.Data[connect.PKISecretKey])
	if err != nil {
		return nil, errors.Wrapf(err, "cannot use key %q of the PKI Secret %q, which is left as it is; restore it from a backup", connect.PKISecretKey, nn.Name)
	}
	p := &pki{secret: s, bundle: b}
	if err := p.checkBelongs(c); err != nil {
		return nil, err
	}
	return p, nil
}

// checkBelongs returns an error unless this is the PKI of this very cluster. A restore from a backup gives the cluster
// another UID, so the ID of the cluster proves it as well: it is in the PKI, and was written to the external name.
func (p *pki) checkBelongs(c *v1alpha1.TalosCluster) error {
	name, id := p.secret.GetName(), p.bundle.ClusterID()
	if got := p.secret.GetLabels()[v1alpha1.LabelCluster]; got != c.GetName() {
		return errors.Errorf("the Secret %q has label %s=%q and not %q: it is not taken for the PKI of this cluster. If it is, set the label; else rename the TalosCluster", name, v1alpha1.LabelCluster, got, c.GetName())
	}
	switch en := meta.GetExternalName(c); {
	case en != "" && en != id:
		return errors.Errorf("the PKI Secret %q is that of cluster ID %q, and annotation %s says that this cluster is %q: nothing is done with it. Restore the right Secret from a backup", name, id, meta.AnnotationKeyExternalName, en)
	case en == "" && p.secret.GetAnnotations()[v1alpha1.AnnotationClusterUID] != string(c.GetUID()):
		return errors.Errorf("the PKI Secret %q was left by an earlier TalosCluster of this name, with cluster ID %q. To resume that cluster, set annotation %s: %q; to begin a new one, delete the Secret and its finalizer", name, id, meta.AnnotationKeyExternalName, id)
	}
	return nil
}

// refuseSecond returns an error if anything says that this cluster had a PKI before. Its machines trust that one alone:
// with another one nobody could ever talk to them again.
func refuseSecond(c *v1alpha1.TalosCluster) error {
	var evidence string
	switch {
	case meta.GetExternalName(c) != "":
		evidence = "annotation " + meta.AnnotationKeyExternalName
	case c.Status.AtProvider.ClusterID != "":
		evidence = "status.atProvider.clusterID"
	case c.GetAnnotations()[v1alpha1.AnnotationBootstrapped] != "":
		evidence = "annotation " + v1alpha1.AnnotationBootstrapped
	case !meta.GetExternalCreateSucceeded(c).IsZero():
		evidence = "annotation " + meta.AnnotationKeyExternalCreateSucceeded
	default:
		return nil
	}
	return errors.Errorf("the PKI Secret %q is gone, and %s says that this cluster had one: no other one is made, since the machines trust that one alone. Restore the Secret (key %q, label %s=%s) from a backup; if this cluster never had a machine, delete this TalosCluster and create it anew",
		connect.PKISecretName(c.GetName()), evidence, connect.PKISecretKey, v1alpha1.LabelCluster, c.GetName())
}

// create makes the PKI of a cluster, or copies the one to import, and reads it back. If somebody was faster, or a
// process before this one died right after it, what they made is the PKI.
func (k *keeper) create(ctx context.Context, c *v1alpha1.TalosCluster) (*pki, error) {
	if p, err := k.get(ctx, c); p != nil || err != nil {
		return p, err
	}
	if err := refuseSecond(c); err != nil {
		return nil, err
	}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace:   c.GetNamespace(),
		Name:        connect.PKISecretName(c.GetName()),
		Labels:      map[string]string{v1alpha1.LabelCluster: c.GetName()},
		Annotations: map[string]string{v1alpha1.AnnotationClusterUID: string(c.GetUID())},
		Finalizers:  []string{v1alpha1.FinalizerPKI},
	}}
	data, err := k.material(ctx, c, s)
	if err != nil {
		return nil, err
	}
	s.Data = map[string][]byte{connect.PKISecretKey: data}
	if err := k.kube.Create(ctx, s); err != nil && !kerrors.IsAlreadyExists(err) {
		return nil, errors.Wrapf(err, "cannot create the PKI Secret %q", s.GetName())
	}
	p, err := k.get(ctx, c)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, errors.Errorf("cannot read the PKI Secret %q back: it was deleted right after it was created", s.GetName())
	}
	return p, nil
}

// material returns what goes into a new PKI Secret: a copy of the bundle to import, noted on the Secret, or a new bundle.
func (k *keeper) material(ctx context.Context, c *v1alpha1.TalosCluster, s *corev1.Secret) ([]byte, error) {
	if c.Spec.ForProvider.SecretsRef == nil {
		b, err := machineconfig.NewBundle(c.Spec.ForProvider.Versions.Talos)
		if err != nil {
			return nil, errors.Wrap(err, "cannot make a PKI")
		}
		data, err := b.Marshal()
		return data, errors.Wrap(err, "cannot encode the PKI")
	}
	data, err := k.source(ctx, c)
	if err != nil {
		return nil, err
	}
	if _, err := machineconfig.ParseBundle(data); err != nil {
		return nil, errors.Wrapf(err, "cannot import spec.forProvider.secretsRef: key %q of Secret %q is not a Talos secrets bundle", sourceKey(c), c.Spec.ForProvider.SecretsRef.Name)
	}
	s.Annotations[v1alpha1.AnnotationInputsDigest] = digest(data)
	return data, nil
}

// source reads the bundle to import.
func (k *keeper) source(ctx context.Context, c *v1alpha1.TalosCluster) ([]byte, error) {
	ref, key := c.Spec.ForProvider.SecretsRef, sourceKey(c)
	s := &corev1.Secret{}
	if err := k.uncached.Get(ctx, types.NamespacedName{Namespace: c.GetNamespace(), Name: ref.Name}, s); err != nil {
		return nil, errors.Wrapf(err, "cannot read spec.forProvider.secretsRef: Secret %q in namespace %q", ref.Name, c.GetNamespace())
	}
	data, ok := s.Data[key]
	if !ok {
		return nil, errors.Errorf("cannot read spec.forProvider.secretsRef: Secret %q has no key %q", ref.Name, key)
	}
	return data, nil
}

// checkSource returns an error if the PKI could not be imported today as it was when it was created. The PKI is not
// touched by any of it: what an import decided, it decided once.
func (k *keeper) checkSource(ctx context.Context, c *v1alpha1.TalosCluster, p *pki) error {
	imported, kept := p.secret.GetAnnotations()[v1alpha1.AnnotationInputsDigest], p.secret.GetName()
	switch ref := c.Spec.ForProvider.SecretsRef; {
	case ref == nil && imported == "":
		return nil
	case ref == nil:
		return errors.Errorf("spec.forProvider.secretsRef has vanished: the PKI in Secret %q was imported and stays as it is; declare secretsRef again", kept)
	case imported == "":
		return errors.Errorf("spec.forProvider.secretsRef (%q) has appeared: the PKI in Secret %q was made without it and stays as it is; remove secretsRef", ref.Name, kept)
	}
	data, err := k.source(ctx, c)
	if err != nil {
		return errors.Wrapf(err, "the PKI in Secret %q was imported and stays as it is", kept)
	}
	if digest(data) != imported {
		return errors.Errorf("spec.forProvider.secretsRef: the bundle in Secret %q has changed since it was imported: the PKI in Secret %q stays as it is; put the bundle back as it was", c.Spec.ForProvider.SecretsRef.Name, kept)
	}
	return nil
}

// protected tells whether the Secret has everything that keeps it.
func (p *pki) protected() bool {
	return controllerutil.ContainsFinalizer(p.secret, v1alpha1.FinalizerPKI) && len(p.secret.GetOwnerReferences()) == 0
}

// checkKept returns an error if somebody has deleted the Secret: its finalizer keeps it, and nothing can undo a delete.
func (p *pki) checkKept() error {
	if p.secret.GetDeletionTimestamp() == nil {
		return nil
	}
	return errors.Errorf("the PKI Secret %q was deleted by somebody, and only its finalizer keeps it: save its contents now. It cannot be undeleted; once it is saved, remove its finalizer and restore it with its labels", p.secret.GetName())
}

// protect puts back what keeps the Secret, such as after a restore from a backup. The keys are not touched.
func (k *keeper) protect(ctx context.Context, p *pki) error {
	return k.patch(ctx, p, func(s *corev1.Secret) {
		controllerutil.AddFinalizer(s, v1alpha1.FinalizerPKI)
		s.SetOwnerReferences(nil)
	})
}

// remove deletes the Secret for good. Its finalizer goes last, so that a process that dies in between finds it again.
func (k *keeper) remove(ctx context.Context, p *pki) error {
	uid := p.secret.GetUID()
	if p.secret.GetDeletionTimestamp() == nil {
		err := k.kube.Delete(ctx, p.secret.DeepCopy(), client.Preconditions{UID: &uid})
		if err != nil && !kerrors.IsNotFound(err) {
			return errors.Wrapf(err, "cannot delete the PKI Secret %q", p.secret.GetName())
		}
	}
	// The delete changed the version of the Secret, so the finalizer is not taken from the one that was read before it.
	now := &corev1.Secret{}
	if err := k.uncached.Get(ctx, client.ObjectKeyFromObject(p.secret), now); err != nil {
		return errors.Wrapf(client.IgnoreNotFound(err), "cannot read the PKI Secret %q", p.secret.GetName())
	}
	if now.GetUID() != uid {
		return errors.Errorf("the PKI Secret %q was replaced while it was being deleted: nothing more is done with it", now.GetName())
	}
	err := k.patch(ctx, &pki{secret: now}, func(s *corev1.Secret) { controllerutil.RemoveFinalizer(s, v1alpha1.FinalizerPKI) })
	return client.IgnoreNotFound(err)
}

// patch changes the metadata of the Secret that was read, and fails if it was changed since.
func (k *keeper) patch(ctx context.Context, p *pki, change func(*corev1.Secret)) error {
	after := p.secret.DeepCopy()
	change(after)
	patch := client.MergeFromWithOptions(p.secret, client.MergeFromWithOptimisticLock{})
	return errors.Wrapf(k.kube.Patch(ctx, after, patch), "cannot update the PKI Secret %q", p.secret.GetName())
}

// sourceKey is the key of the Secret that holds the bundle to import.
func sourceKey(c *v1alpha1.TalosCluster) string {
	if key := c.Spec.ForProvider.SecretsRef.Key; key != "" {
		return key
	}
	return connect.PKISecretKey
}

// digest of a bundle, which says nothing about the keys in it.
func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
