package xpkg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/crossplane/crossplane-runtime/v2/pkg/xpkg"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Push uploads a built package to where Options say, with the credentials that container tools of this machine have.
func Push(ctx context.Context, o Options, p Package, built v1.ImageIndex) error {
	tag, err := name.NewTag(o.Reference(p), name.StrictValidation)
	if err != nil {
		return fmt.Errorf("cannot push %s: %w", p.Name, err)
	}
	if err := remote.WriteIndex(tag, built, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("cannot push %s: %w", p.Name, err)
	}
	return nil
}

// Save writes a built package as files that the crossplane CLI can push: one for each architecture, named like
// provider-ichor-v0.1.0-amd64.xpkg. It returns their paths.
func Save(o Options, p Package, built v1.ImageIndex, dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make a place for packages: %w", err)
	}
	tag, err := name.NewTag(o.Reference(p), name.StrictValidation)
	if err != nil {
		return nil, fmt.Errorf("cannot save %s: %w", p.Name, err)
	}
	manifest, err := built.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("cannot save %s: %w", p.Name, err)
	}
	var paths []string
	for _, m := range manifest.Manifests {
		if m.Annotations[xpkg.AnnotationKey] == extensionsAnnotation {
			continue // The format has no room for it.
		}
		image, err := built.Image(m.Digest)
		if err != nil {
			return nil, fmt.Errorf("cannot save %s: %w", p.Name, err)
		}
		path := filepath.Join(dir, fmt.Sprintf("%s-%s-%s%s", p.Name, o.Version, m.Platform.Architecture, xpkg.XpkgExtension))
		if err := saveImage(path, tag, image); err != nil {
			return nil, fmt.Errorf("cannot save %s: %w", p.Name, err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

func saveImage(path string, tag name.Tag, image v1.Image) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(tarball.Write(tag, image, f), f.Close())
}
