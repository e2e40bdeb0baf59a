package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/siderolabs/crypto/x509"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/maesh/provider-ichor/internal/lab/controlplane"
)

// PKI has the authorities that a control plane's machine configuration carries.
type PKI struct {
	Kubernetes     *x509.PEMEncodedCertificateAndKey // cluster.ca
	Aggregator     *x509.PEMEncodedCertificateAndKey // cluster.aggregatorCA
	Etcd           *x509.PEMEncodedCertificateAndKey // cluster.etcd.ca
	ServiceAccount *x509.PEMEncodedKey               // cluster.serviceAccount
}

// Options describe one simulated cluster.
type Options struct {
	// Dir keeps certificates and logs. It must exist as long as the cluster does.
	Dir string

	// Tools are the Kubernetes programs.
	Tools controlplane.Binaries

	// Endpoint is where the cluster's declared endpoint resolves to, a loopback address. The API server binds it.
	Endpoint netip.AddrPort

	// Names and IP addresses that the API server's certificate is also valid for.
	Names []string

	PKI PKI

	// PodSubnets and ServiceSubnets are CIDRs. The default is Talos's: 10.244.0.0/16 and 10.96.0.0/12.
	PodSubnets, ServiceSubnets []string

	// Scale divides Kubernetes's own waits: the silence after which a node is NotReady (50 s, but at least 5 s), the time after
	// which pods leave such a node (300 s, but at least 15 s), and the grace of terminating pods. 0 means 1, real time.
	Scale float64

	// Log gets what goes wrong. Nil discards it.
	Log *slog.Logger
}

// Cluster is the Kubernetes of one simulated cluster. Its API is down until SetEtcd names an etcd.
type Cluster struct {
	o        Options
	clock    clock
	log      *slog.Logger
	balancer *balancer
	config   *rest.Config
	client   kubernetes.Interface
	admin    []byte

	cancel context.CancelFunc
	wake   chan struct{} // has a token when etcd has been named
	done   chan struct{}

	mu      sync.Mutex
	nodes   map[string]kubelet // running ones, by the UUID of the machine: two machines may have one name
	etcd    bool               // at least one endpoint is known
	lost    context.CancelFunc // ends the session when etcd is lost; nil if there is none
	session *session           // nil while the API is down
}

// New makes a cluster whose API is down. It starts nothing but a TCP balancer on loopback. The caller must Close it.
func New(o Options) (*Cluster, error) {
	if !o.Endpoint.Addr().IsLoopback() {
		return nil, fmt.Errorf("cannot serve the cluster's endpoint at %q: not a loopback address", o.Endpoint)
	}
	if len(o.PodSubnets) == 0 {
		o.PodSubnets = []string{"10.244.0.0/16"}
	}
	if len(o.ServiceSubnets) == 0 {
		o.ServiceSubnets = []string{"10.96.0.0/12"}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Cluster{
		o: o, clock: newClock(o.Scale), log: o.Log,
		nodes: map[string]kubelet{}, wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if err := c.makeClients(); err != nil {
		return nil, err
	}
	var err error
	if c.balancer, err = newBalancer(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	go func() {
		defer close(c.done)
		c.supervise(ctx)
	}()
	return c, nil
}

func (c *Cluster) makeClients() (err error) {
	if c.o.PKI.Kubernetes == nil || c.o.PKI.Aggregator == nil || c.o.PKI.Etcd == nil || c.o.PKI.ServiceAccount == nil {
		return errors.New("cannot start a cluster with an incomplete PKI: it takes a control plane's configuration")
	}
	if c.config, err = controlplane.AdminConfig(c.pki(), c.o.Endpoint); err != nil {
		return fmt.Errorf("cannot make an administrator: %w", err)
	}
	if c.admin, err = controlplane.Kubeconfig(c.config); err != nil {
		return err
	}
	if c.client, err = kubernetes.NewForConfig(c.config); err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	return nil
}

// pki is the same PKI in the form that the control plane takes.
func (c *Cluster) pki() controlplane.PKI {
	return controlplane.PKI{
		CA:                keyPair(c.o.PKI.Kubernetes),
		FrontProxyCA:      keyPair(c.o.PKI.Aggregator),
		ServiceAccountKey: c.o.PKI.ServiceAccount.Key,
	}
}

func keyPair(p *x509.PEMEncodedCertificateAndKey) controlplane.KeyPair {
	return controlplane.KeyPair{Cert: p.Crt, Key: p.Key}
}

// SetEtcd names the client addresses of the voters that are healthy now. The API server keeps running while there is one,
// whoever it is; with none the API is down at once, and the next etcd gets a new API server: what an API server has
// cached of one etcd is wrong for another, or for the same one restored from a snapshot.
func (c *Cluster) SetEtcd(endpoints []netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.balancer.set(endpoints)
	c.etcd = len(endpoints) > 0
	switch {
	case c.etcd:
		signal(c.wake)
	case c.lost != nil:
		c.lost()
	}
}

// SetNode says that a machine's kubelet runs, or what has changed about it. A new BootID or name, or a machine that was
// removed before, is a start: the kubelet then registers its Node. A running kubelet does not bring a deleted Node back. Two
// of one name write to one Node in turns.
func (c *Cluster) SetNode(n Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, running := c.nodes[n.UUID]
	c.nodes[n.UUID] = kubelet{node: n, registered: running && k.node.BootID == n.BootID && k.node.Name == n.Name && k.registered}
	if c.session != nil {
		c.session.poke(n.Name)
	}
}

// RemoveNode says that the kubelet of the machine with a UUID has stopped. Its Node object stays and becomes NotReady, its pods are no longer
// looked after.
func (c *Cluster) RemoveNode(uuid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.nodes, uuid)
}

// NodeReady says whether the Node is Ready. It is not known while the API is down and when there is no such Node.
func (c *Cluster) NodeReady(name string) (ready, known bool) {
	node, ok := c.Node(name)
	return ok && isReady(node), ok
}

// Node is the Node object as last seen. The caller must not change it.
func (c *Cluster) Node(name string) (*corev1.Node, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil {
		return nil, false
	}
	node, err := c.session.nodes.Get(name)
	return node, err == nil
}

// Up says whether the API is served now.
func (c *Cluster) Up() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session != nil
}

// Kubeconfig is that of an administrator, whether the API is up or down.
func (c *Cluster) Kubeconfig() []byte { return slices.Clone(c.admin) }

// Close stops everything and returns when it is gone. Closing twice does no harm.
func (c *Cluster) Close() {
	c.cancel()
	<-c.done
	c.balancer.close()
}

// kubelets are those that run now, ordered by name.
func (c *Cluster) kubelets() []kubelet {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.nodes), func(a, b kubelet) int {
		return cmp.Or(cmp.Compare(a.node.Name, b.node.Name), cmp.Compare(a.node.UUID, b.node.UUID))
	})
}

// kubelet is the one that runs on a node; of several, always the same one.
func (c *Cluster) kubelet(node string) (kubelet, bool) {
	all := c.kubelets()
	i := slices.IndexFunc(all, func(k kubelet) bool { return k.node.Name == node })
	if i < 0 {
		return kubelet{}, false
	}
	return all[i], true
}

// markRegistered records that this start of a kubelet has registered its Node.
func (c *Cluster) markRegistered(n Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, running := c.nodes[n.UUID]; running && k.node.BootID == n.BootID && k.node.Name == n.Name {
		k.registered = true
		c.nodes[n.UUID] = k
	}
}

// signal puts a token into a channel of one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
