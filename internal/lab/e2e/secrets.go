package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/internal/lab/crossplane"
	"github.com/maesh/provider-ichor/internal/xpkg"
)

// minSecrets is how many secrets a cluster has at least. Fewer would mean that the story does not know where they are.
const minSecrets = 11

// noSecrets looks for the cluster's secrets in every object of the management cluster, in the logs of core and packages, and in
// what packages tell Prometheus.
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
	for _, p := range []xpkg.Package{xpkg.Provider, xpkg.Function} {
		text, err := e.metrics(ctx, p)
		if err != nil {
			return err
		}
		if secret := e.secrets.Find(text); secret != "" {
			return fmt.Errorf("the metrics of %s have %s", p.Name, secret)
		}
	}
	e.sayf("        looked for %d texts in %d objects of %d kinds, %d logs and all metrics\n", len(e.secrets), objects, kinds, len(logs))
	return nil
}

// metrics are what a package tells Prometheus.
func (e *E2E) metrics(ctx context.Context, p xpkg.Package) (string, error) {
	pod, err := e.crossplane.Address(p.Name)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+pod.String()+metricsPort+"/metrics", nil)
	if err != nil {
		return "", fmt.Errorf("cannot ask %s for its metrics: %w", p.Name, err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("cannot ask %s for its metrics: %w", p.Name, err)
	}
	text, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		return "", fmt.Errorf("cannot read the metrics of %s: %w", p.Name, err)
	}
	if answer.StatusCode != http.StatusOK || len(text) == 0 {
		return "", fmt.Errorf("%s answers with status %d and %d bytes of metrics", p.Name, answer.StatusCode, len(text))
	}
	return string(text), nil
}

// learnSecrets adds those of every cluster that there is now.
func (e *E2E) learnSecrets(ctx context.Context) error {
	all := &corev1.SecretList{}
	if err := e.kube.List(ctx, all, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("cannot list Secrets: %w", err)
	}
	for i := range all.Items {
		if err := e.secrets.LearnFrom(&all.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// mayHoldSecrets is true for Secrets where a cluster's owner looks for them, and where core keeps those of an XTalosTopology.
func mayHoldSecrets(kind schema.GroupVersionResource, o *unstructured.Unstructured) bool {
	return kind.Group == "" && kind.Resource == "secrets" && (o.GetNamespace() == namespace || o.GetNamespace() == crossplane.Namespace)
}
