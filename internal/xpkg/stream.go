package xpkg

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/xpkg"
	"github.com/google/go-containerregistry/pkg/name"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// separator of YAML documents.
const separator = "\n---\n"

// stream is a package's content as one YAML stream: the metadata, then the objects in the order of their files' names.
func (o Options) stream(p Package) (string, error) {
	meta, err := o.meta(p)
	if err != nil {
		return "", err
	}
	text, err := yaml.Marshal(meta.Object)
	if err != nil {
		return "", fmt.Errorf("cannot write the metadata of %s: %w", p.Name, err)
	}
	objects, err := o.concatenate(p.Objects, filepath.Base(p.Meta))
	if err != nil {
		return "", err
	}
	return string(text) + separator + objects, nil
}

// meta is the package's metadata. A package that it depends on is named there without a registry; since no registry is named
// in this repository, it is looked for where this package goes.
func (o Options) meta(p Package) (*unstructured.Unstructured, error) {
	text, err := os.ReadFile(filepath.Join(o.Root, p.Meta))
	if err != nil {
		return nil, fmt.Errorf("cannot read the metadata of %s: %w", p.Name, err)
	}
	meta := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(text, &meta.Object); err != nil {
		return nil, fmt.Errorf("cannot parse %q: %w", p.Meta, err)
	}
	needs, _, err := unstructured.NestedSlice(meta.Object, "spec", "dependsOn")
	if err != nil || len(needs) == 0 {
		return meta, err
	}
	for _, n := range needs {
		need, _ := n.(map[string]any)
		if name, _ := need["package"].(string); name != "" && !strings.Contains(name, "/") {
			need["package"] = o.repository(name)
		}
	}
	return meta, unstructured.SetNestedSlice(meta.Object, needs, "spec", "dependsOn")
}

// concatenate returns the YAML files under the paths as one stream, without those of the name skip.
func (o Options) concatenate(paths []string, skip string) (string, error) {
	var documents []string
	for _, path := range paths {
		err := filepath.WalkDir(filepath.Join(o.Root, path), func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(file) != ".yaml" || entry.Name() == skip {
				return err
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			text, err = o.installedNames(bytes.TrimSpace(bytes.TrimPrefix(text, []byte("---\n"))))
			documents = append(documents, string(text))
			return err
		})
		if err != nil {
			return "", fmt.Errorf("cannot read the YAML files under %q: %w", path, err)
		}
	}
	return strings.Join(documents, separator), nil
}

// installedNames makes a Composition call functions by the names that Crossplane gives them when it installs what a package
// depends on: the path in their registry as a DNS label. Here they are named without a registry, as in the metadata; a Composition
// that names them otherwise waits for ever. Other objects stay as they are.
func (o Options) installedNames(text []byte) ([]byte, error) {
	composition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &composition.Object); err != nil || composition.GetKind() != "Composition" {
		return text, nil //nolint:nilerr // No single object, so no Composition; what it is shows when the package is read.
	}
	steps, _, err := unstructured.NestedSlice(composition.Object, "spec", "pipeline")
	if err != nil {
		return nil, fmt.Errorf("cannot read the pipeline of Composition %q: %w", composition.GetName(), err)
	}
	for _, s := range steps {
		step, _ := s.(map[string]any)
		function, _, err := unstructured.NestedString(step, "functionRef", "name")
		if err != nil {
			return nil, fmt.Errorf("cannot read the pipeline of Composition %q: %w", composition.GetName(), err)
		}
		repository, err := name.NewRepository(o.repository(function))
		if err != nil {
			return nil, fmt.Errorf("cannot read the address of function %q: %w", function, err)
		}
		if err := unstructured.SetNestedField(step, xpkg.ToDNSLabel(repository.RepositoryStr()), "functionRef", "name"); err != nil {
			return nil, fmt.Errorf("cannot name function %q: %w", function, err)
		}
	}
	if err := unstructured.SetNestedSlice(composition.Object, steps, "spec", "pipeline"); err != nil {
		return nil, fmt.Errorf("cannot write the pipeline of Composition %q: %w", composition.GetName(), err)
	}
	return yaml.Marshal(composition.Object)
}
