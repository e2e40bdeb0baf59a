package simulator

import (
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// A gate is the listener of a machine's API port. It is where the faults of the network show: a port that refuses, and one
// that accepts and then stays silent.
type gate struct {
	m      *Machine
	addr   string
	closed chan struct{}

	mu    sync.Mutex
	inner net.Listener // nil while the port refuses
	conns map[*gateConn]struct{}
	once  sync.Once
}

func newGate(m *Machine) (*gate, error) {
	g := &gate{
		m:      m,
		addr:   net.JoinHostPort(m.spec.Address.String(), strconv.Itoa(constants.ApidPort)),
		closed: make(chan struct{}),
		conns:  map[*gateConn]struct{}{},
	}
	if m.faults.has(FaultAPIDown) {
		return g, nil
	}
	return g, g.open()
}

func (g *gate) open() error {
	inner, err := net.Listen("tcp", g.addr) //nolint:noctx // a literal address takes no look-up that a context could cut short
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.closed:
		_ = inner.Close()
		return net.ErrClosed
	default:
	}
	g.inner = inner
	return nil
}

// Accept returns the next connection. While the port refuses it waits for the fault to pass.
func (g *gate) Accept() (net.Conn, error) {
	for {
		changed := g.m.faults.wait()
		if g.m.faults.has(FaultAPIDown) {
			select {
			case <-changed:
				continue
			case <-g.closed:
				return nil, net.ErrClosed
			}
		}
		g.mu.Lock()
		inner := g.inner
		g.mu.Unlock()
		if inner == nil {
			if err := g.open(); err != nil {
				return nil, err
			}
			if g.m.faults.has(FaultAPIDown) {
				g.refuse() // it came back meanwhile, and found nothing to close
			}
			g.m.notify() // whoever waits for the API was woken by the end of the fault, which came before
			continue
		}
		c, err := inner.Accept()
		if err == nil {
			return g.track(c), nil
		}
		select {
		case <-g.closed:
			return nil, net.ErrClosed
		default:
		}
		if !g.m.faults.has(FaultAPIDown) && g.isOpen(inner) {
			return nil, fmt.Errorf("cannot accept: %w", err)
		}
	}
}

func (g *gate) isOpen(inner net.Listener) bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	return g.inner == inner
}

func (g *gate) listening() bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	return g.inner != nil
}

// refuse makes the port refuse connections and breaks the open ones, until the fault passes.
func (g *gate) refuse() {
	g.mu.Lock()
	inner := g.inner
	g.inner = nil
	g.mu.Unlock()
	if inner != nil {
		_ = inner.Close()
	}
	g.dropConnections()
}

func (g *gate) track(c net.Conn) net.Conn {
	gc := &gateConn{Conn: c, gate: g, gone: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conns[gc] = struct{}{}
	return gc
}

func (g *gate) dropConnections() {
	g.mu.Lock()
	conns := make([]*gateConn, 0, len(g.conns))
	for c := range g.conns {
		conns = append(conns, c)
	}
	g.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// Close closes the port; open connections live on.
func (g *gate) Close() error {
	g.once.Do(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		close(g.closed)
		if g.inner != nil {
			_ = g.inner.Close()
		}
	})
	return nil
}

// Addr is the port's address.
func (g *gate) Addr() net.Addr {
	return &net.TCPAddr{IP: g.m.spec.Address.AsSlice(), Port: constants.ApidPort}
}

// A gateConn goes silent while the machine is a black hole: what the caller sends is swallowed, nothing comes back. Since
// bytes were lost, it breaks when the fault passes.
type gateConn struct {
	net.Conn
	gate *gate
	gone chan struct{}
	once sync.Once
}

func (c *gateConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.swallowed() {
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *gateConn) Write(b []byte) (int, error) {
	if c.swallowed() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// swallowed returns false at once on a healthy machine; on a black hole it waits for the end of the fault or of the connection.
func (c *gateConn) swallowed() bool {
	lost := false
	for {
		changed := c.gate.m.faults.wait()
		if !c.gate.m.faults.has(FaultAPIBlackhole) {
			if lost {
				_ = c.Close()
			}
			return lost
		}
		lost = true
		select {
		case <-changed:
		case <-c.gone:
			return true
		}
	}
}

func (c *gateConn) Close() error {
	c.once.Do(func() {
		close(c.gone)
		c.gate.mu.Lock()
		delete(c.gate.conns, c)
		c.gate.mu.Unlock()
	})
	return c.Conn.Close()
}
