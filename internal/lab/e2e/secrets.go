package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/internal/lab/crossplane"
)

// minSecrets is how many secrets a cluster has at least. Fewer would mean that the story does not know where they are.
const minSecrets = 11

// noSecrets looks for the cluster's secrets in every object of the management cluster, and in the logs of core and packages.
func (e *E2E) noSecrets(ctx context.Context) error {
	if err := e.learnSecrets(ctx); err != nil {
		return err
	}
	if n := len(e.secrets); n < 2*minSecrets {
		return fmt.Errorf("only %d secret texts are known", n)
	}
	objects, kinds, err := e.secrets.Scan(ctx, e.lab.Config(), mayHoldSecrets)
	if err != nil {
		return err
	}
	logs, err := filepath.Glob(filepath.Join(e.lab.Dir, "crossplane", "*.log"))
	if err != nil || len(logs) < 4 { // Core, its RBAC manager, the provider and the function.
		return fmt.Errorf("%d logs were found, want 4 or more: %w", len(logs), err)
	}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			return fmt.Errorf("cannot read a log: %w", err)
		}
		if secret := e.secrets.Find(string(text)); secret != "" {
			return fmt.Errorf("%s has %s", filepath.Base(log), secret)
		}
	}
	e.sayf("        looked for %d texts in %d objects of %d kinds and in %d logs\n", len(e.secrets), objects, kinds, len(logs))
	return nil
}

// learnSecrets adds those of every cluster that there is now.
func (e *E2E) learnSecrets(ctx context.Context) error {
	all := &corev1.SecretList{}
	if err := e.kube.List(ctx, all, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("cannot list Secrets: %w", err)
	}
	for i := range all.Items {
		s := &all.Items[i]
		for _, key := range []string{"secrets.yaml", "kubeconfig", "talosconfig"} {
			if err := e.secrets.Learn(s.GetName()+"/"+key, s.Data[key]); err != nil {
				return err
			}
		}
	}
	return nil
}

// mayHoldSecrets is true for Secrets where a cluster's owner looks for them, and where core keeps those of an XTalosTopology.
func mayHoldSecrets(kind schema.GroupVersionResource, o *unstructured.Unstructured) bool {
	return kind.Group == "" && kind.Resource == "secrets" && (o.GetNamespace() == namespace || o.GetNamespace() == crossplane.Namespace)
}
