package xpkg

import (
	"archive/tar"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/crossplane/crossplane-runtime/v2/pkg/xpkg"
	"github.com/crossplane/crossplane-runtime/v2/pkg/xpkg/parser"
	extv1 "github.com/crossplane/crossplane/apis/v2/apiextensions/v1"
	pkgmetav1 "github.com/crossplane/crossplane/apis/v2/pkg/meta/v1"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// toy is a source tree with a function that compiles in a moment, and a configuration that needs it.
func toy(t *testing.T) (root string, function, configuration Package) {
	t.Helper()
	root = t.TempDir()
	for path, content := range map[string]string{
		"go.mod":                   "module " + modulePath + "\n\ngo 1.25\n",
		"internal/version/v.go":    "package version\n\nvar Version = \"none\"\n",
		"cmd/toy/main.go":          "package main\n\nimport \"" + modulePath + "/internal/version\"\n\nfunc main() { println(version.Version) }\n",
		"function/crossplane.yaml": "apiVersion: meta.pkg.crossplane.io/v1\nkind: Function\nmetadata: {name: toy, annotations: {meta.crossplane.io/readme: A toy.}}\nspec: {capabilities: [composition]}\n",
		"function/b.yaml":          crd("b"),
		"function/a.yaml":          "---\n" + crd("a"),
		"configuration/crossplane.yaml": `apiVersion: meta.pkg.crossplane.io/v1
kind: Configuration
metadata: {name: toys, annotations: {meta.crossplane.io/readme: Toys.}}
spec:
  dependsOn:
  - {apiVersion: pkg.crossplane.io/v1, kind: Function, package: toy, version: ">=v0.1.0"}
  - {apiVersion: pkg.crossplane.io/v1, kind: Function, package: registry.example.net/else/where, version: ">=v1.0.0"}
`,
		"examples/x.yaml":  "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shown}\n",
		"package/icon.svg": "<svg/>",
	} {
		write(t, filepath.Join(root, path), content)
	}
	function = Package{Name: "toy", Meta: "function/crossplane.yaml", Objects: []string{"function"}, Command: "toy"}
	configuration = Package{Name: "toys", Meta: "configuration/crossplane.yaml", Examples: []string{"examples"}}
	return root, function, configuration
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func crd(name string) string {
	return "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: " + name + ".example.org}\n"
}

func options(root string) Options {
	return Options{Root: root, Registry: "registry.example.org/ichor", Version: "v0.1.0", Architectures: DefaultArchitectures()}
}

func TestSameSourceSameBytes(t *testing.T) {
	root, function, _ := toy(t)
	again, _, _ := toy(t) // elsewhere, and later
	first, second := digest(t, build(t, options(root), function)), digest(t, build(t, options(again), function))
	if first != second {
		t.Errorf("two builds of the same source: %s and %s", first, second)
	}

	newer := options(root)
	newer.Version = "v0.1.1"
	if d := digest(t, build(t, newer, function)); d == first {
		t.Errorf("another version is the same package %s", d)
	}
}

func TestIndexHasOneImageForEachArchitecture(t *testing.T) {
	root, function, _ := toy(t)
	manifest, err := build(t, options(root), function).IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	got := make([]string, 0, len(manifest.Manifests))
	for _, m := range manifest.Manifests {
		got = append(got, m.Platform.String()+" "+m.Annotations[xpkg.AnnotationKey])
	}
	want := []string{"linux/amd64 ", "linux/arm64 ", "unknown/unknown xpkg-extensions"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("manifests: -want, +got:\n%s", diff)
	}
}

func TestRuntimeIsOneStaticBinary(t *testing.T) {
	root, function, _ := toy(t)
	built := build(t, options(root), function)
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		image := imageFor(t, built, arch)
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"/usr/local/bin/toy"}, config.Config.Entrypoint); diff != "" || config.Config.User != "65532:65532" || config.Architecture != arch {
			t.Errorf("%s: user %q, architecture %q, entrypoint -want, +got:\n%s", arch, config.Config.User, config.Architecture, diff)
		}
		files := layerFiles(t, layers(t, image)[0])
		if diff := cmp.Diff([]string{"tmp/", "usr/local/bin/toy"}, slices.Sorted(maps.Keys(files))); diff != "" {
			t.Errorf("%s: files -want, +got:\n%s", arch, diff)
		}
		binary, err := elf.NewFile(strings.NewReader(files["usr/local/bin/toy"]))
		if err != nil {
			t.Fatal(err)
		}
		if libraries, err := binary.ImportedLibraries(); binary.Machine != machine || len(libraries) > 0 || err != nil {
			t.Errorf("%s: a binary for %s that needs %v (%v)", arch, binary.Machine, libraries, err)
		}
	}
}

func TestContentIsWhereCrossplaneLooksForIt(t *testing.T) {
	root, function, configuration := toy(t)

	found := annotated(t, imageFor(t, build(t, options(root), function), "amd64"))
	if _, ok := found[xpkg.ExamplesAnnotation]; ok {
		t.Error("a package without examples has a layer for them")
	}
	p := parse(t, found[xpkg.PackageAnnotation][xpkg.StreamFile])
	names := make([]string, 0, len(p.GetObjects()))
	for _, o := range p.GetObjects() {
		names = append(names, o.(*apiextensionsv1.CustomResourceDefinition).GetName())
	}
	if diff := cmp.Diff([]string{"a.example.org", "b.example.org"}, names); diff != "" {
		t.Errorf("objects: -want, +got:\n%s", diff)
	}

	found = annotated(t, imageFor(t, build(t, options(root), configuration), "arm64"))
	if text := found[xpkg.ExamplesAnnotation][xpkg.XpkgExamplesFile]; !strings.Contains(text, "name: shown") {
		t.Errorf("examples: %q", text)
	}
}

func TestDependenciesAreLookedForInTheSameRegistry(t *testing.T) {
	root, _, configuration := toy(t)
	found := annotated(t, imageFor(t, build(t, options(root), configuration), "amd64"))
	meta := parse(t, found[xpkg.PackageAnnotation][xpkg.StreamFile]).GetMeta()[0].(*pkgmetav1.Configuration)
	got := make([]string, 0, len(meta.Spec.DependsOn))
	for _, d := range meta.Spec.DependsOn {
		got = append(got, *d.Package+" "+d.Version)
	}
	want := []string{"registry.example.org/ichor/toy >=v0.1.0", "registry.example.net/else/where >=v1.0.0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("dependencies: -want, +got:\n%s", diff)
	}
}

// TestCompositionsCallFunctionsAsInstalled installs under several registries: Crossplane names what it installs for another
// package after the path in the registry.
func TestCompositionsCallFunctionsAsInstalled(t *testing.T) {
	for registry, want := range map[string]string{
		"registry.example.org/ichor":      "ichor-toy",
		"registry.example.org:5000/a/b.c": "a-b-c-toy",
		"registry.example.org":            "toy",
	} {
		root, _, configuration := toy(t)
		write(t, filepath.Join(root, "configuration/composition.yaml"), `apiVersion: apiextensions.crossplane.io/v1
kind: Composition
metadata: {name: toys}
spec:
  compositeTypeRef: {apiVersion: example.org/v1, kind: Toy}
  mode: Pipeline
  pipeline: [{step: toy, functionRef: {name: toy}}]
`)
		configuration.Objects = []string{"configuration"}
		o := options(root)
		o.Registry = registry
		found := annotated(t, imageFor(t, build(t, o, configuration), "amd64"))
		composition := parse(t, found[xpkg.PackageAnnotation][xpkg.StreamFile]).GetObjects()[0].(*extv1.Composition)
		if got := composition.Spec.Pipeline[0].FunctionRef.Name; got != want {
			t.Errorf("at %s the Composition calls %q, want %q", registry, got, want)
		}
	}
}

func TestExtensionsSayWhatIsInside(t *testing.T) {
	root, function, _ := toy(t)
	built := build(t, options(root), function)
	manifest, err := built.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	image, err := built.Image(manifest.Manifests[2].Digest)
	if err != nil {
		t.Fatal(err)
	}
	files := layerFiles(t, layers(t, image)[0])
	if diff := cmp.Diff([]string{"icons/icon.svg", "readme/readme.md", "sbom/sbom.cdx.json"}, slices.Sorted(maps.Keys(files))); diff != "" {
		t.Errorf("files -want, +got:\n%s", diff)
	}
	bom := &cdx.BOM{}
	if err := json.Unmarshal([]byte(files["sbom/sbom.cdx.json"]), bom); err != nil {
		t.Fatal(err)
	}
	if text := files["readme/readme.md"]; text != "A toy." {
		t.Errorf("readme: %q", text)
	}
	if main := bom.Metadata.Component.PackageURL; main != "pkg:golang/"+modulePath+"@v0.1.0" || len(*bom.Components) == 0 {
		t.Errorf("bill of materials of %q with %d components", main, len(*bom.Components))
	}
}

func TestBadPackagesAreRefused(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(o *Options, p *Package, root string)
		want   string
	}{
		"Version":  {reason: "Nothing can depend on a version that does not compare.", change: func(o *Options, _ *Package, _ string) { o.Version = "861b0ad" }, want: "no semantic version"},
		"Registry": {reason: "Crossplane refuses a host without a dot.", change: func(o *Options, _ *Package, _ string) { o.Registry = "localhost:5000/ichor" }, want: "contains a dot"},
		"Objects": {reason: "A function may bring CRDs only.", change: func(_ *Options, p *Package, _ string) {
			p.Objects = append(p.Objects, "examples")
		}, want: "ConfigMap"},
		"Binary": {reason: "What does not compile is no package.", change: func(_ *Options, p *Package, _ string) { p.Command = "none" }, want: "cannot compile none for amd64"},
		"Readme": {reason: "What people read first may not be missing.", change: func(_ *Options, p *Package, root string) {
			p.Meta, p.Objects = "silent/crossplane.yaml", nil
			write(t, filepath.Join(root, p.Meta), "apiVersion: meta.pkg.crossplane.io/v1\nkind: Function\nmetadata: {name: toy}\n")
		}, want: "has no annotation meta.crossplane.io/readme"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			root, function, _ := toy(t)
			o := options(root)
			tc.change(&o, &function, root)
			if _, err := Build(t.Context(), o, function); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nBuild(...): %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

func TestPushedPackageIsWhatWasBuilt(t *testing.T) {
	root, function, _ := toy(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	o := options(root)
	o.Registry = strings.TrimPrefix(server.URL, "http://") + "/ichor"

	built := build(t, o, function)
	if err := Push(t.Context(), o, function, built); err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(o.Reference(function))
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Index(ref, remote.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := digest(t, pulled), digest(t, built); got != want {
		t.Errorf("pulled %s, built %s", got, want)
	}
	if err := validate.Index(pulled); err != nil {
		t.Errorf("the pulled package is broken: %v", err)
	}
}

func TestSavedPackagesCanBePushedByOthers(t *testing.T) {
	root, function, _ := toy(t)
	o := options(root)
	paths, err := Save(o, function, build(t, o, function), filepath.Join(root, "out"))
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(paths))
	for _, p := range paths {
		names = append(names, filepath.Base(p))
		image, err := tarball.ImageFromPath(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		image, err = xpkg.AnnotateLayers(image)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := annotated(t, image)[xpkg.PackageAnnotation]; !ok {
			t.Errorf("%s has no layer with the package's objects", p)
		}
	}
	if diff := cmp.Diff([]string{"toy-v0.1.0-amd64.xpkg", "toy-v0.1.0-arm64.xpkg"}, names); diff != "" {
		t.Errorf("files -want, +got:\n%s", diff)
	}
}

// TestProvider builds the real provider, for one architecture: it is the content that is looked at.
func TestProvider(t *testing.T) {
	o := options("../..")
	o.Architectures = []string{"amd64"}
	found := annotated(t, imageFor(t, build(t, o, Provider), "amd64"))
	p := parse(t, found[xpkg.PackageAnnotation][xpkg.StreamFile])
	meta, ok := p.GetMeta()[0].(*pkgmetav1.Provider)
	if !ok || !slices.Contains(meta.Spec.Capabilities, pkgmetav1.ProviderCapabilitySafeStart) {
		t.Errorf("metadata %T has no capability %q", p.GetMeta()[0], pkgmetav1.ProviderCapabilitySafeStart)
	}
	kinds, webhooks := map[string]bool{}, 0
	for _, o := range p.GetObjects() {
		switch o := o.(type) {
		case *apiextensionsv1.CustomResourceDefinition:
			kinds[o.Spec.Names.Kind] = true
		case *admissionv1.ValidatingWebhookConfiguration:
			webhooks++
		}
	}
	for _, k := range []string{"TalosCluster", "TalosMachine", "ProviderConfig", "ClusterProviderConfig", "ProviderConfigUsage"} {
		if !kinds[k] {
			t.Errorf("kind %s is missing", k)
		}
	}
	if webhooks != 1 { // Crossplane gives each the name of the package, so a second one would replace the first.
		t.Errorf("%d ValidatingWebhookConfigurations, want 1", webhooks)
	}
	if text := found[xpkg.ExamplesAnnotation][xpkg.XpkgExamplesFile]; !strings.Contains(text, "kind: TalosMachine") {
		t.Error("the examples show no TalosMachine")
	}
}

// TestEveryPackage builds the real packages that TestProvider does not look at: Crossplane's linter finds nothing wrong, and
// both say what they can do.
func TestEveryPackage(t *testing.T) {
	o := options("../..")
	o.Architectures = []string{"amd64"}
	for _, p := range []Package{Function, Configuration} {
		found := annotated(t, imageFor(t, build(t, o, p), "amd64"))
		content := parse(t, found[xpkg.PackageAnnotation][xpkg.StreamFile])
		switch meta := content.GetMeta()[0].(type) {
		case *pkgmetav1.Function:
			if !slices.Contains(meta.Spec.Capabilities, pkgmetav1.FunctionCapabilityComposition) {
				t.Errorf("%s has no capability to compose", p.Name)
			}
		case *pkgmetav1.Configuration:
			if n := len(content.GetObjects()); n != 4 || len(meta.Spec.DependsOn) != 2 {
				t.Errorf("%s has %d objects and needs %d packages, want two XRDs, two Compositions and two packages", p.Name, n, len(meta.Spec.DependsOn))
			}
			if text := found[xpkg.ExamplesAnnotation][xpkg.XpkgExamplesFile]; !strings.Contains(text, "kind: TalosTopology") {
				t.Errorf("the examples of %s show no topology", p.Name)
			}
		}
	}
}

func build(t *testing.T, o Options, p Package) v1.ImageIndex {
	t.Helper()
	built, err := Build(context.WithoutCancel(t.Context()), o, p)
	if err != nil {
		t.Fatal(err)
	}
	return built
}

func digest(t *testing.T, i v1.ImageIndex) v1.Hash {
	t.Helper()
	d, err := i.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func imageFor(t *testing.T, index v1.ImageIndex, arch string) v1.Image {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range manifest.Manifests {
		if m.Platform.Architecture == arch {
			image, err := index.Image(m.Digest)
			if err != nil {
				t.Fatal(err)
			}
			return image
		}
	}
	t.Fatalf("there is no image for %s", arch)
	return nil
}

func layers(t *testing.T, image v1.Image) []v1.Layer {
	t.Helper()
	all, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// annotated are the files of the layers that Crossplane finds by annotation: by annotation, then by path.
func annotated(t *testing.T, image v1.Image) map[string]map[string]string {
	t.Helper()
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]map[string]string{}
	for i, l := range manifest.Layers {
		if a := l.Annotations[xpkg.AnnotationKey]; a != "" {
			found[a] = layerFiles(t, layers(t, image)[i])
		}
	}
	return found
}

func layerFiles(t *testing.T, layer v1.Layer) map[string]string {
	t.Helper()
	content, err := layer.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	files := map[string]string{}
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(text)
	}
}

// parse reads a package as Crossplane does.
func parse(t *testing.T, stream string) *parser.Package {
	t.Helper()
	meta, err := xpkg.BuildMetaScheme()
	if err != nil {
		t.Fatal(err)
	}
	objects, err := xpkg.BuildObjectScheme()
	if err != nil {
		t.Fatal(err)
	}
	p, err := parser.New(meta, objects).Parse(t.Context(), io.NopCloser(strings.NewReader(stream)))
	if err != nil {
		t.Fatal(err)
	}
	if len(p.GetMeta()) != 1 {
		t.Fatalf("%d metadata objects", len(p.GetMeta()))
	}
	return p
}
