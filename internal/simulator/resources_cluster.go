package simulator

import (
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// publishCluster writes what the machine is in its cluster, and the members that it sees. Without a configuration there is none of it.
func (s *system) publishCluster() {
	cfg, clusterID := s.activeConfig(), s.clusterID()
	if clusterID == "" {
		return
	}
	s.announce()
	modify(s, config.NewMachineType(), func(r *config.MachineType) { r.SetMachineType(cfg.Machine().Type()) })
	modify(s, runtime.NewUniqueMachineToken(), func(*runtime.UniqueMachineToken) {})
	modify(s, cluster.NewInfo(), func(r *cluster.Info) {
		r.TypedSpec().ClusterID, r.TypedSpec().ClusterName = clusterID, cfg.Cluster().Name()
	})
	modify(s, cluster.NewIdentity(cluster.NamespaceName, cluster.LocalIdentity), func(r *cluster.Identity) {
		r.TypedSpec().NodeID = s.m.disks.nodeIdentity()
	})
	modify(s, cluster.NewConfig(config.NamespaceName, cluster.ConfigID), func(r *cluster.Config) {
		r.TypedSpec().DiscoveryEnabled = cfg.Cluster().Discovery().Enabled()
	})
	if cfg.Cluster().Discovery().Enabled() && (!s.m.fleet.opts.Light || cfg.Machine().Type().IsControlPlane()) {
		s.publishMembers(clusterID)
	}
}

func (s *system) publishMembers(clusterID string) {
	members, affiliates := []resource.ID{}, []resource.ID{}
	for _, a := range s.m.fleet.discovery.list(clusterID) {
		members = append(members, a.spec.Hostname)
		affiliates = append(affiliates, a.spec.NodeID)
		modify(s, cluster.NewAffiliate(cluster.NamespaceName, a.spec.NodeID), func(r *cluster.Affiliate) { *r.TypedSpec() = a.spec })
		modify(s, cluster.NewMember(cluster.NamespaceName, a.spec.Hostname), func(r *cluster.Member) {
			*r.TypedSpec() = cluster.MemberSpec{
				NodeID: a.spec.NodeID, Addresses: a.spec.Addresses, Hostname: a.spec.Hostname, MachineType: a.spec.MachineType,
				OperatingSystem: a.spec.OperatingSystem, ControlPlane: a.spec.ControlPlane,
			}
		})
	}
	removeOthers[*cluster.Member](s, members)
	removeOthers[*cluster.Affiliate](s, affiliates)
}

// publishNode writes the Kubernetes node as the machine sees it, and etcd's local member, which exists only while etcd is healthy.
func (s *system) publishNode() {
	if !s.configured() {
		return
	}
	s.renameKubelet()
	name := s.hostname()
	modify(s, k8s.NewNodename(k8s.NamespaceName, k8s.NodenameID), func(r *k8s.Nodename) { r.TypedSpec().Nodename = name })
	nodes := []resource.ID{}
	if ready, known := s.nodeReady(); known {
		nodes = append(nodes, name)
		modify(s, k8s.NewNodeStatus(k8s.NamespaceName, name), func(r *k8s.NodeStatus) {
			r.TypedSpec().Nodename, r.TypedSpec().NodeReady = name, ready
			r.TypedSpec().Labels, r.TypedSpec().Annotations = s.nodeLabels(), s.activeConfig().Machine().NodeAnnotations()
		})
	}
	removeOthers[*k8s.NodeStatus](s, nodes)
	s.publishEtcd()
}

func (s *system) publishEtcd() {
	member := etcd.NewMember(etcd.NamespaceName, etcd.LocalMemberID)
	st, ok := s.etcdState()
	if !ok || st.MemberID == 0 || !st.Healthy {
		remove(s, member.Metadata())
	} else {
		modify(s, member, func(r *etcd.Member) { r.TypedSpec().MemberID = etcd.FormatMemberID(st.MemberID) })
	}
	if !ok {
		return
	}
	modify(s, etcd.NewSpec(etcd.NamespaceName, etcd.SpecID), func(r *etcd.Spec) {
		r.TypedSpec().Name = s.hostname()
		r.TypedSpec().AdvertisedAddresses = addressList(s.m.spec.Address)
		r.TypedSpec().ListenPeerAddresses = addressList(s.m.spec.Address)
		r.TypedSpec().ListenClientAddresses = addressList(s.m.spec.Address)
	})
}
