package xpkg

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

const (
	// modulePath of this repository.
	modulePath = "github.com/maesh/provider-ichor"

	// binaries is where a runtime's binary lies in its image.
	binaries = "/usr/local/bin/"

	// nonroot is the user of a runtime unless Crossplane sets another: a number, so that runAsNonRoot can be checked.
	nonroot = "65532:65532"

	// interruptGrace is how long an interrupted Go command may take to stop its compilers.
	interruptGrace = 10 * time.Second
)

// compile builds a command for Linux into a file. Whatever could make the result depend on this machine is fixed.
func (o Options) compile(ctx context.Context, command, arch, output string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath",
		"-ldflags=-s -w -X "+modulePath+"/internal/version.Version="+o.Version, "-o", output, "./cmd/"+command)
	cmd.Dir = o.Root
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=",
		"GOWORK=off", "GOFLAGS=-mod=readonly -buildvcs=false")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = interruptGrace
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot compile %s for %s: %w: %s", command, arch, err, bytes.TrimSpace(said))
	}
	return nil
}

// runtimeImage is the image that runs a package: a static binary and a place for temporary files, nothing else. A package
// without a command gets an image without files.
func (o Options) runtimeImage(p Package, arch, binary string) (v1.Image, error) {
	config := &v1.ConfigFile{
		OS: "linux", Architecture: arch,
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{Labels: map[string]string{
			"org.opencontainers.image.title":    p.Name,
			"org.opencontainers.image.version":  o.Version,
			"org.opencontainers.image.source":   "https://" + modulePath,
			"org.opencontainers.image.licenses": "Apache-2.0",
		}},
	}
	if p.Command == "" {
		return mutate.ConfigFile(empty.Image, config)
	}
	config.Config.User = nonroot
	config.Config.WorkingDir = "/"
	config.Config.Entrypoint = []string{binaries + p.Command}
	image, err := mutate.ConfigFile(empty.Image, config)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("cannot read the binary: %w", err)
	}
	layer, err := layerOf([]file{{path: binaries + p.Command, mode: 0o755, content: content}, {path: "/tmp/", mode: 0o1777}})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(image, layer)
}
