package webhook

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/deleteguard"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/survey"
)

// An objectSurveyor reads the objects of the management cluster that say how a cluster is declared.
type objectSurveyor interface {
	Objects(ctx context.Context, cluster types.NamespacedName) (facts.Cluster, error)
}

type machineValidator struct {
	reader client.Reader
	survey objectSurveyor
}

// ValidateCreate refuses an address that cannot be one, and a machine that is declared already.
func (v *machineValidator) ValidateCreate(ctx context.Context, m *v1alpha1.TalosMachine) (admission.Warnings, error) {
	return nil, v.validate(ctx, m)
}

// ValidateUpdate refuses the same as ValidateCreate, but never a change of an object that is being deleted: what keeps a
// finalizer from being taken off helps nobody.
func (v *machineValidator) ValidateUpdate(ctx context.Context, before, m *v1alpha1.TalosMachine) (admission.Warnings, error) {
	a, b := before.Spec.ForProvider, m.Spec.ForProvider
	if m.GetDeletionTimestamp() != nil || (a.Address == b.Address && a.UUID == b.UUID) {
		return nil, nil
	}
	return nil, v.validate(ctx, m)
}

// ValidateDelete refuses a delete that nobody allowed, and one that would leave too few control planes.
func (v *machineValidator) ValidateDelete(ctx context.Context, m *v1alpha1.TalosMachine) (admission.Warnings, error) {
	if m.GetDeletionTimestamp() != nil || m.LeftAlone() {
		return nil, nil // Nothing changes, or nothing will be touched.
	}
	record, err := m.RemovalRecord()
	if err != nil {
		return nil, err
	}
	if record != nil && record.Completed {
		return nil, nil // The machine was removed already, by the teardown of its cluster.
	}
	if m.ClusterName() == "" {
		// Its selector was never resolved, so it was never a machine of any cluster, and there is none to survey.
		if r := deleteguard.CheckDelete("TalosMachine", m.GetName(), m.GetAnnotations()[v1alpha1.AnnotationAllowDelete] == "true"); r != nil {
			return nil, refusal(r)
		}
		return nil, nil
	}
	f, err := v.survey.Objects(ctx, types.NamespacedName{Namespace: m.GetNamespace(), Name: m.ClusterName()})
	if err != nil {
		return nil, fmt.Errorf("cannot tell whether TalosMachine %q may be deleted: %w", m.GetName(), err)
	}
	if r := deleteguard.CheckAdmission(f, facts.MachineID(m.GetUID())); r != nil {
		return nil, refusal(r)
	}
	return nil, nil
}

func (v *machineValidator) validate(ctx context.Context, m *v1alpha1.TalosMachine) error {
	if err := checkAddress(m.Spec.ForProvider.Address); err != nil {
		return err
	}
	others, err := survey.Duplicates(ctx, v.reader, m)
	if err != nil {
		return fmt.Errorf("cannot tell whether TalosMachine %q is declared already: %w", m.GetName(), err)
	}
	if len(others) > 0 {
		return fmt.Errorf("spec.forProvider.address %q or spec.forProvider.uuid %q is that of TalosMachine %s already: "+
			"a machine must be declared once; correct the one that is wrong, or remove the other first",
			m.Spec.ForProvider.Address, m.Spec.ForProvider.UUID, strings.Join(others, ", "))
	}
	return nil
}

// checkAddress refuses what is neither a host nor a host with a port.
func checkAddress(address string) error {
	accepted := "accepted are an IP address or a host name, with a port if it is not 50000, such as 192.0.2.11 or [2001:db8::11]:50000"
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = strings.TrimSuffix(strings.TrimPrefix(address, "["), "]"), ""
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return fmt.Errorf("spec.forProvider.address %q is no address: %s", address, accepted)
		}
	}
	if host == "" {
		return fmt.Errorf("spec.forProvider.address %q has no host: %s", address, accepted)
	}
	if n, err := strconv.Atoi(port); port != "" && (err != nil || n < 1 || n > 65535) {
		return fmt.Errorf("spec.forProvider.address %q has the port %q: %s", address, port, accepted)
	}
	return nil
}

// refusal is a refusal as kubectl shows it: with its reason, which people and programs can match.
func refusal(r *deleteguard.Refusal) error { return fmt.Errorf("%s: %w", r.Reason, r) }
