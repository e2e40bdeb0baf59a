package etcdmember

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/types/known/emptypb"
)

const (
	// testScale is how much faster than Talos the tests run.
	testScale = 50
	// patience is how long a test waits for what must come.
	patience = 45 * time.Second
)

// waitingTests is how many tests run at once: they hardly use a processor, they wait for etcd's own five seconds until it calls
// a peer connected.
const waitingTests = "8"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", waitingTests); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// A lab is a subnet of its own with machines in it, all with certificates of one CA.
type lab struct {
	t      *testing.T
	ca     *x509.PEMEncodedCertificateAndKey
	subnet [3]byte

	mu      sync.Mutex
	nodes   []*node
	changed chan struct{} // closed and replaced at each change of any status
}

// A node is a machine's etcd over all its boots.
type node struct {
	*Service
	lab      *lab
	hostname string
	address  netip.Addr
	dir      string

	mu     sync.Mutex
	faults map[string]bool
	logged []string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	ca, err := x509.NewSelfSignedCertificateAuthority(x509.ECDSA(true), x509.Organization("etcd"))
	if err != nil {
		t.Fatal(err)
	}
	return &lab{
		t: t, subnet: reserveSubnet(t), changed: make(chan struct{}),
		ca: &x509.PEMEncodedCertificateAndKey{Crt: ca.CrtPEM, Key: ca.KeyPEM},
	}
}

// reserveSubnet picks a /24 of loopback at random. Holding a port of it keeps other tests away.
func reserveSubnet(t *testing.T) [3]byte {
	t.Helper()
	for range 100 {
		subnet := [3]byte{127, byte(1 + rand.IntN(250)), byte(rand.IntN(250))}
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf("%d.%d.%d.254:%s", subnet[0], subnet[1], subnet[2], peerPort))
		if err == nil {
			t.Cleanup(func() { _ = l.Close() })
			return subnet
		}
	}
	t.Fatal("no subnet of loopback is free")
	return [3]byte{}
}

// add makes a machine; its etcd is not started yet.
func (l *lab) add(hostname string) *node {
	l.t.Helper()
	l.mu.Lock()
	n := &node{
		lab: l, hostname: hostname, dir: l.t.TempDir(), faults: map[string]bool{},
		address: netip.AddrFrom4([4]byte{l.subnet[0], l.subnet[1], l.subnet[2], byte(len(l.nodes) + 1)}),
	}
	l.nodes = append(l.nodes, n)
	l.mu.Unlock()
	n.boot()
	l.t.Cleanup(func() { n.Stop() })
	return n
}

// boot gives the machine the service of a new boot over the same disk.
func (n *node) boot() {
	n.lab.t.Helper()
	service, err := New(Options{
		DataDir: n.data(), PKIDir: filepath.Join(n.dir, "pki"), SnapshotPath: filepath.Join(n.dir, "etcd.snapshot"),
		Hostname: n.hostname, Address: n.address, CA: n.lab.ca, Endpoints: n.lab.endpoints, Scale: testScale,
		OnChange: func(Status) { n.lab.notify() }, Faults: n.has, Log: slog.New(&recorder{n}),
	})
	if err != nil {
		n.lab.t.Fatal(err)
	}
	n.Service = service
}

func (n *node) data() string { return filepath.Join(n.dir, "etcd") }

func (n *node) fault(name string, on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults[name] = on
}

func (n *node) has(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.faults[name]
}

// saw reports how often the service logged an error with that text.
func (n *node) saw(text string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := 0
	for _, line := range n.logged {
		if strings.Contains(line, text) {
			count++
		}
	}
	return count
}

func (l *lab) endpoints() []netip.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]netip.Addr, 0, len(l.nodes))
	for _, n := range l.nodes {
		out = append(out, n.address)
	}
	return out
}

func (l *lab) notify() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
}

// await waits until something is true: it looks at each change of a status, and now and then for what changes without one.
func (l *lab) await(what string, is func() bool) {
	l.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		if is() {
			return
		}
		select {
		case <-changed:
		case <-ticker.C:
		case <-deadline.C:
			for _, n := range l.nodes {
				l.t.Logf("%s: %+v", n.hostname, n.Status())
			}
			l.t.Fatalf("waited in vain until %s", what)
		}
	}
}

func (n *node) isVoter() bool {
	st := n.Status()
	return st.State == StateRunning && st.Healthy && !st.Learner && st.MemberID != 0
}

func (n *node) awaitVoter() {
	n.lab.t.Helper()
	n.lab.await(n.hostname+" is a healthy voter", n.isVoter)
}

func (n *node) awaitState(state string) {
	n.lab.t.Helper()
	n.lab.await(n.hostname+" is "+state, func() bool { return n.Status().State == state })
}

// bootstrapped adds the first machine of a cluster.
func (l *lab) bootstrapped(hostname string) *node {
	l.t.Helper()
	n := l.add(hostname)
	n.Start()
	n.awaitState(StatePreparing)
	if err := n.Bootstrap(false, false); err != nil {
		l.t.Fatal(err)
	}
	n.awaitVoter()
	return n
}

// joined adds another machine to the cluster.
func (l *lab) joined(hostname string) *node {
	l.t.Helper()
	n := l.add(hostname)
	n.Start()
	n.awaitVoter()
	return n
}

// within is a context of the test that ends after d.
func (l *lab) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(l.t.Context(), d)
	l.t.Cleanup(cancel)
	return ctx
}

// members asks one machine alone for the members.
func (n *node) members() []*machine.EtcdMember {
	n.lab.t.Helper()
	list, err := n.EtcdMemberList(n.lab.within(patience), &machine.EtcdMemberListRequest{QueryLocal: true})
	if err != nil {
		n.lab.t.Fatal(err)
	}
	return list.GetMessages()[0].GetMembers()
}

// names are the members' names as one machine tells them.
func (n *node) names() string {
	n.lab.t.Helper()
	var out []string
	for _, m := range n.members() {
		out = append(out, m.GetHostname())
	}
	return strings.Join(out, " ")
}

// leads reports whether a machine's member is the leader.
func (n *node) leads() bool {
	n.lab.t.Helper()
	st, err := n.EtcdStatus(n.lab.within(patience), &emptypb.Empty{})
	if err != nil {
		n.lab.t.Fatal(err)
	}
	m := st.GetMessages()[0].GetMemberStatus()
	return m.GetLeader() != 0 && m.GetLeader() == m.GetMemberId()
}

// client connects to a machine's member, past the calls of Talos.
func (n *node) client() *clientv3.Client {
	n.lab.t.Helper()
	cli, err := n.dialLocal()
	if err != nil {
		n.lab.t.Fatal(err)
	}
	n.lab.t.Cleanup(func() { _ = cli.Close() })
	return cli
}

func (n *node) remove(id uint64) error {
	_, err := n.EtcdRemoveMemberByID(n.lab.within(patience), &machine.EtcdRemoveMemberByIDRequest{MemberId: id})
	return err
}

// mustRemove removes a member, and waits until etcd calls enough peers connected for that.
func (n *node) mustRemove(id uint64) {
	n.lab.t.Helper()
	n.lab.await("a member can be removed", func() bool {
		err := n.remove(id)
		if err != nil && !strings.Contains(err.Error(), "etcdserver: unhealthy cluster") {
			n.lab.t.Fatal(err)
		}
		return err == nil
	})
}

// A recorder keeps the errors that a service logs.
type recorder struct{ n *node }

func (r *recorder) Enabled(context.Context, slog.Level) bool { return true }
func (r *recorder) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *recorder) WithGroup(string) slog.Handler            { return r }

func (r *recorder) Handle(_ context.Context, rec slog.Record) error {
	r.n.mu.Lock()
	defer r.n.mu.Unlock()
	rec.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" {
			r.n.logged = append(r.n.logged, a.Value.String())
		}
		return true
	})
	return nil
}
