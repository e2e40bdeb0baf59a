package simulator

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	corev1 "k8s.io/api/core/v1"

	"github.com/maesh/provider-ichor/internal/simulator/workload"
)

const etcdClientPort = 2379

// A kubernetes is one cluster's Kubernetes.
type kubernetes interface {
	SetEtcd(endpoints []netip.AddrPort)
	SetNode(n workload.Node)
	RemoveNode(uuid string)
	NodeReady(name string) (ready, known bool)
	Kubeconfig() []byte
	Close()
}

// A workloadCluster is what the machines with one cluster ID form.
type workloadCluster struct {
	id        string
	mu        sync.Mutex
	kube      kubernetes // nil without Kubernetes, or before the first control plane
	endpoints []netip.AddrPort
	upgrade   sync.Mutex // stands for the mutex in etcd that serialises the checks of upgrades
}

func (f *Fleet) cluster(id string) *workloadCluster {
	f.mu.Lock()
	defer f.mu.Unlock()

	c := f.clusters[id]
	if c == nil {
		c = &workloadCluster{id: id}
		f.clusters[id] = c
	}
	return c
}

func (f *Fleet) closeClusters() {
	f.mu.Lock()
	clusters := make([]*workloadCluster, 0, len(f.clusters))
	for _, c := range f.clusters {
		clusters = append(clusters, c)
	}
	f.mu.Unlock()
	for _, c := range clusters {
		c.mu.Lock()
		kube := c.kube
		c.kube = nil
		c.mu.Unlock()
		if kube != nil {
			kube.Close()
		}
	}
}

// systems are the running boots of a cluster's machines.
func (f *Fleet) systems(clusterID string) []*system {
	out := []*system{}
	for _, m := range f.Machines() {
		if s := m.system(); s != nil && clusterID != "" && s.clusterID() == clusterID {
			out = append(out, s)
		}
	}
	return out
}

// etcdChanged works out which members can serve the cluster's API server, and tells its machines.
func (f *Fleet) etcdChanged(s *system) {
	id := s.clusterID()
	if id == "" {
		return
	}
	systems := f.systems(id)
	endpoints := []netip.AddrPort{}
	for _, other := range systems {
		if other.m.faults.has(FaultKubernetesDown) {
			endpoints = nil
			break
		}
		if st, ok := other.etcdState(); ok && st.Healthy && !st.Learner && st.State == svcRunning && other.ctx.Err() == nil {
			endpoints = append(endpoints, netip.AddrPortFrom(other.m.spec.Address, etcdClientPort))
		}
	}
	slices.SortFunc(endpoints, netip.AddrPort.Compare)

	c := f.cluster(id)
	c.mu.Lock()
	same := slices.Equal(c.endpoints, endpoints)
	c.endpoints = endpoints
	kube := c.kube
	c.mu.Unlock()
	if same {
		return
	}
	if kube != nil {
		kube.SetEtcd(endpoints)
	}
	for _, other := range systems {
		if other != s {
			other.kick()
		}
	}
}

// memberHealthy reports whether the machine with that hostname runs a healthy etcd.
func (f *Fleet) memberHealthy(clusterID, hostname string) bool {
	for _, s := range f.systems(clusterID) {
		if s.hostname() == hostname {
			st, ok := s.etcdState()
			return ok && st.Healthy
		}
	}
	return false
}

// lockUpgrade takes the cluster's upgrade mutex, or reports that somebody holds it.
func (f *Fleet) lockUpgrade(clusterID string) (release func(), ok bool) {
	c := f.cluster(clusterID)
	if !c.upgrade.TryLock() {
		return nil, false
	}
	return c.upgrade.Unlock, true
}

// trustd returns the CA of a running control plane that would issue a certificate to a worker with this configuration: it must
// have the same token and the same CA. nil if no such machine answers.
func (f *Fleet) trustd(cfg config.Config) *x509.PEMEncodedCertificateAndKey {
	want := cfg.Machine().Security()
	if want.IssuingCA() == nil {
		return nil
	}
	for _, s := range f.systems(cfg.Cluster().ID()) {
		svc, ok := s.services.get("trustd")
		if !ok || svc.state != svcRunning {
			continue
		}
		have := s.activeConfig().Machine().Security()
		ca := have.IssuingCA()
		if have.Token() == want.Token() && ca != nil && len(ca.Key) > 0 && bytes.Equal(bytes.TrimSpace(ca.Crt), bytes.TrimSpace(want.IssuingCA().Crt)) {
			return ca
		}
	}
	return nil
}

// startKubelet makes the machine a node of its cluster's Kubernetes.
func (s *system) startKubelet() {
	cfg := s.activeConfig()
	if s.m.fleet.opts.Kubernetes && cfg.Machine().Type().IsControlPlane() {
		if err := s.m.fleet.startKubernetes(s.clusterID(), cfg); err != nil {
			s.log.Error("cannot start Kubernetes", "error", err)
		}
	}
	name := s.hostname()
	s.mu.Lock()
	s.kubeNode = name
	s.mu.Unlock()
	s.updateKubelet()
}

// renameKubelet starts a running kubelet anew under the machine's hostname once that is another one, as Talos does.
func (s *system) renameKubelet() {
	name := s.hostname()
	s.mu.Lock()
	renamed := s.kubeNode != "" && s.kubeNode != name
	if renamed {
		s.kubeNode = name
	}
	s.mu.Unlock()
	if renamed {
		s.updateKubelet()
	}
}

// updateKubelet passes on what the configuration says of the node, once the kubelet runs.
func (s *system) updateKubelet() {
	cfg := s.activeConfig()
	s.mu.Lock()
	name := s.kubeNode
	s.mu.Unlock()
	if name == "" || cfg == nil || !cfg.CompleteForBoot() {
		return
	}
	c := s.m.fleet.cluster(s.clusterID())
	c.mu.Lock()
	kube := c.kube
	c.mu.Unlock()
	if kube == nil {
		return
	}
	kube.SetNode(workload.Node{
		Name:           name,
		Address:        s.m.spec.Address,
		ControlPlane:   cfg.Machine().Type().IsControlPlane(),
		Schedulable:    cfg.Cluster().ScheduleOnControlPlanes(),
		Labels:         s.nodeLabels(),
		Annotations:    cfg.Machine().NodeAnnotations(),
		Taints:         nodeTaints(s.log, cfg),
		KubeletVersion: imageVersion(cfg.Machine().Kubelet().Image(), ""),
		OSImage:        "Talos (" + s.version + ")",
		UUID:           s.m.spec.UUID,
		BootID:         s.bootID,
	})
}

func (s *system) stopKubelet() {
	s.mu.Lock()
	name := s.kubeNode
	s.kubeNode = ""
	s.mu.Unlock()
	if name == "" {
		return
	}
	c := s.m.fleet.cluster(s.clusterID())
	c.mu.Lock()
	kube := c.kube
	c.mu.Unlock()
	if kube != nil {
		kube.RemoveNode(s.m.spec.UUID)
	}
}

// nodeReady is the Ready condition of the machine's node. Without Kubernetes, a node counts as ready while its kubelet runs and
// the cluster's etcd has a healthy member.
func (s *system) nodeReady() (ready, known bool) {
	s.mu.Lock()
	name := s.kubeNode
	s.mu.Unlock()
	if name == "" {
		return false, false
	}
	c := s.m.fleet.cluster(s.clusterID())
	c.mu.Lock()
	kube, endpoints := c.kube, len(c.endpoints)
	c.mu.Unlock()
	switch {
	case kube != nil:
		return kube.NodeReady(name)
	case s.m.fleet.opts.Kubernetes:
		return false, false
	default:
		return endpoints > 0, endpoints > 0
	}
}

func (s *system) nodeLabels() map[string]string {
	cfg := s.activeConfig()
	if cfg == nil || cfg.Machine() == nil {
		return nil
	}
	return cfg.Machine().NodeLabels()
}

// nodeTaints reads Talos's form of a taint: key, and value and effect as "value:effect" or "effect" alone.
func nodeTaints(log *slog.Logger, cfg config.Config) []corev1.Taint {
	taints := []corev1.Taint{}
	for key, text := range cfg.Machine().NodeTaints() {
		value, effect, ok := strings.Cut(text, ":")
		if !ok {
			value, effect = "", text
		}
		if effect == "" {
			log.Warn("ignoring a taint without effect", "key", key)
			continue
		}
		taints = append(taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	slices.SortFunc(taints, func(a, b corev1.Taint) int { return strings.Compare(a.Key, b.Key) })
	return taints
}

// startKubernetes makes the cluster's Kubernetes from a control plane's configuration, once.
func (f *Fleet) startKubernetes(id string, cfg config.Config) error {
	endpoint, err := loopbackEndpoint(cfg)
	if err != nil {
		return err
	}
	c := f.cluster(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kube != nil {
		return nil
	}
	kube, err := f.newKubernetes(filepath.Join(f.opts.Dir, "kubernetes", dirName(id)), endpoint, cfg)
	if err != nil {
		return fmt.Errorf("cannot start Kubernetes of cluster %q: %w", cfg.Cluster().Name(), err)
	}
	c.kube = kube
	kube.SetEtcd(c.endpoints)
	return nil
}

// dirName makes a path element of a cluster ID, which is base64.
func dirName(id string) string {
	return strings.NewReplacer("/", "_", "+", "-", "=", "").Replace(id)
}

// loopbackEndpoint is where the declared endpoint leads; it must be an address that this simulation can bind.
func loopbackEndpoint(cfg config.Config) (netip.AddrPort, error) {
	u := cfg.Cluster().Endpoint()
	if u == nil {
		return netip.AddrPort{}, fmt.Errorf("cluster %q has no endpoint", cfg.Cluster().Name())
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if err != nil || !addr.IsLoopback() {
		return netip.AddrPort{}, fmt.Errorf("endpoint %q is not a loopback address", u)
	}
	port := uint64(443)
	if u.Port() != "" {
		if port, err = strconv.ParseUint(u.Port(), 10, 16); err != nil {
			return netip.AddrPort{}, fmt.Errorf("endpoint %q has no valid port: %w", u, err)
		}
	}
	return netip.AddrPortFrom(addr, uint16(port)), nil
}
