package topology

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	topology "github.com/maesh/provider-ichor/apis/topology/v1alpha1"
	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

const (
	// maxClusterName is the longest name of a TalosCluster: names of Secrets and Leases are made from it.
	maxClusterName = 50
	// maxMachineName is the longest name of a TalosMachine: it is the default hostname.
	maxMachineName = 63
)

var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// list every machine that is declared, with what it inherits.
func list(s topology.TalosTopologySpec) []Listed {
	var out []Listed
	for _, m := range s.ControlPlanes.Machines {
		out = append(out, Listed{Name: m.Name, Role: v1alpha1.RoleControlPlane, Parameters: parameters(s.ControlPlanes.Settings, m, v1alpha1.RoleControlPlane)})
	}
	for _, p := range s.Pools {
		for _, m := range p.Machines {
			out = append(out, Listed{Name: m.Name, Role: v1alpha1.RoleWorker, Pool: p.Name, Parameters: parameters(p.Settings, m, v1alpha1.RoleWorker)})
		}
	}
	return out
}

// parameters of a machine: its own settings over those of its pool.
func parameters(pool topology.Settings, m topology.Machine, role v1alpha1.MachineRole) v1alpha1.TalosMachineParameters {
	return v1alpha1.TalosMachineParameters{
		Role:                   role,
		Approved:               m.Approved,
		Address:                m.Address,
		UUID:                   m.UUID,
		MaintenanceFingerprint: m.MaintenanceFingerprint,
		Hostname:               m.Hostname,
		Install:                first(m.Install, pool.Install),
		Node:                   node(pool.Node, m.Node, m.Zone),
		ConfigPatches:          slices.Concat(pool.ConfigPatches, m.ConfigPatches),
		Drain:                  first(m.Drain, pool.Drain),
		Reset:                  first(m.Reset, pool.Reset),
		Unreachable:            first(m.Unreachable, pool.Unreachable),
	}
}

// first of the values that is set.
func first[T any](values ...*T) T {
	for _, v := range values {
		if v != nil {
			return *v
		}
	}
	var zero T
	return zero
}

// node adds what the Node of a machine carries to what those of its pool do.
func node(pool, own *v1alpha1.MachineNode, zone string) v1alpha1.MachineNode {
	out := v1alpha1.MachineNode{Labels: map[string]string{}, Annotations: map[string]string{}}
	for _, n := range []*v1alpha1.MachineNode{pool, own} {
		if n == nil {
			continue
		}
		maps.Copy(out.Labels, n.Labels)
		maps.Copy(out.Annotations, n.Annotations)
		out.Taints = append(out.Taints, n.Taints...)
	}
	if zone != "" {
		out.Labels[corev1.LabelTopologyZone] = zone
	}
	return out
}

// check what is declared. The XRDs say most of it already; it is asked again, because what passes an older XRD, or none, as
// when a Composition is rendered, would otherwise become a smaller or a broken cluster.
func (f *Facts) check() error {
	s := f.Spec
	endpoint, err := url.Parse(s.Endpoint)
	switch {
	case err != nil || endpoint.Scheme != "https" || endpoint.Hostname() == "" || endpoint.Port() == "":
		return fmt.Errorf("spec.endpoint %q must be an https URL with host and port, such as https://192.0.2.10:6443", s.Endpoint)
	case s.Versions.Talos == "" || s.Versions.Kubernetes == "":
		return errors.New("spec.versions.talos and spec.versions.kubernetes must be set")
	case !slices.Contains([]int{1, 3, 5}, s.ControlPlanes.Count):
		return fmt.Errorf("spec.controlPlanes.count %d must be 1, 3 or 5", s.ControlPlanes.Count)
	case len(s.ControlPlanes.Machines) == 0:
		return errors.New("spec.controlPlanes.machines must list the control planes, and is empty")
	case len(f.Owner.Base()) > maxClusterName || !label.MatchString(f.Owner.Base()):
		return fmt.Errorf("the name %q must be at most %d lower-case letters, digits and hyphens: those of the cluster and its machines are made from it", f.Owner.Base(), maxClusterName)
	}
	for _, p := range s.Pools {
		if !label.MatchString(p.Name) {
			return fmt.Errorf("the pool name %q must consist of lower-case letters, digits and hyphens", p.Name)
		}
	}
	for _, name := range s.Removals {
		if !label.MatchString(name) {
			return fmt.Errorf("spec.removals has the entry %q, which cannot be the name of a machine", name)
		}
	}
	return f.checkMachines()
}

func (f *Facts) checkMachines() error {
	names, addresses := map[string]bool{}, map[string]string{}
	for i := range f.Listed {
		l := &f.Listed[i]
		p := &l.Parameters
		seen, there := f.machine(l.Name)
		switch {
		case !label.MatchString(l.Name):
			return fmt.Errorf("the machine name %q must consist of lower-case letters, digits and hyphens", l.Name)
		case len(f.Owner.Base())+1+len(l.Name) > maxMachineName:
			return fmt.Errorf("the names of the topology and of machine %q are too long together: %s-%s must be at most %d characters", l.Name, f.Owner.Base(), l.Name, maxMachineName)
		case names[l.Name]:
			return fmt.Errorf("machine %q is listed twice: names are unique over control planes and all pools", l.Name)
		case p.Address == "":
			return fmt.Errorf("machine %q has no address", l.Name)
		case addresses[p.Address] != "":
			return fmt.Errorf("machines %q and %q have the same address %s", addresses[p.Address], l.Name, p.Address)
		case p.Install.Disk == "" && p.Install.DiskSelector == nil:
			return fmt.Errorf("machine %q has no install disk: set install.disk or install.diskSelector of it, or of all of them", l.Name)
		case there && seen.Role != l.Role:
			return fmt.Errorf("machine %q is a %s and cannot become a %s: list it under another name, and name %q in spec.removals", l.Name, seen.Role, l.Role, l.Name)
		}
		names[l.Name], addresses[p.Address] = true, l.Name
		// An approval cannot be taken back: the machine has its configuration.
		p.Approved = p.Approved || (there && seen.Approved)
	}
	return nil
}
