package etcdmember

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/siderolabs/crypto/x509"
	"go.etcd.io/etcd/client/pkg/v3/transport"
)

// Leaf certificates are valid for a day, and an hour back, so that clocks need not agree.
const (
	leafLifetime = 24 * time.Hour
	leafBackdate = time.Hour
)

// A pki is the leaf certificate of one member. It serves clients and peers, and proves this member to the others.
type pki struct {
	ca, crt, key []byte
	client       *tls.Config
}

func newPKI(ca *x509.PEMEncodedCertificateAndKey, hostname string, address netip.Addr) (*pki, error) {
	if ca == nil || len(ca.Crt) == 0 || len(ca.Key) == 0 {
		return nil, errors.New("the etcd CA has no certificate or no key")
	}
	authority, err := x509.NewCertificateAuthorityFromCertificateAndKey(ca)
	if err != nil {
		return nil, fmt.Errorf("cannot parse the etcd CA: %w", err)
	}
	now := time.Now()
	// 127.0.0.1 is where connections within loopback come from, whatever address they go to, and etcd checks where a peer
	// comes from. It is also where a balancer in front of etcd listens.
	leaf, err := x509.NewKeyPair(authority,
		x509.CommonName(hostname),
		x509.IPAddresses([]net.IP{address.AsSlice(), net.IPv4(127, 0, 0, 1)}),
		x509.DNSNames([]string{hostname, "localhost"}),
		x509.NotBefore(now.Add(-leafBackdate)),
		x509.NotAfter(now.Add(leafLifetime)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature|stdx509.KeyUsageKeyEncipherment),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth, stdx509.ExtKeyUsageClientAuth}),
	)
	if err != nil {
		return nil, fmt.Errorf("cannot issue a certificate: %w", err)
	}
	pair := x509.NewCertificateAndKeyFromKeyPair(leaf)
	roots := stdx509.NewCertPool()
	roots.AppendCertsFromPEM(ca.Crt)
	return &pki{
		ca: ca.Crt, crt: pair.Crt, key: pair.Key,
		client: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{*leaf.Certificate}},
	}, nil
}

// pkiFiles are the certificates as files, which is the only form that embedded etcd takes. It reads them again for each
// connection, so they must stay until it has stopped. What a process that was killed left behind is written over.
type pkiFiles struct{ dir string }

func (p *pki) write(dir string) (*pkiFiles, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make a directory for certificates: %w", err)
	}
	f := &pkiFiles{dir: dir}
	for name, data := range map[string][]byte{"ca.crt": p.ca, "tls.crt": p.crt, "tls.key": p.key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			f.remove()
			return nil, fmt.Errorf("cannot write certificates: %w", err)
		}
	}
	return f, nil
}

func (f *pkiFiles) info() transport.TLSInfo {
	return transport.TLSInfo{
		CertFile:       filepath.Join(f.dir, "tls.crt"),
		KeyFile:        filepath.Join(f.dir, "tls.key"),
		TrustedCAFile:  filepath.Join(f.dir, "ca.crt"),
		ClientCertAuth: true,
	}
}

func (f *pkiFiles) remove() { _ = os.RemoveAll(f.dir) }
