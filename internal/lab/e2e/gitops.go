package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	topology "github.com/maesh/provider-ichor/apis/topology/v1alpha1"
	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/lab/flux"
)

// What the example of Flux names: a repository, and the Kustomization of what is below clusters/.
const (
	fleet         = "fleet"
	kustomization = "clusters"
)

// pruned hands the claim to Flux, and then commits a repository in which it is no more. Deleting the Kustomization afterwards
// gives the claim back.
func (e *E2E) pruned(ctx context.Context) (err error) {
	controller, err := flux.Start(ctx, flux.Options{Config: e.lab.Config(), Dir: filepath.Join(e.lab.Dir, "flux"), Out: e.out})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, controller.Err(), controller.Stop()) }()
	if _, err := e.kubectl(ctx, "create", "namespace", flux.Namespace); err != nil {
		return err
	}
	git, err := flux.NewRepository(ctx, e.kube, fleet)
	if err != nil {
		return err
	}
	defer git.Close()
	claim, err := yaml.Marshal(e.claim)
	if err != nil {
		return fmt.Errorf("cannot write the claim: %w", err)
	}
	nothing := map[string]string{
		"base/note.yaml":     "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: base, namespace: " + flux.Namespace + "}\n",
		"clusters/note.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: clusters, namespace: " + flux.Namespace + "}\n",
	}
	everything := map[string]string{"base/note.yaml": nothing["base/note.yaml"], "clusters/three.yaml": string(claim)}
	if _, err := e.kubectl(ctx, "apply", "-f", filepath.Join("examples", "gitops", "flux.yaml")); err != nil {
		return err
	}
	if err := e.commits(ctx, git, everything, corev1.ConditionTrue, "ReconciliationSucceeded"); err != nil {
		return err
	}
	if err := e.survivesPrune(ctx, git, nothing); err != nil {
		return err
	}
	if err := e.commits(ctx, git, everything, corev1.ConditionTrue, "ReconciliationSucceeded"); err != nil {
		return err
	}
	return e.released(ctx)
}

// survivesPrune commits nothing, and wants Flux to show who refused and why, and nothing to happen.
func (e *E2E) survivesPrune(ctx context.Context, git *flux.Repository, nothing map[string]string) error {
	from, err := e.lab.Fleet.LastCall(ctx)
	if err != nil {
		return err
	}
	err = e.commits(ctx, git, nothing, corev1.ConditionFalse, "PruneFailed", topology.KindClaim+"/"+namespace+"/"+claimName, v1alpha1.AnnotationAllowDelete)
	if err != nil {
		return err
	}
	if err := e.quiet(ctx, 2*poll); err != nil {
		return err
	}
	c, err := e.topology(ctx, topology.KindClaim, claimName)
	if err != nil {
		return err
	}
	if c.GetDeletionTimestamp() != nil {
		return errors.New("the claim is being deleted")
	}
	return errors.Join(e.claimReady(ctx), e.voters(ctx, 3), e.untouched(ctx, "", from))
}

// commits files, and waits until Flux says this of them.
func (e *E2E) commits(
	ctx context.Context, git *flux.Repository, files map[string]string, status corev1.ConditionStatus, words ...string,
) error {
	revision, err := git.Commit(ctx, files)
	if err != nil {
		return err
	}
	e.sayf("      commit %s\n", revision)
	return e.await(ctx, "Flux says what becomes of it", func(ctx context.Context) error {
		k, err := e.kustomization(ctx)
		if err != nil {
			return err
		}
		if tried, _, _ := unstructured.NestedString(k.Object, "status", "lastAttemptedRevision"); tried != revision {
			return fmt.Errorf("it has tried %q last", tried)
		}
		return wants(k, "Ready", status, words...)
	})
}

// released deletes the Kustomization, which leaves the claim to whoever applies it next.
func (e *E2E) released(ctx context.Context) error {
	if _, err := e.kubectl(ctx, "delete", "kustomizations", "-n", flux.Namespace, kustomization, "--wait=false"); err != nil {
		return err
	}
	err := e.await(ctx, "the Kustomization is gone", func(ctx context.Context) error {
		_, err := e.kustomization(ctx)
		if err == nil {
			return errors.New("it is there")
		}
		if kerrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	return errors.Join(err, e.claimReady(ctx))
}

func (e *E2E) kustomization(ctx context.Context) (*unstructured.Unstructured, error) {
	k := &unstructured.Unstructured{}
	k.SetGroupVersionKind(schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"})
	return k, e.kube.Get(ctx, client.ObjectKey{Namespace: flux.Namespace, Name: kustomization}, k)
}
