package talos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/state"
	cosiclient "github.com/cosi-project/runtime/pkg/state/protobuf/client"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/stats"
)

// Defaults of Options.
const (
	DefaultRequestTimeout = 10 * time.Second
	DefaultDialTimeout    = 5 * time.Second
	// DefaultIdleTimeout keeps a connection over a few polls of one minute.
	DefaultIdleTimeout = 5 * time.Minute
)

// Options of a Pool. Zero values mean the defaults.
type Options struct {
	// RequestTimeout is the deadline of each call but LeaveEtcd.
	RequestTimeout time.Duration
	// DialTimeout is the deadline for a connection, TLS included.
	DialTimeout time.Duration
	// IdleTimeout is how long a connection that nobody uses is kept.
	IdleTimeout time.Duration
	// Now tells the time, for IdleTimeout.
	Now func() time.Time
	// OnCall is called at the start of every RPC that is made, from the goroutine that makes it. It must not block.
	OnCall func(address, method string)
}

// A Pool holds one connection per machine, PKI and mode. It is safe for concurrent use.
type Pool struct {
	options Options

	mu     sync.Mutex
	conns  map[connKey]*conn
	closed bool
}

// A connKey tells connections apart. The client certificate is not in it: a renewed one takes the place of the old one.
type connKey struct {
	endpoint    string
	maintenance bool
	// trust is what the other side must prove: the digest of a CA, or the pinned fingerprint.
	trust string
}

// NewPool returns an empty pool.
func NewPool(o Options) *Pool {
	if o.RequestTimeout <= 0 {
		o.RequestTimeout = DefaultRequestTimeout
	}
	if o.DialTimeout <= 0 {
		o.DialTimeout = DefaultDialTimeout
	}
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = DefaultIdleTimeout
	}
	if o.Now == nil {
		o.Now = time.Now //nolint:forbidigo // The default of an option: what is measured is only how long a socket lies idle.
	}
	return &Pool{options: o, conns: map[connKey]*conn{}}
}

// Machine is the door to a machine that has the configuration of the cluster that the credentials are for. Nothing is
// dialled before the first call.
func (p *Pool) Machine(address string, c Credentials) *Client {
	return &Client{
		pool: p, address: address, request: p.options.RequestTimeout, dial: p.options.DialTimeout,
		key: connKey{endpoint: Endpoint(address), trust: digest(c.CA)}, credentials: c, identity: c.fingerprint(),
	}
}

// Maintenance is the door to a blank machine. The fingerprint pins its certificate; empty accepts any.
func (p *Pool) Maintenance(address, fingerprint string) *Client {
	return &Client{
		pool: p, address: address, request: p.options.RequestTimeout, dial: p.options.DialTimeout,
		key: connKey{endpoint: Endpoint(address), maintenance: true, trust: fingerprint}, identity: fingerprint,
	}
}

// Close closes all connections and ends the calls that are made over them. Calls made later fail.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for k, c := range p.conns {
		delete(p.conns, k)
		_ = c.grpc.Close()
	}
}

// A conn is one pooled connection. Its counters are guarded by the pool's lock.
type conn struct {
	grpc    *grpc.ClientConn
	machine machineapi.MachineServiceClient
	cosi    state.CoreState

	// identity of the client that it was made for.
	identity string
	// users is how many calls use it now. Invariant: it is closed only when it is out of the pool and users is zero, so
	// that a failed read never breaks off a write that is under way.
	users    int
	dropped  bool
	lastUsed time.Time
}

var errClosed = errors.New("the pool of connections is closed")

// acquire returns the connection for a client, new if there is none that fits. The caller must release it.
func (p *Pool) acquire(c *Client) (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	now := p.options.Now()
	for k, old := range p.conns {
		if old.users == 0 && now.Sub(old.lastUsed) > p.options.IdleTimeout {
			p.drop(k, old)
		}
	}
	found := p.conns[c.key]
	if found != nil && found.identity != c.identity {
		p.drop(c.key, found)
		found = nil
	}
	if found == nil {
		made, err := p.open(c)
		if err != nil {
			return nil, err
		}
		p.conns[c.key], found = made, made
	}
	found.users++
	return found, nil
}

// release gives a connection back. One that is broken is not used again: the next call dials anew instead of being told
// how the last attempt went.
func (p *Pool) release(c *Client, used *conn, broken bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	used.users--
	used.lastUsed = p.options.Now()
	switch {
	case used.dropped && used.users == 0:
		_ = used.grpc.Close()
	case broken && !used.dropped:
		p.drop(c.key, used)
	}
}

// drop takes a connection out of the pool, and closes it once nobody uses it.
func (p *Pool) drop(k connKey, c *conn) {
	if p.conns[k] == c {
		delete(p.conns, k)
	}
	c.dropped = true
	if c.users == 0 {
		_ = c.grpc.Close()
	}
}

func (p *Pool) open(c *Client) (*conn, error) {
	tlsConfig, err := c.tlsConfig()
	if err != nil {
		return nil, err
	}
	cc, err := grpc.NewClient("passthrough:///"+c.key.endpoint,
		grpc.WithTransportCredentials(newPromptTLS(tlsConfig)),
		grpc.WithContextDialer(dial),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(constants.GRPCMaxMessageSize)),
		grpc.WithIdleTimeout(p.options.IdleTimeout),
		// A call is made once. Whether it may be made again is for those to say who can look at what it did.
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithStatsHandler(&tracer{address: c.address, onCall: p.options.OnCall}),
	)
	if err != nil {
		return nil, fmt.Errorf("the address is not usable: %w", err)
	}
	return &conn{
		grpc:     cc,
		machine:  machineapi.NewMachineServiceClient(cc),
		cosi:     cosiclient.NewAdapter(cosiv1alpha1.NewStateClient(cc)),
		identity: c.identity,
	}, nil
}

// connect waits until the connection is up or has failed. If it failed, the call that follows is told why.
func (c *conn) connect(ctx context.Context) error {
	for {
		s := c.grpc.GetState()
		switch s {
		case connectivity.Ready, connectivity.TransientFailure, connectivity.Shutdown:
			return nil
		case connectivity.Idle:
			c.grpc.Connect()
		case connectivity.Connecting:
		}
		if !c.grpc.WaitForStateChange(ctx, s) {
			return ctx.Err()
		}
	}
}

// A tracer notes when a request has been handed to a connection, from where on its outcome can be unknown.
type tracer struct {
	address string
	onCall  func(address, method string)
}

type attemptKey struct{}

// TagRPC tells of a call that begins.
func (t *tracer) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	if t.onCall != nil {
		t.onCall(t.address, info.FullMethodName)
	}
	return ctx
}

// HandleRPC notes that a call was sent.
func (t *tracer) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.OutHeader); !ok {
		return
	}
	if sent, ok := ctx.Value(attemptKey{}).(*sentFlag); ok {
		sent.Store(true)
	}
}

// TagConn does nothing.
func (*tracer) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn does nothing.
func (*tracer) HandleConn(context.Context, stats.ConnStats) {}
