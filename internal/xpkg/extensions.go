package xpkg

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/crossplane/crossplane-runtime/v2/pkg/xpkg"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// extensionsAnnotation is the value by which marketplaces find the manifest with an icon, a readme and more in an index.
const extensionsAnnotation = "xpkg-extensions"

// readmeAnnotation in a package's metadata is what people read first, in Markdown.
const readmeAnnotation = "meta.crossplane.io/readme"

// extensions is what marketplaces show of a package and what auditors ask for. Crossplane itself never reads it.
func (o Options) extensions(p Package, binary string) (mutate.IndexAddendum, error) {
	drawing, err := os.ReadFile(filepath.Join(o.Root, icon))
	if err != nil {
		return mutate.IndexAddendum{}, fmt.Errorf("cannot read the icon: %w", err)
	}
	meta, err := o.meta(p)
	if err != nil {
		return mutate.IndexAddendum{}, err
	}
	readme := meta.GetAnnotations()[readmeAnnotation]
	if readme == "" {
		return mutate.IndexAddendum{}, fmt.Errorf("%q has no annotation %s", p.Meta, readmeAnnotation)
	}
	files := []file{
		{path: "icons/icon.svg", mode: 0o644, content: drawing},
		{path: "readme/readme.md", mode: 0o644, content: []byte(readme)},
	}
	if p.Command != "" {
		content, err := sbom(p.Name, o.Version, binary)
		if err != nil {
			return mutate.IndexAddendum{}, err
		}
		files = append(files, file{path: "sbom/sbom.cdx.json", mode: 0o644, content: content})
	}
	layer, err := layerOf(files)
	if err != nil {
		return mutate.IndexAddendum{}, err
	}
	// No machine has this platform, so nothing ever runs the extensions.
	nowhere := v1.Platform{OS: "unknown", Architecture: "unknown"}
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: nowhere.OS, Architecture: nowhere.Architecture, RootFS: v1.RootFS{Type: "layers"}})
	if err != nil {
		return mutate.IndexAddendum{}, fmt.Errorf("cannot add the extensions of %s: %w", p.Name, err)
	}
	annotations := map[string]string{xpkg.AnnotationKey: extensionsAnnotation}
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, Annotations: annotations})
	if err != nil {
		return mutate.IndexAddendum{}, fmt.Errorf("cannot add the extensions of %s: %w", p.Name, err)
	}
	return mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Annotations: annotations, Platform: &nowhere}}, nil
}
