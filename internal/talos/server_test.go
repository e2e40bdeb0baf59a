package talos

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	cosiserver "github.com/cosi-project/runtime/pkg/state/protobuf/server"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
)

// An authority issues certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	// All clusters have the same subject, as Talos's own CAs do.
	der, err := x509.CreateCertificate(rand.Reader, template("talos", func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature
	}), template("talos", func(c *x509.Certificate) { c.IsCA = true }), key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func template(org string, change func(*x509.Certificate)) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	c := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{Organization: []string{org}},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
	change(c)
	return c
}

func (a authority) issue(t *testing.T, c *x509.Certificate) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, k.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	kb, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: kb})
}

// client returns credentials for machines of this authority, changed as the test wants.
func (a authority) client(t *testing.T, change ...func(*x509.Certificate)) Credentials {
	t.Helper()
	c := template("os:admin", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
	for _, f := range change {
		f(c)
	}
	cert, key := a.issue(t, c)
	return Credentials{CA: a.pem, Cert: cert, Key: key}
}

func (a authority) server(t *testing.T, change ...func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	c := template("node", func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	})
	for _, f := range change {
		f(c)
	}
	cert, key := a.issue(t, c)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// configured is the TLS of a machine with a configuration, with Talos's own check of the extended key usage.
func (a authority) configured(t *testing.T, change ...func(*x509.Certificate)) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		Certificates: []tls.Certificate{a.server(t, change...)},
		VerifyPeerCertificate: func(_ [][]byte, chains [][]*x509.Certificate) error {
			if !slices.Equal(chains[0][0].ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) {
				return errors.New("not exactly client auth")
			}
			return nil
		},
	}
}

// blank is the TLS of a machine in maintenance mode.
func (a authority) blank(t *testing.T) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{a.server(t)}}
}

// A listener counts and keeps the connections that it accepted.
type listener struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		l.conns = append(l.conns, c)
		l.mu.Unlock()
	}
	return c, err
}

func (l *listener) accepted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// cut breaks all connections.
func (l *listener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
}

func listen(t *testing.T, address string) *listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return &listener{Listener: l}
}

// A machine answers what the test tells it to, and notes what it was asked.
type machine struct {
	machineapi.UnimplementedMachineServiceServer
	*listener
	resources state.State
	grpc      *grpc.Server

	// unary answers a call by its method name. Without it every call is not implemented.
	unary func(ctx context.Context, method string, req any) (any, error)
	// read is what Read streams, frame by frame.
	read []string

	mu       sync.Mutex
	requests []any
	metadata []metadata.MD
}

// start serves a machine on a free port of loopback until the test ends.
func start(t *testing.T, c *tls.Config) *machine { return startAt(t, c, listen(t, "127.0.0.1:0")) }

func startAt(t *testing.T, c *tls.Config, l *listener) *machine {
	t.Helper()
	m := &machine{
		listener: l,
		resources: state.WrapCore(namespaced.NewState(func(resource.Namespace) state.CoreState {
			return inmem.NewState("test")
		})),
	}
	m.grpc = grpc.NewServer(grpc.Creds(credentials.NewTLS(c)),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			m.note(ctx, req)
			if m.unary != nil && info.FullMethod[:9] == "/machine." {
				return m.unary(ctx, info.FullMethod[len("/machine.MachineService/"):], req)
			}
			return next(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			m.note(s.Context(), nil)
			return next(srv, s)
		}))
	machineapi.RegisterMachineServiceServer(m.grpc, m)
	cosiv1alpha1.RegisterStateServer(m.grpc, cosiserver.NewState(m.resources))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = m.grpc.Serve(l)
	}()
	t.Cleanup(func() {
		m.grpc.Stop()
		<-done
	})
	return m
}

func (m *machine) note(ctx context.Context, req any) {
	md, _ := metadata.FromIncomingContext(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.metadata = append(m.metadata, md)
	if req != nil {
		m.requests = append(m.requests, req)
	}
}

func (m *machine) asked() []any {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests)
}

func (m *machine) address() string { return m.Addr().String() }

func (m *machine) Read(_ *machineapi.ReadRequest, s grpc.ServerStreamingServer[common.Data]) error {
	for _, f := range m.read {
		if err := s.Send(&common.Data{Bytes: []byte(f)}); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) create(t *testing.T, r resource.Resource) {
	t.Helper()
	if err := m.resources.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

// pool returns a pool with short deadlines that is closed when the test ends.
func pool(t *testing.T, o Options) *Pool {
	t.Helper()
	if o.RequestTimeout == 0 {
		o.RequestTimeout = 30 * time.Second
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = 20 * time.Second
	}
	p := NewPool(o)
	t.Cleanup(p.Close)
	return p
}
