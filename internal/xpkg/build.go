package xpkg

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/xpkg"
	"github.com/crossplane/crossplane-runtime/v2/pkg/xpkg/parser"
	"github.com/crossplane/crossplane-runtime/v2/pkg/xpkg/parser/examples"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// Build builds a package: one image for each architecture, and one manifest more for what marketplaces show. It fails if
// Crossplane's own linter finds anything wrong. The same source, toolchain and options give the same digest.
func Build(ctx context.Context, o Options, p Package) (v1.ImageIndex, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("cannot build %s: %w", p.Name, err)
	}
	work, err := os.MkdirTemp("", "ichor-xpkg-")
	if err != nil {
		return nil, fmt.Errorf("cannot make a place for binaries: %w", err)
	}
	defer os.RemoveAll(work) //nolint:errcheck // everything in it is in the images by then

	index := v1.ImageIndex(empty.Index)
	binary := func(arch string) string { return filepath.Join(work, arch) }
	for _, arch := range o.Architectures {
		if p.Command != "" {
			if err := o.compile(ctx, p.Command, arch, binary(arch)); err != nil {
				return nil, err
			}
		}
		image, err := o.image(ctx, p, arch, binary(arch))
		if err != nil {
			return nil, fmt.Errorf("cannot build %s for %s: %w", p.Name, arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	more, err := o.extensions(p, binary(o.Architectures[0]))
	if err != nil {
		return nil, err
	}
	return mutate.AppendManifests(index, more), nil
}

// image is a package for one architecture: its runtime, and above it the layers that Crossplane and marketplaces read.
func (o Options) image(ctx context.Context, p Package, arch, binary string) (v1.Image, error) {
	base, err := o.runtimeImage(p, arch, binary)
	if err != nil {
		return nil, err
	}
	content, err := o.stream(p)
	if err != nil {
		return nil, err
	}
	shown, err := o.examples(p)
	if err != nil {
		return nil, err
	}
	metaScheme, err := xpkg.BuildMetaScheme()
	if err != nil {
		return nil, err
	}
	objectScheme, err := xpkg.BuildObjectScheme()
	if err != nil {
		return nil, err
	}
	builder := xpkg.New(parser.NewEchoBackend(content), shown, parser.New(metaScheme, objectScheme), examples.New())
	image, _, err := builder.Build(ctx, xpkg.WithBase(base))
	if err != nil {
		return nil, err
	}
	return xpkg.AnnotateLayers(image)
}

// examples are the source of what marketplaces show. A package without any gets no layer for them.
func (o Options) examples(p Package) (parser.Backend, error) {
	if len(p.Examples) == 0 {
		return noExamples{}, nil
	}
	text, err := o.concatenate(p.Examples, "")
	return parser.NewEchoBackend(text), err
}

// noExamples is a source that does not exist, in the words that the builder understands.
type noExamples struct{}

func (noExamples) Init(context.Context, ...parser.BackendOption) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("")), os.ErrNotExist
}
