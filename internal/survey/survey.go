// Package survey reads Kubernetes and Talos once and says what is known of a cluster, and what is not. It must never decide
// and never change anything: it is the only reader on behalf of decide, and a read that had an effect would be one that no
// guard had let through.
package survey

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/talos"
)

// A Machine is asked. *talos.Client satisfies it. There is no way to change anything in it.
type Machine interface {
	System(ctx context.Context) (talos.System, error)
	Status(ctx context.Context) (talos.Status, error)
	Version(ctx context.Context) (string, error)
	BootID(ctx context.Context) (string, error)
	Nodename(ctx context.Context) (string, error)
	Config(ctx context.Context) (talos.Config, error)
	Schematic(ctx context.Context) (string, error)
	EtcdService(ctx context.Context) (talos.Service, error)
	EtcdStatus(ctx context.Context) (talos.EtcdStatus, error)
	EtcdMembers(ctx context.Context) ([]talos.Member, error)
	EtcdAlarms(ctx context.Context) ([]talos.Alarm, error)
}

// Access opens the doors of one cluster.
type Access interface {
	// Machine of the cluster, with its configuration.
	Machine(address string) Machine
	// Maintenance opens a blank machine. The fingerprint pins its certificate unless it is empty.
	Maintenance(address, fingerprint string) Machine
	// Kubernetes of the cluster itself.
	Kubernetes() (kubernetes.Interface, error)
}

// An Opener gives access to a cluster.
type Opener interface {
	Open(ctx context.Context, cluster *v1alpha1.TalosCluster) (Access, error)
}

const (
	// askedAtOnce bounds how many machines are asked at the same time.
	askedAtOnce = 16

	// machineBudget bounds how long one machine is asked. It covers a connection and two rounds of questions, and leaves
	// time to act in the minute that a reconcile has.
	machineBudget = 25 * time.Second

	// nodeBudget bounds how long the Kubernetes API of the cluster is asked.
	nodeBudget = 10 * time.Second
)

// A Surveyor surveys clusters. It is safe for concurrent use.
type Surveyor struct {
	reader     client.Reader
	cached     client.Reader // for overviews only
	open       Opener
	clock      clock.PassiveClock
	overviews  overviews
	schematics schematics
}

// NewWith returns a Surveyor that opens doors by way of open. The reader must not be cached: a cache can only err toward
// more machines than there are, which is the dangerous side.
func NewWith(reader client.Reader, open Opener, c clock.PassiveClock) *Surveyor {
	return &Surveyor{reader: reader, cached: reader, open: open, clock: c}
}

// WithCache has overviews read objects through a cache: they are for status, and each of them looks at every TalosMachine
// there is, to find those that are declared twice. What is decided on is read from the API server all the same.
func (s *Surveyor) WithCache(cached client.Reader) *Surveyor {
	s.cached = cached
	return s
}

// Cluster surveys a cluster: everything afresh, objects first, then machines and Nodes at the same time. What does not
// answer is unknown in the facts, with why; only a management API that does not answer is an error. Pods and volumes are
// read for the target only; an empty target reads none.
func (s *Surveyor) Cluster(ctx context.Context, cluster types.NamespacedName, target facts.MachineID) (facts.Cluster, error) {
	// Whoever decides is about to change something: what was seen at rest may not be shown any longer.
	s.overviews.forget(cluster)
	o, err := s.objects(ctx, cluster)
	if err != nil {
		return facts.Cluster{}, err
	}
	access, why := s.access(ctx, o)
	if access == nil {
		o.unknown(why)
		return o.facts(), nil
	}

	var seen []sight
	var nodes nodeReader
	var g errgroup.Group
	g.Go(func() error { seen = ask(ctx, access, o.machines); return nil })
	g.Go(func() error { nodes = readNodes(ctx, access); return nil })
	_ = g.Wait() // Neither of the two fails: what they could not read is unknown.

	for i := range o.machines {
		o.machines[i].Live = seen[i].live
	}
	o.matchNodes(ctx, nodes, target)
	f := o.facts()
	f.Etcd = etcdOf(o.machines, seen)
	return f, nil
}

// Objects reads the objects of the management cluster only: what admission can know. Machines and Nodes are unknown.
func (s *Surveyor) Objects(ctx context.Context, cluster types.NamespacedName) (facts.Cluster, error) {
	o, err := s.objects(ctx, cluster)
	if err != nil {
		return facts.Cluster{}, err
	}
	o.unknown("the machine was not asked")
	return o.facts(), nil
}

// access opens the cluster's doors, or says why it cannot.
func (s *Surveyor) access(ctx context.Context, o *objects) (Access, string) {
	if o.cluster == nil {
		return nil, o.clusterWhy
	}
	a, err := s.open.Open(ctx, o.cluster)
	if err != nil {
		return nil, err.Error()
	}
	return a, ""
}
