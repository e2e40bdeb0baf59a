package talos

import (
	"context"
	"crypto/x509"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	talosx509 "github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// All failed connections have one gRPC code. What they mean must come out the same at every try, and with the same words:
// TLS 1.3 lets a refusal race with what the client writes, so each case is tried many times.
func TestConnectionClasses(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	expired := func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	}
	early := func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
	}
	pinned := talosx509.SPKIFingerprint(ours.cert).String()

	cases := map[string]struct {
		reason string
		server func(t *testing.T) string
		client func(p *Pool, address string) *Client
		class  Class
		text   string
	}{
		"NoClientCertificate": {
			reason: "A configured machine that is asked as a blank one wants a certificate.",
			server: func(t *testing.T) string { return start(t, ours.configured(t)).address() },
			client: func(p *Pool, a string) *Client { return p.Maintenance(a, "") },
			class:  CertificateRequired, text: "certificate required",
		},
		"ForeignServer": {
			reason: "A machine with another CA is of another cluster, or blank.",
			server: func(t *testing.T) string { return start(t, theirs.configured(t)).address() },
			client: func(p *Pool, a string) *Client { return p.Machine(a, ours.client(t)) },
			class:  WrongCluster, text: "signed by unknown authority",
		},
		"BlankServer": {
			reason: "A blank machine shows a CA of its own.",
			server: func(t *testing.T) string { return start(t, theirs.blank(t)).address() },
			client: func(p *Pool, a string) *Client { return p.Machine(a, ours.client(t)) },
			class:  WrongCluster, text: "signed by unknown authority",
		},
		"ForeignClient": {
			reason: "A machine that does not know the CA of our certificate is of another cluster.",
			server: func(t *testing.T) string { return start(t, ours.configured(t)).address() },
			client: func(p *Pool, a string) *Client {
				c := theirs.client(t)
				c.CA = ours.pem
				return p.Machine(a, c)
			},
			class: WrongCluster, text: "unknown certificate authority",
		},
		"WrongKeyUsage": {
			reason: "A certificate that may also serve is refused by Talos.",
			server: func(t *testing.T) string { return start(t, ours.configured(t)).address() },
			client: func(p *Pool, a string) *Client {
				return p.Machine(a, ours.client(t, func(c *x509.Certificate) {
					c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
				}))
			},
			class: BadCredentials, text: "bad certificate",
		},
		"ExpiredClient": {
			reason: "The machine's clock is past the end of our certificate.",
			server: func(t *testing.T) string { return start(t, ours.configured(t)).address() },
			client: func(p *Pool, a string) *Client { return p.Machine(a, ours.client(t, expired)) },
			class:  ClockSkew, text: "expired certificate",
		},
		"ClientFromTheFuture": {
			reason: "The machine's clock is before the start of our certificate.",
			server: func(t *testing.T) string { return start(t, ours.configured(t)).address() },
			client: func(p *Pool, a string) *Client { return p.Machine(a, ours.client(t, early)) },
			class:  ClockSkew, text: "expired certificate",
		},
		"ExpiredServer": {
			reason: "The machine's certificate is not valid by our clock.",
			server: func(t *testing.T) string { return start(t, ours.configured(t, expired)).address() },
			client: func(p *Pool, a string) *Client { return p.Machine(a, ours.client(t)) },
			class:  ClockSkew, text: "expired or is not yet valid",
		},
		"BlankServerWithWrongClock": {
			reason: "A blank machine is one whatever its clock says.",
			server: func(t *testing.T) string { return start(t, theirs.configured(t, expired)).address() },
			client: func(p *Pool, a string) *Client { return p.Machine(a, ours.client(t)) },
			class:  WrongCluster, text: "signed by unknown authority",
		},
		"BlankServerAtOtherName": {
			reason: "A blank machine is one whatever its certificate is valid for.",
			server: func(t *testing.T) string {
				return start(t, theirs.configured(t, func(c *x509.Certificate) { c.IPAddresses = nil })).address()
			},
			client: func(p *Pool, a string) *Client { return p.Machine(a, ours.client(t)) },
			class:  WrongCluster, text: "signed by unknown authority",
		},
		"ClientCertificateOfAServer": {
			reason: "A client certificate of our own cluster cannot serve.",
			server: func(t *testing.T) string {
				return start(t, ours.configured(t, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })).address()
			},
			client: func(p *Pool, a string) *Client { return p.Machine(a, ours.client(t)) },
			class:  BadCredentials, text: "key usage",
		},
		"OtherName": {
			reason: "A machine of our cluster at an address that its certificate does not name.",
			server: func(t *testing.T) string {
				return start(t, ours.configured(t, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 9, 9, 9)} })).address()
			},
			client: func(p *Pool, a string) *Client { return p.Machine(a, ours.client(t)) },
			class:  NameMismatch, text: "127.0.0.1",
		},
		"OtherFingerprint": {
			reason: "A blank machine with another certificate than the pinned one.",
			server: func(t *testing.T) string { return start(t, theirs.blank(t)).address() },
			client: func(p *Pool, a string) *Client { return p.Maintenance(a, pinned) },
			class:  FingerprintMismatch, text: pinned,
		},
		"NotAFingerprint": {
			reason: "A pin that can match nothing is said to be wrong, not passed over.",
			server: func(t *testing.T) string { return start(t, theirs.blank(t)).address() },
			client: func(p *Pool, a string) *Client { return p.Maintenance(a, "sha256:abc") },
			class:  BadCredentials, text: "console",
		},
		"BrokenKey": {
			reason: "Credentials that do not load are told from a machine that refuses them.",
			server: func(t *testing.T) string { return start(t, ours.configured(t)).address() },
			client: func(p *Pool, a string) *Client {
				c := ours.client(t)
				c.Key = []byte("no key")
				return p.Machine(a, c)
			},
			class: BadCredentials, text: "do not load",
		},
		"NothingListens": {
			reason: "A machine that is down says nothing of itself.",
			server: func(t *testing.T) string {
				l := listen(t, "127.0.0.1:0")
				_ = l.Close()
				return l.Addr().String()
			},
			client: func(p *Pool, a string) *Client { return p.Machine(a, ours.client(t)) },
			class:  Unreachable, text: "connection refused",
		},
		"ClosesAtOnce": {
			reason: "Something that is no Talos API hangs up.",
			server: func(t *testing.T) string {
				l := listen(t, "127.0.0.1:0")
				go func() {
					for {
						c, err := l.Accept()
						if err != nil {
							return
						}
						_ = c.Close()
					}
				}()
				return l.Addr().String()
			},
			client: func(p *Pool, a string) *Client { return p.Machine(a, ours.client(t)) },
			class:  Unreachable,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			address := tc.server(t)
			p := pool(t, Options{})
			c := tc.client(p, address)
			var first string
			for range 20 {
				err := c.ForfeitLeadership(t.Context())
				if got := ClassOf(err); got != tc.class {
					t.Fatalf("\n%s\nclass: got %v, want %v: %v", tc.reason, got, tc.class, err)
				}
				if !strings.Contains(err.Error(), tc.text) {
					t.Fatalf("\n%s\nerror %q does not say %q", tc.reason, err, tc.text)
				}
				if first == "" {
					first = err.Error()
				}
				if tc.text != "" && err.Error() != first {
					t.Fatalf("\n%s\nthe text changes: %s", tc.reason, cmp.Diff(first, err.Error()))
				}
			}
		})
	}
}

// Certificates are dated back against small differences of clocks, also to before their CA was made.
func TestBackdatedServer(t *testing.T) {
	ca := newAuthority(t)
	m := start(t, ca.configured(t, func(c *x509.Certificate) { c.NotBefore = ca.cert.NotBefore.Add(-time.Hour) }))
	m.unary = versionTag
	if _, err := pool(t, Options{}).Machine(m.address(), ca.client(t)).Version(t.Context()); err != nil {
		t.Error(err)
	}
}

// A machine that takes connections and says nothing must not take more time than a connection may.
func TestSilentPeer(t *testing.T) {
	l := listen(t, "127.0.0.1:0") // The kernel accepts; nobody ever reads.
	p := pool(t, Options{DialTimeout: 100 * time.Millisecond, RequestTimeout: time.Hour})
	c := p.Machine(l.Addr().String(), newAuthority(t).client(t))

	err := c.LeaveEtcd(t.Context())
	if got := ClassOf(err); got != Unreachable {
		t.Fatalf("class: got %v, want %v: %v", got, Unreachable, err)
	}
	if want := "no answer within 100ms"; !strings.Contains(err.Error(), want) {
		t.Errorf("error %q does not say %q", err, want)
	}
}

// One machine has one connection, whoever asks and however often.
func TestOneConnection(t *testing.T) {
	ca := newAuthority(t)
	m := start(t, ca.configured(t))
	m.unary = versionTag
	var calls []string
	p := pool(t, Options{OnCall: func(address, method string) { calls = append(calls, address+" "+method) }})
	creds := ca.client(t)
	for range 5 {
		if _, err := p.Machine(m.address(), creds).Version(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := m.accepted(); got != 1 {
		t.Errorf("connections: got %d, want 1", got)
	}
	if want := m.address() + " " + machineapi.MachineService_Version_FullMethodName; len(calls) != 5 || calls[0] != want {
		t.Errorf("calls: got %q, want five of %q", calls, want)
	}
}

// A renewed certificate must be used from then on: the old one is about to expire.
func TestRenewedCredentialsReplaceTheConnection(t *testing.T) {
	ca := newAuthority(t)
	m := start(t, ca.configured(t))
	m.unary = versionTag
	p := pool(t, Options{})
	for range 2 {
		if _, err := p.Machine(m.address(), ca.client(t)).Version(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := m.accepted(); got != 2 {
		t.Errorf("connections: got %d, want 2", got)
	}
	if got := len(p.conns); got != 1 {
		t.Errorf("connections kept: got %d, want 1", got)
	}
}

func TestIdleConnectionsGo(t *testing.T) {
	ca := newAuthority(t)
	a, b := start(t, ca.configured(t)), start(t, ca.configured(t))
	a.unary, b.unary = versionTag, versionTag
	now := time.Now()
	p := pool(t, Options{Now: func() time.Time { return now }, IdleTimeout: time.Minute})
	creds := ca.client(t)
	ask := func(m *machine) {
		t.Helper()
		if _, err := p.Machine(m.address(), creds).Version(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ask(a)
	now = now.Add(time.Minute)
	ask(b)
	if got := len(p.conns); got != 2 {
		t.Fatalf("connections kept within the idle time: got %d, want 2", got)
	}
	now = now.Add(time.Second)
	ask(b)
	if got := len(p.conns); got != 1 {
		t.Errorf("connections kept after the idle time: got %d, want 1", got)
	}
	ask(a)
	if got := a.accepted(); got != 2 {
		t.Errorf("connections of the idle machine: got %d, want 2", got)
	}
}

// A machine that comes back is asked at once: no earlier failure is told again, and no backoff is waited for.
func TestMachineComesBack(t *testing.T) {
	ca := newAuthority(t)
	l := listen(t, "127.0.0.1:0")
	address := l.Addr().String()
	_ = l.Close()
	p := pool(t, Options{})
	c := p.Machine(address, ca.client(t))
	for range 5 {
		if _, err := c.Version(t.Context()); ClassOf(err) != Unreachable {
			t.Fatalf("class while it is down: got %v, want %v", ClassOf(err), Unreachable)
		}
	}
	m := startAt(t, ca.configured(t), listen(t, address))
	m.unary = versionTag
	if _, err := c.Version(t.Context()); err != nil {
		t.Errorf("the machine is back, and yet: %v", err)
	}
}

func TestClosedPool(t *testing.T) {
	ca := newAuthority(t)
	m := start(t, ca.configured(t))
	p := pool(t, Options{})
	p.Close()
	if err := p.Machine(m.address(), ca.client(t)).Reboot(t.Context()); err == nil {
		t.Error("a closed pool still makes calls")
	}
	if got := m.accepted(); got != 0 {
		t.Errorf("connections: got %d, want 0", got)
	}
}

func TestEndpoint(t *testing.T) {
	cases := map[string]string{
		"192.0.2.11":          "192.0.2.11:50000",
		"192.0.2.11:50001":    "192.0.2.11:50001",
		"cp-1.example":        "cp-1.example:50000",
		"2001:db8::1":         "[2001:db8::1]:50000",
		"[2001:db8::1]":       "[2001:db8::1]:50000",
		"[2001:db8::1]:50001": "[2001:db8::1]:50001",
	}
	for address, want := range cases {
		if got := Endpoint(address); got != want {
			t.Errorf("Endpoint(%q): got %q, want %q", address, got, want)
		}
	}
}

func versionTag(context.Context, string, any) (any, error) {
	return &machineapi.VersionResponse{Messages: []*machineapi.Version{{Version: &machineapi.VersionInfo{Tag: "v1.13.9"}}}}, nil
}
