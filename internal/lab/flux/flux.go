// Package flux runs Flux's real kustomize-controller against a Kubernetes API, and plays the one part that needs a network:
// Git, with the controller that fetches from it. It must never apply or delete anything itself.
package flux

import (
	"context"
	_ "embed" // for the kinds of Flux's source-controller
	"fmt"
	"io"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"

	"github.com/maesh/provider-ichor/internal/lab/controlplane"
	"github.com/maesh/provider-ichor/internal/lab/tools"
)

// Namespace that Flux's own objects are usually in. Whoever uses it makes it.
const Namespace = "flux-system"

// sources are the kinds of source-controller that kustomize-controller watches, without their schemas.
//
//go:embed sources.yaml
var sources []byte

// Options say what Start starts.
type Options struct {
	// Config reaches the API server as an administrator.
	Config *rest.Config

	// Dir keeps the log, flux.log, and what the controller needs.
	Dir string

	// Out gets progress of builds.
	Out io.Writer
}

// Start installs Flux's kinds and starts its controller, which listens nowhere. The process is the caller's to stop.
func Start(ctx context.Context, o Options) (*controlplane.Process, error) {
	programs, err := tools.Ensure(ctx, o.Out, tools.KustomizeController)
	if err != nil {
		return nil, err
	}
	source, err := tools.ModuleDir(ctx, tools.KustomizeController)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := controlplane.Kubeconfig(o.Config)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make a place for Flux: %w", err)
	}
	access, kinds := filepath.Join(o.Dir, "kubeconfig"), filepath.Join(o.Dir, "sources.yaml")
	for path, content := range map[string][]byte{access: kubeconfig, kinds: sources} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return nil, fmt.Errorf("cannot write what Flux needs: %w", err)
		}
	}
	if err := controlplane.InstallCRDs(ctx, o.Config, kinds, filepath.Join(source, "config", "crd")); err != nil {
		return nil, err
	}
	return controlplane.StartProcess(controlplane.Command{
		Name: "kustomize-controller", Path: programs[tools.KustomizeController.Name], Log: filepath.Join(o.Dir, "flux.log"),
		Args: []string{"--metrics-addr=0", "--health-addr=0", "--requeue-dependency=1s", "--min-retry-delay=100ms", "--max-retry-delay=1s"},
		Env:  []string{"KUBECONFIG=" + access, "TMPDIR=" + o.Dir},
	})
}
