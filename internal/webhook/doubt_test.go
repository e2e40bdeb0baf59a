package webhook

import (
	"context"
	"errors"
	"testing"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/internal/decide/facts"
)

var errDown = errors.New("the API server is down")

// down reads from an API server that does not answer.
type down struct{ client.Reader }

func (down) List(context.Context, client.ObjectList, ...client.ListOption) error { return errDown }

func (down) Objects(context.Context, types.NamespacedName) (facts.Cluster, error) {
	return facts.Cluster{}, errDown
}

// TestDoubtRefuses: what cannot be read is not admitted.
func TestDoubtRefuses(t *testing.T) {
	v := &machineValidator{reader: down{}, survey: down{}}
	before, m := newMachine("ns", "m", allowed), newMachine("ns", "m", allowed)
	m.Spec.ManagementPolicies = xpv2.ManagementPolicies{xpv2.ManagementActionAll} // The API server's default.
	asked := map[string]func() error{
		"Create": func() error { _, err := v.ValidateCreate(t.Context(), m); return err },
		"Update": func() error { _, err := v.ValidateUpdate(t.Context(), before, m); return err },
		"Delete": func() error { _, err := v.ValidateDelete(t.Context(), m); return err },
	}
	for name, ask := range asked {
		if err := ask(); !errors.Is(err, errDown) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
