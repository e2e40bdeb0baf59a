package crossplane

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// unpack takes the program that a package runs out of the registry, for this machine's architecture, and writes it into dir. It
// returns the program's path and its arguments, as the image says.
func unpack(ctx context.Context, ref name.Reference, dir string) (path string, args []string, err error) {
	image, err := remote.Image(ref, remote.WithContext(ctx), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	if err != nil {
		return "", nil, fmt.Errorf("cannot pull %q: %w", ref.String(), err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return "", nil, fmt.Errorf("cannot read the configuration of %q: %w", ref.String(), err)
	}
	if len(config.Config.Entrypoint) == 0 {
		return "", nil, fmt.Errorf("%q says nothing of what it runs", ref.String())
	}
	path = filepath.Join(dir, filepath.Base(config.Config.Entrypoint[0]))
	files := mutate.Extract(image)
	defer files.Close() //nolint:errcheck // only read from
	if err := extract(files, config.Config.Entrypoint[0], path); err != nil {
		return "", nil, fmt.Errorf("cannot take the program out of %q: %w", ref.String(), err)
	}
	return path, append(config.Config.Entrypoint[1:], config.Config.Cmd...), nil
}

// extract writes one file of an archive, as a program that can be run.
func extract(archive io.Reader, want, path string) error {
	r := tar.NewReader(archive)
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("there is no file %q", want)
		}
		if err != nil {
			return err
		}
		if strings.TrimPrefix(header.Name, "/") != strings.TrimPrefix(want, "/") {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r) //nolint:gosec // as large as what this lab itself has pushed
		return errors.Join(err, f.Close())
	}
}
