package etcdmember

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

const (
	clientPort = "2379"
	peerPort   = "2380"

	// A follower calls an election after this many milliseconds without a heartbeat. Neither scales: two busy cores
	// that run many members would lose leaders for no reason.
	heartbeatMillis = 100
	electionMillis  = 1500

	// walSegment is how much etcd allocates ahead for its log, twice per member. Its own 64 MB would fill the disk of a machine
	// that simulates many.
	walSegment = 4 << 20

	// transferTimeout is how long a leader that stops may take to hand over. etcd itself would wait for many seconds, for a peer
	// that stops just then as well.
	transferTimeout = 2 * time.Second
)

// shrinkWAL sets what etcd keeps as a variable of the process.
var shrinkWAL = sync.OnceFunc(func() { wal.SegmentSizeBytes = walSegment })

// A startup says how etcd is first started. The zero value goes on from the data that is there.
type startup struct {
	cluster string // initial cluster: name=peerURL,...
	state   string // new or existing
	learner uint64 // the member that a join just added, to be promoted
}

// A member is one run of embedded etcd.
type member struct {
	etcd *embed.Etcd
	pki  *pkiFiles
}

// startMember starts etcd and does not wait until it is ready: without quorum it may never be, and runs all the same.
func startMember(o Options, p *pki, how startup) (*member, error) {
	shrinkWAL()
	files, err := p.write(o.PKIDir)
	if err != nil {
		return nil, err
	}
	m := &member{pki: files}
	cfg := embed.NewConfig()
	cfg.Name = o.Hostname
	cfg.Dir = o.DataDir
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = urls(o.Address, peerPort), urls(o.Address, peerPort)
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = urls(o.Address, clientPort), urls(o.Address, clientPort)
	cfg.ClientTLSInfo, cfg.PeerTLSInfo = files.info(), files.info()
	// Without data to go on from, "existing" fails, where "new" would make a second cluster.
	cfg.InitialCluster, cfg.ClusterState = cfg.Name+"="+peerURL(o.Address), embed.ClusterStateFlagExisting
	if how.cluster != "" {
		cfg.InitialCluster, cfg.ClusterState = how.cluster, how.state
	}
	cfg.TickMs, cfg.ElectionMs = heartbeatMillis, electionMillis
	cfg.EnableGRPCGateway = false
	// A simulated power cut keeps what the process wrote: syncing would only make the disk the bottleneck.
	cfg.UnsafeNoFsync = true
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.GRPCAdditionalServerOptions = []grpc.ServerOption{grpc.UnaryInterceptor(surviveRemoval)}
	if m.etcd, err = embed.StartEtcd(cfg); err != nil {
		files.remove()
		return nil, fmt.Errorf("cannot start etcd: %w", err)
	}
	return m, nil
}

func (m *member) id() uint64               { return uint64(m.etcd.Server.MemberID()) }
func (m *member) stopped() <-chan struct{} { return m.etcd.Server.StopNotify() }

// isLearner asks the cluster rather than the server, which panics once it was removed and is about to stop.
func (m *member) isLearner() bool {
	self := m.etcd.Server.Cluster().Member(m.etcd.Server.MemberID())
	return self != nil && self.IsLearner
}

// surviveRemoval answers for a member that was removed and is about to stop. Asked for its status it panics, which would end all
// machines of this process, where it should only end one etcd.
func surviveRemoval(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer func() {
		if recover() != nil {
			err = rpctypes.ErrGRPCStopped
		}
	}()
	return handler(ctx, req)
}

// close stops etcd. Clients are disconnected at once; of the connections that peers made, etcd may leave one half closed until
// its own read timeout of five seconds, during which that peer sends another way.
func (m *member) close() {
	giveUp := time.AfterFunc(transferTimeout, m.etcd.Server.HardStop)
	defer giveUp.Stop()
	// Close alone would wait for what serves clients, and that for etcd to become ready, which it may never be.
	m.etcd.Server.Stop()
	m.etcd.Close()
	m.pki.remove()
}

func urls(address netip.Addr, port string) []url.URL {
	return []url.URL{{Scheme: "https", Host: address.String() + ":" + port}}
}

func peerURL(address netip.Addr) string   { return "https://" + address.String() + ":" + peerPort }
func clientURL(address netip.Addr) string { return "https://" + address.String() + ":" + clientPort }
