package talos

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
)

// Port of the Talos API where an address names none.
const Port = "50000"

// Endpoint is the host:port that an address means. Two addresses with the same Endpoint are the same machine.
func Endpoint(address string) string {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	if n := len(address); n > 1 && address[0] == '[' && address[n-1] == ']' {
		address = address[1 : n-1]
	}
	return net.JoinHostPort(address, Port)
}

// dial connects past any proxy of the environment: a proxy would see the machines of a private network only by accident.
//
// Dead peers are found by TCP's own keepalive, 10 s after the last sign of life and then every 5 s, and not by HTTP/2
// pings: a Talos API takes more than two pings in five minutes for an attack and closes the connection, which would break
// off every call that takes longer, such as leaving etcd.
func dial(ctx context.Context, endpoint string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}}
	return d.DialContext(ctx, "tcp", endpoint)
}

// promptTLS is TLS that is done only once the server has spoken.
//
// In TLS 1.3 a client's handshake ends before the server has looked at the client's certificate. A refusal then races with
// what the client writes next, and is often lost in a mere "connection reset by peer", so that a blank machine, a foreign
// one and a broken network look the same. A gRPC server speaks first, so waiting for its first byte tells them apart.
type promptTLS struct {
	credentials.TransportCredentials
}

func newPromptTLS(c *tls.Config) credentials.TransportCredentials {
	return promptTLS{TransportCredentials: credentials.NewTLS(c)}
}

// Clone makes a copy.
func (p promptTLS) Clone() credentials.TransportCredentials {
	return promptTLS{TransportCredentials: p.TransportCredentials.Clone()}
}

// ClientHandshake shakes hands and waits for the first byte of the server.
func (p promptTLS) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := p.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	first := make([]byte, 1)
	_, err = conn.Read(first)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return &startedConn{Conn: conn, first: first}, info, nil
}

// A startedConn is a connection whose first byte was read already. Reads are made by one goroutine only.
type startedConn struct {
	net.Conn
	first []byte
}

// Read gives the first byte back, once.
func (c *startedConn) Read(p []byte) (int, error) {
	if len(c.first) > 0 && len(p) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}
