package survey

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/talos"
)

// CountApprovedControlPlanes counts the approved control planes of a cluster. It is the only function that counts them
// outside of a survey. One that is being deleted counts until it is gone; one whose removal was completed does not. The
// reader must not be cached.
func CountApprovedControlPlanes(ctx context.Context, r client.Reader, namespace, cluster string) (int, error) {
	l := &v1alpha1.TalosMachineList{}
	if err := r.List(ctx, l, client.InNamespace(namespace)); err != nil {
		return 0, fmt.Errorf("cannot list the TalosMachines of namespace %q: %w", namespace, err)
	}
	n := 0
	for i := range l.Items {
		m := &l.Items[i]
		if !m.IsApprovedControlPlane(cluster) {
			continue
		}
		record, err := m.RemovalRecord()
		if err != nil {
			return 0, err
		}
		if record == nil || !record.Completed {
			n++
		}
	}
	return n, nil
}

// objects are what the management cluster holds of one cluster.
type objects struct {
	name    types.NamespacedName
	takenAt time.Time

	// cluster is nil if there is no such TalosCluster; clusterWhy says so.
	cluster    *v1alpha1.TalosCluster
	clusterWhy string

	// declared and machines are the same machines, in the order of their names.
	declared []*v1alpha1.TalosMachine
	machines []facts.Machine
	// others are all other TalosMachines anywhere: they may be the same machine under another name.
	others []*v1alpha1.TalosMachine
}

// objects are read afresh.
func (s *Surveyor) objects(ctx context.Context, name types.NamespacedName) (*objects, error) {
	return s.objectsBy(ctx, s.reader, name)
}

func (s *Surveyor) objectsBy(ctx context.Context, r client.Reader, name types.NamespacedName) (*objects, error) {
	o := &objects{name: name, takenAt: s.clock.Now()}
	c := &v1alpha1.TalosCluster{}
	switch err := r.Get(ctx, name, c); {
	case kerrors.IsNotFound(err):
		o.clusterWhy = fmt.Sprintf("there is no TalosCluster %q in namespace %q", name.Name, name.Namespace)
	case err != nil:
		return nil, fmt.Errorf("cannot get TalosCluster %q: %w", name.Name, err)
	default:
		o.cluster = c
	}

	// All namespaces: the same machine may be declared twice in two of them, and then neither may be touched.
	l := &v1alpha1.TalosMachineList{}
	// They are only read, so that a cache need not copy them.
	if err := r.List(ctx, l, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot list TalosMachines: %w", err)
	}
	for i := range l.Items {
		m := &l.Items[i]
		if m.GetNamespace() == name.Namespace && m.ClusterName() == name.Name {
			o.declared = append(o.declared, m)
		} else {
			o.others = append(o.others, m)
		}
	}
	slices.SortFunc(o.declared, func(a, b *v1alpha1.TalosMachine) int { return cmp.Compare(a.GetName(), b.GetName()) })
	for _, m := range o.declared {
		f, err := factsOf(m)
		if err != nil {
			return nil, err
		}
		o.machines = append(o.machines, f)
	}
	return o, nil
}

// facts puts together what is known so far.
func (o *objects) facts() facts.Cluster {
	o.markDuplicates()
	o.markHostnames()
	f := facts.Cluster{
		Name:     o.name.Name,
		TakenAt:  o.takenAt,
		Declared: facts.Unknown[int](o.clusterWhy),
		Machines: o.machines,
		Etcd:     facts.Etcd{Alarms: facts.Unknown[[]facts.Alarm]("no member of etcd was asked")},
	}
	if o.cluster != nil {
		f.Declared = facts.Of(o.cluster.Spec.ForProvider.ControlPlane.Count)
		f.Teardown = o.cluster.TearingDown()
		f.Bootstrapped = strings.ToLower(o.cluster.GetAnnotations()[v1alpha1.AnnotationBootstrapped])
		f.BootstrapBoot = o.cluster.GetAnnotations()[v1alpha1.AnnotationBootstrapBoot]
	}
	return f
}

// unknown says of every machine and its Node that nothing is known, and why.
func (o *objects) unknown(why string) {
	for i := range o.machines {
		o.machines[i].Live = facts.Unknown[facts.Live](why)
		o.machines[i].Node = facts.Unknown[facts.Node](why)
	}
}

var roles = map[v1alpha1.MachineRole]facts.Role{
	v1alpha1.RoleControlPlane: facts.ControlPlane,
	v1alpha1.RoleWorker:       facts.Worker,
}

// factsOf is what a TalosMachine itself says. What the provider wrote into it and cannot read any more is an error: it
// must not be taken for nothing.
func factsOf(m *v1alpha1.TalosMachine) (facts.Machine, error) {
	p := m.Spec.ForProvider
	f := facts.Machine{
		ID:                facts.MachineID(m.GetUID()),
		Name:              m.GetName(),
		Role:              roles[p.Role],
		Address:           p.Address,
		Approved:          p.Approved,
		Deleting:          m.GetDeletionTimestamp() != nil,
		AllowDelete:       m.GetAnnotations()[v1alpha1.AnnotationAllowDelete] == "true",
		UUID:              m.PinnedUUID(),
		Holds:             holdsOf(m),
		LastVersion:       m.Status.AtProvider.TalosVersion,
		RemoveUnreachable: p.Unreachable.Policy == v1alpha1.UnreachableRemoveMember,
		AcceptedUnwiped:   strings.ToLower(m.GetAnnotations()[v1alpha1.AnnotationAcceptUnwipedDisk]),
	}
	record, err := m.RemovalRecord()
	if err != nil {
		return f, err
	}
	if record != nil {
		member, err := record.Member()
		if err != nil {
			return f, err
		}
		f.Record = &facts.Record{UUID: strings.ToLower(record.UUID), BootID: record.BootID, Member: facts.MemberID(member), Reset: record.Reset}
		f.Removed = record.Completed
	}
	if e := m.Status.AtProvider.Etcd; e != nil {
		last, err := v1alpha1.ParseMemberID(e.MemberID)
		if err != nil {
			return f, fmt.Errorf("cannot read the status of TalosMachine %q: %w", m.GetName(), err)
		}
		f.LastMember = facts.MemberID(last)
	}
	return f, nil
}

// holdsOf are the holds on the removal of a machine, in the order of who holds.
func holdsOf(m *v1alpha1.TalosMachine) []facts.Hold {
	var holds []facts.Hold
	for k, why := range m.GetAnnotations() {
		if who, ok := strings.CutPrefix(k, v1alpha1.AnnotationHoldPrefix); ok {
			holds = append(holds, facts.Hold{Who: who, Why: why})
		}
	}
	slices.SortFunc(holds, func(a, b facts.Hold) int { return cmp.Compare(a.Who, b.Who) })
	return holds
}

// A claim is what a TalosMachine says that it is: which hardware, and where.
type claim struct {
	object         *v1alpha1.TalosMachine
	uuid, endpoint string
}

// same tells whether two claims are about the same machine.
func (c claim) same(d claim) bool {
	return c.endpoint == d.endpoint || (c.uuid != "" && c.uuid == d.uuid)
}

// markDuplicates names, for each machine, the other TalosMachines that claim to be the same machine. Those whose removal
// was completed claim nothing any more, so that the hardware can be declared anew.
func (o *objects) markDuplicates() {
	claims := make([]claim, 0, len(o.declared)+len(o.others))
	for i, m := range o.declared {
		c := claimOf(m)
		if live, ok := o.machines[i].Live.Get(); ok && o.machines[i].UUID == "" {
			c.uuid = live.UUID
		}
		claims = append(claims, c)
	}
	for _, m := range o.others {
		claims = append(claims, claimOf(m))
	}
	for i := range o.machines {
		mine := claims[i]
		o.machines[i].SameMachine = nil
		for _, c := range claims {
			if c.object != mine.object && c.same(mine) && !completed(c.object) && !completed(mine.object) {
				o.machines[i].SameMachine = append(o.machines[i].SameMachine, o.display(c.object))
			}
		}
		slices.Sort(o.machines[i].SameMachine)
	}
}

// claimOf takes the pinned UUID, or else the one that was last seen.
func claimOf(m *v1alpha1.TalosMachine) claim {
	uuid := cmp.Or(m.PinnedUUID(), strings.ToLower(m.Status.AtProvider.UUID))
	return claim{object: m, uuid: uuid, endpoint: strings.ToLower(talos.Endpoint(m.Spec.ForProvider.Address))}
}

// Duplicates names the TalosMachines of any namespace, other than m itself, that claim to be the same machine as m: by
// address or by SMBIOS UUID. m need not exist yet. The reader must not be cached.
func Duplicates(ctx context.Context, r client.Reader, m *v1alpha1.TalosMachine) ([]string, error) {
	l := &v1alpha1.TalosMachineList{}
	if err := r.List(ctx, l); err != nil {
		return nil, fmt.Errorf("cannot list TalosMachines: %w", err)
	}
	var out []string
	mine := claimOf(m)
	for i := range l.Items {
		other := &l.Items[i]
		itself := other.GetNamespace() == m.GetNamespace() && other.GetName() == m.GetName()
		if !itself && !completed(other) && claimOf(other).same(mine) {
			out = append(out, other.GetNamespace()+"/"+other.GetName())
		}
	}
	slices.Sort(out)
	return out, nil
}

// completed tells whether the removal of a machine was completed. A record that cannot be read completes nothing.
func completed(m *v1alpha1.TalosMachine) bool {
	r, err := m.RemovalRecord()
	return err == nil && r != nil && r.Completed
}

// display names a TalosMachine, with its namespace if that is another one.
func (o *objects) display(m *v1alpha1.TalosMachine) string {
	if m.GetNamespace() == o.name.Namespace {
		return m.GetName()
	}
	return m.GetNamespace() + "/" + m.GetName()
}
