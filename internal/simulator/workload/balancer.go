package workload

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/maesh/provider-ichor/internal/lab/controlplane"
)

// dialTimeout is how long a member may take to accept; they are all on this machine.
const dialTimeout = 2 * time.Second

// A balancer forwards TCP connections from one fixed address to the etcd members that are healthy now. The API server is
// given only that address and so never has to be restarted when the members change. It does not look into the connections:
// TLS is between the API server and the member.
type balancer struct {
	port     *controlplane.Port
	listener net.Listener
	done     sync.WaitGroup
	closed   context.Context //nolint:containedctx // ends when the balancer is closed, and cuts dialling short
	end      context.CancelFunc

	mu       sync.Mutex
	backends []netip.AddrPort
	next     int
	open     map[*tunnel]struct{}
}

// A tunnel is one forwarded connection.
type tunnel struct {
	backend    netip.AddrPort
	near, away net.Conn
}

func (t *tunnel) close() {
	_ = t.near.Close() // The ends see a broken connection either way.
	_ = t.away.Close()
}

func newBalancer() (*balancer, error) {
	port, err := controlplane.ReservePort()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", port.Loopback().String())
	if err != nil {
		cancel()
		port.Release()
		return nil, fmt.Errorf("cannot listen for etcd clients: %w", err)
	}
	b := &balancer{port: port, listener: listener, closed: ctx, end: cancel, open: map[*tunnel]struct{}{}}
	b.done.Go(b.accept)
	return b, nil
}

// address is where clients connect.
func (b *balancer) address() netip.AddrPort { return b.port.Loopback() }

// set names the members to forward to from now on and breaks the connections to all others, so that their clients come
// again.
func (b *balancer) set(backends []netip.AddrPort) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends = slices.Clone(backends)
	for t := range b.open {
		if !slices.Contains(backends, t.backend) {
			t.close()
		}
	}
}

func (b *balancer) close() {
	_ = b.listener.Close() // It ends accept; there is nothing to lose in it.
	b.end()
	b.set(nil)
	b.done.Wait()
	b.port.Release()
}

func (b *balancer) accept() {
	for {
		near, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.done.Go(func() { b.forward(near) })
	}
}

func (b *balancer) forward(near net.Conn) {
	t, ok := b.connect(near)
	if !ok {
		_ = near.Close() // Nobody is there to forward to: the client sees a refusal.
		return
	}
	var copies sync.WaitGroup
	for _, ends := range [][2]net.Conn{{t.near, t.away}, {t.away, t.near}} {
		copies.Go(func() {
			_, _ = io.Copy(ends[0], ends[1]) // However it ends, the tunnel is over.
			t.close()
		})
	}
	copies.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, t)
}

// connect opens a connection to the next member that accepts.
func (b *balancer) connect(near net.Conn) (*tunnel, bool) {
	b.mu.Lock()
	candidates := slices.Clone(b.backends)
	start := b.next
	b.next++
	b.mu.Unlock()

	for i := range candidates {
		backend := candidates[(start+i)%len(candidates)]
		away, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(b.closed, "tcp", backend.String())
		if err != nil {
			continue
		}
		t := &tunnel{backend: backend, near: near, away: away}
		if b.admit(t) {
			return t, true
		}
		_ = away.Close() // The member went away while we dialled.
	}
	return nil, false
}

// admit registers a tunnel unless its member has been taken out meanwhile.
func (b *balancer) admit(t *tunnel) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.backends, t.backend) {
		return false
	}
	b.open[t] = struct{}{}
	return true
}
