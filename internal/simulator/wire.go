package simulator

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/maesh/provider-ichor/internal/lab/controlplane"
	"github.com/maesh/provider-ichor/internal/simulator/etcdmember"
	"github.com/maesh/provider-ichor/internal/simulator/workload"
)

// Binaries are the programs that a simulated cluster's Kubernetes is made of.
type Binaries = controlplane.Binaries

// newKubernetes makes a cluster's Kubernetes with the PKI of a control plane's configuration.
func (f *Fleet) newKubernetes(dir string, endpoint netip.AddrPort, cfg config.Config) (kubernetes, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make directory: %w", err)
	}
	c := cfg.Cluster()
	return workload.New(workload.Options{
		Dir:      dir,
		Tools:    f.opts.Binaries,
		Endpoint: endpoint,
		Names:    c.CertSANs(),
		PKI: workload.PKI{
			Kubernetes: c.IssuingCA(), Aggregator: c.AggregatorCA(), Etcd: c.Etcd().CA(), ServiceAccount: c.ServiceAccount(),
		},
		PodSubnets:     c.Network().PodCIDRs(),
		ServiceSubnets: c.Network().ServiceCIDRs(),
		Scale:          f.nodeScale(),
		Log:            f.log,
	})
}

// newEtcdMember makes the etcd of one boot, with the etcd PKI of the machine's own configuration.
func (f *Fleet) newEtcdMember(s *system) (etcdService, error) {
	cfg := s.activeConfig()
	if cfg == nil || cfg.Cluster() == nil {
		return nil, errNoEtcdPKI
	}
	svc, err := etcdmember.New(etcdmember.Options{
		DataDir:      s.m.disks.etcdDir(),
		PKIDir:       filepath.Join(s.m.fleet.opts.Dir, s.m.spec.Name, "pki"),
		SnapshotPath: s.m.disks.etcdSnapshot(),
		Hostname:     s.hostname(),
		Address:      s.m.spec.Address,
		CA:           cfg.Cluster().Etcd().CA(),
		Endpoints:    func() []netip.Addr { return f.discovery.controlPlanes(cfg.Cluster().ID()) },
		Scale:        f.opts.Scale,
		OnChange:     func(etcdmember.Status) { s.kick() },
		Faults:       s.m.faults.has,
		Log:          f.log,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot make etcd of machine %q: %w", s.m.spec.Name, err)
	}
	return member{svc}, nil
}

// A member is a real etcd as the rest of a machine sees it.
type member struct{ *etcdmember.Service }

func (m member) state() etcdState { return etcdState(m.Status()) }

// nodeScale divides the waits of Kubernetes. In a light fleet they are as they are: hundreds of kubelets that renew their
// leases every second are more than one API server takes, and their nodes would never be ready.
func (f *Fleet) nodeScale() float64 {
	if f.opts.Light {
		return 1
	}
	return f.opts.Scale
}
