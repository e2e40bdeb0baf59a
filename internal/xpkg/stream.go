package xpkg

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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
			documents = append(documents, string(bytes.TrimSpace(bytes.TrimPrefix(text, []byte("---\n")))))
			return err
		})
		if err != nil {
			return "", fmt.Errorf("cannot read the YAML files under %q: %w", path, err)
		}
	}
	return strings.Join(documents, separator), nil
}
