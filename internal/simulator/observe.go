package simulator

import (
	"context"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
)

const (
	// nodePoll is how often a machine looks at its Kubernetes node.
	nodePoll = 500 * time.Millisecond
	// lightNodePoll is the same in a fleet of hundreds, which would be busy with nothing else.
	lightNodePoll = 10 * time.Second
)

// observe keeps the resources up to date with what the machine is, from the boot's first moment to its last.
func (s *system) observe() {
	s.publishHardware()
	var poll <-chan time.Time
	if s.m.fleet.opts.Kubernetes {
		every := nodePoll
		if s.m.fleet.opts.Light {
			every = lightNodePoll
		}
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		poll = ticker.C
	}
	for {
		s.refresh()
		select {
		case <-s.dirty:
		case <-poll:
		case <-s.ctx.Done():
			return
		}
	}
}

// refresh brings every resource that can change up to date. It only writes what differs.
func (s *system) refresh() {
	if s.ctx.Err() != nil {
		return
	}
	s.followEtcd()
	s.publishNetwork()
	s.publishVolumes()
	s.publishMeta()
	s.publishServices()
	s.publishCluster()
	s.publishNode()
	s.refreshStatus()
}

// put writes a resource. The state is in memory and refuses only what is out of date: the next refresh writes again.
func (s *system) put(write func(context.Context) error) {
	if err := write(context.Background()); err != nil {
		s.log.Debug("cannot write resource", "error", err)
	}
}

// announce tells the machines of the cluster about this one.
func (s *system) announce() {
	cfg, clusterID := s.activeConfig(), s.clusterID()
	s.mu.Lock()
	gone, up := s.gone, s.api != nil
	s.mu.Unlock()
	if clusterID == "" || gone || !up || s.ctx.Err() != nil {
		return
	}
	spec := cluster.AffiliateSpec{
		NodeID:          s.m.disks.nodeIdentity(),
		Addresses:       addressList(s.m.spec.Address),
		Hostname:        s.hostname(),
		Nodename:        s.hostname(),
		OperatingSystem: "Talos (" + s.version + ")",
		MachineType:     cfg.Machine().Type(),
	}
	if cfg.Machine().Type().IsControlPlane() {
		spec.ControlPlane = &cluster.ControlPlane{APIServerPort: constants.DefaultControlPlanePort}
	}
	s.m.fleet.discovery.publish(clusterID, affiliate{spec: spec, owner: s})
}
