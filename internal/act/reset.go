package act

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/permit"
	"github.com/maesh/provider-ichor/internal/talos"
)

// dedicatedVolumes is the first Talos version that keeps what earlier ones kept on EPHEMERAL on volumes of their own.
var dedicatedVolumes = version.MustParseSemantic("v1.14.0-beta.0")

// A Resetter can be wiped. *talos.Client satisfies it.
type Resetter interface {
	Prover
	Reset(ctx context.Context, o talos.ResetOptions) error
}

// Reset wipes the target. The call returns at once and its success proves nothing: Talos answers OK to a reset that it
// refuses. That the machine answers in maintenance mode is the proof.
func (a *Actor) Reset(ctx context.Context, lock Lock, p permit.Permit, step string, t Target, m Resetter, o talos.ResetOptions) error {
	if err := a.irreversible(ctx, lock, p, t, step, m); err != nil {
		return err
	}
	if err := m.Reset(ctx, o); err != nil {
		return fmt.Errorf("cannot reset %q: %w", t.Name, err)
	}
	return nil
}

// WipeLabels returns the volumes that a reset wipes: STATE and EPHEMERAL always, since a machine that keeps one of them
// keeps keys or old etcd data, those that the machine's Talos version keeps apart from EPHEMERAL, and what was declared
// besides, each once. Talos refuses a label that it does not know, so none is added on a version that is not known.
func WipeLabels(role facts.Role, talosVersion facts.Known[string], declared []string) []string {
	labels := []string{"STATE", "EPHEMERAL"}
	if text, ok := talosVersion.Get(); ok {
		if v, err := version.ParseSemantic(text); err == nil && v.AtLeast(dedicatedVolumes) {
			labels = append(labels, "CRI", "KUBELET", "LOG")
			if role == facts.ControlPlane {
				labels = append(labels, "ETCD")
			}
		}
	}
	for _, l := range declared {
		if !slices.Contains(labels, l) {
			labels = append(labels, l)
		}
	}
	return labels
}
