package simulator

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/role"
)

const (
	// certificateLifetime is what Talos gives the certificates of its API.
	certificateLifetime = 24 * time.Hour
	// certificateRenewal is the age at which a server certificate is replaced.
	certificateRenewal = certificateLifetime / 2
	// clockBehind is how far the fault of that name puts the clock back.
	clockBehind = time.Hour
	// maintenanceCommonName is the subject of the certificate that a machine without configuration shows.
	maintenanceCommonName = "maintenance-service.talos.dev"
)

// maintenanceTLS is server-only TLS by a CA that lives as long as the boot; client certificates are not even asked for.
func maintenanceTLS(addr netip.Addr, eachHandshakeNew func() bool) (*tls.Config, error) {
	cert, err := newMaintenanceCertificate(addr)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{"h2"},
		SessionTicketsDisabled: true,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if eachHandshakeNew() {
				return newMaintenanceCertificate(addr)
			}
			return cert, nil
		},
	}, nil
}

func newMaintenanceCertificate(addr netip.Addr) (*tls.Certificate, error) {
	ca, err := x509.NewSelfSignedCertificateAuthority(x509.Organization("talos"), x509.ECDSA(true))
	if err != nil {
		return nil, fmt.Errorf("cannot make maintenance CA: %w", err)
	}
	return issue(x509.NewCertificateAndKeyFromCertificateAuthority(ca), time.Now(), x509.CommonName(maintenanceCommonName),
		x509.IPAddresses([]net.IP{addr.AsSlice()}), x509.DNSNames([]string{maintenanceCommonName}),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}), x509.KeyUsage(stdx509.KeyUsageDigitalSignature))
}

// An authority is the CA of a cluster that no machine of the fleet belongs to.
type authority struct {
	ca   *x509.PEMEncodedCertificateAndKey
	pool *stdx509.CertPool
}

func newAuthority() (*authority, error) {
	ca, err := x509.NewSelfSignedCertificateAuthority(x509.Organization("talos"), x509.ECDSA(true))
	if err != nil {
		return nil, fmt.Errorf("cannot make the CA of another cluster: %w", err)
	}
	a := &authority{ca: x509.NewCertificateAndKeyFromCertificateAuthority(ca), pool: stdx509.NewCertPool()}
	a.pool.AppendCertsFromPEM(a.ca.Crt)
	return a, nil
}

func (a *authority) serverCertificate(addr netip.Addr, hostname string) (*tls.Certificate, error) {
	return serverCertificate(a.ca, addr, hostname, nil, time.Now())
}

// issue makes a leaf certificate for 24 hours.
func issue(ca *x509.PEMEncodedCertificateAndKey, now time.Time, setters ...x509.Option) (*tls.Certificate, error) {
	authority, err := x509.NewCertificateAuthorityFromCertificateAndKey(ca)
	if err != nil {
		return nil, fmt.Errorf("cannot read CA: %w", err)
	}
	setters = append(setters, x509.NotBefore(now.Add(-clockBehind/60)), x509.NotAfter(now.Add(certificateLifetime)))
	pair, err := x509.NewKeyPair(authority, setters...)
	if err != nil {
		return nil, fmt.Errorf("cannot issue certificate: %w", err)
	}
	return pair.Certificate, nil
}

// serverCertificate is what a configured machine shows: its addresses, its hostname and the configured names.
func serverCertificate(ca *x509.PEMEncodedCertificateAndKey, addr netip.Addr, hostname string, sans []string, now time.Time) (*tls.Certificate, error) {
	ips := []net.IP{addr.AsSlice()}
	names := []string{}
	if hostname != "" {
		names = append(names, hostname)
	}
	for _, san := range sans {
		if ip := net.ParseIP(san); ip != nil {
			ips = append(ips, ip)
		} else {
			names = append(names, san)
		}
	}
	return issue(ca, now, x509.IPAddresses(ips), x509.DNSNames(names), x509.CommonName(hostname),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}), x509.KeyUsage(stdx509.KeyUsageDigitalSignature))
}

// impersonatorCertificate lets one machine's API call another's on behalf of a caller. Only control planes hold the CA's key.
func impersonatorCertificate(ca *x509.PEMEncodedCertificateAndKey, now time.Time) (*tls.Certificate, error) {
	return issue(ca, now, x509.Organization(string(role.Impersonator)),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}), x509.KeyUsage(stdx509.KeyUsageDigitalSignature))
}

// acceptedCAs is the pool that a configured machine checks clients (and other machines) against.
func acceptedCAs(cfg config.Config) *stdx509.CertPool {
	pool := stdx509.NewCertPool()
	if ca := cfg.Machine().Security().IssuingCA(); ca != nil {
		pool.AppendCertsFromPEM(ca.Crt)
	}
	for _, ca := range cfg.Machine().Security().AcceptedCAs() {
		pool.AppendCertsFromPEM(ca.Crt)
	}
	return pool
}

// runningTLS is mutual TLS. The pool, the certificate and the clock are asked anew for each handshake, so that a changed
// configuration takes effect without a restart of the listener.
func runningTLS(pool func() *stdx509.CertPool, cert func() (*tls.Certificate, error), now func() time.Time) *tls.Config {
	base := &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{"h2"},
		SessionTicketsDisabled: true,
		ClientAuth:             tls.RequireAndVerifyClientCert,
		Time:                   now,
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert() },
		VerifyPeerCertificate:  onlyClientAuth,
	}
	config := base.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := base.Clone()
		c.ClientCAs = pool()
		return c, nil
	}
	return config
}

// onlyClientAuth refuses a client certificate that may do anything but authenticate a client. Certificates with both
// usages, which many tools make by default, must not get in.
func onlyClientAuth(_ [][]byte, chains [][]*stdx509.Certificate) error {
	want := []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}
	for _, chain := range chains {
		for _, cert := range chain {
			if cert.IsCA {
				continue
			}
			if !slices.Equal(cert.ExtKeyUsage, want) || len(cert.UnknownExtKeyUsage) > 0 {
				return errors.New("certificate is not for client authentication only")
			}
		}
	}
	return nil
}
