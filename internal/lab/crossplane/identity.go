package crossplane

import (
	"context"
	"fmt"
	"path/filepath"

	pkgv1 "github.com/crossplane/crossplane/apis/v2/pkg/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tokenSeconds is a day: longer than any lab runs.
const tokenSeconds = 24 * 60 * 60

// identify makes the service account that a revision's pod would have, and a kubeconfig with a token of it. A Deployment, which
// nothing here carries out, tells Crossplane's RBAC manager which account the revision's rights go to.
func (r *packageRuntime) identify(ctx context.Context, rev pkgv1.PackageRevisionWithRuntime, dir string) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: rev.GetName()}}
	if err := createOrUpdate(ctx, r.kube, account); err != nil {
		return "", err
	}
	if err := createOrUpdate(ctx, r.kube, deploymentFor(rev)); err != nil {
		return "", err
	}
	seconds := int64(tokenSeconds)
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if err := r.kube.SubResource("token").Create(ctx, account, token); err != nil {
		return "", fmt.Errorf("cannot get a token for %q: %w", rev.GetName(), err)
	}
	const name = "pod"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: r.o.Config.Host, CertificateAuthorityData: r.o.Config.CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	if err != nil {
		return "", fmt.Errorf("cannot write a kubeconfig: %w", err)
	}
	return filepath.Join(dir, "kubeconfig"), writeFiles(dir, map[string][]byte{"kubeconfig": content})
}

func deploymentFor(rev client.Object) *appsv1.Deployment {
	kind := pkgv1.ProviderRevisionGroupVersionKind
	if _, ok := rev.(*pkgv1.FunctionRevision); ok {
		kind = pkgv1.FunctionRevisionGroupVersionKind
	}
	labels := map[string]string{"pkg.crossplane.io/revision": rev.GetName()}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace, Name: rev.GetName(),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rev, kind)},
		},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					ServiceAccountName: rev.GetName(),
					Containers:         []corev1.Container{{Name: "package-runtime", Image: "none"}},
				},
			},
		},
	}
}
