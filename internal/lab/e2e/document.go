package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	topology "github.com/maesh/provider-ichor/apis/topology/v1alpha1"
)

// A document is a topology, or a claim, as a user keeps it in a file.
type document struct {
	metav1.TypeMeta `json:",inline"`

	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Spec struct {
		topology.TalosTopologySpec `json:",inline"`

		WriteConnectionSecretToRef *secretRef `json:"writeConnectionSecretToRef,omitempty"`
	} `json:"spec"`
}

// A secretRef names the Secret of a claim.
type secretRef struct {
	Name string `json:"name"`
}

// example is a topology that the documentation shows as well.
func (e *E2E) example(name string) (*document, error) {
	text, err := os.ReadFile(filepath.Join(e.lab.Root(), "examples", "topology", name))
	if err != nil {
		return nil, fmt.Errorf("cannot read an example: %w", err)
	}
	d := &document{}
	if err := yaml.UnmarshalStrict(text, d); err != nil {
		return nil, fmt.Errorf("cannot read the example %q: %w", name, err)
	}
	return d, nil
}

// write applies a document.
func (e *E2E) write(ctx context.Context, d *document) error {
	text, err := yaml.Marshal(d)
	if err != nil {
		return fmt.Errorf("cannot write %s %q: %w", d.Kind, d.Metadata.Name, err)
	}
	return e.apply(ctx, string(text))
}

// list one more machine, which is approved.
func list(machines *[]topology.Machine, name, address string) {
	*machines = append(*machines, topology.Machine{Name: name, Address: address, Approved: true})
}

// unlist a machine.
func unlist(machines *[]topology.Machine, name string) {
	*machines = slices.DeleteFunc(*machines, func(m topology.Machine) bool { return m.Name == name })
}
