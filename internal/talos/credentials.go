package talos

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	talosx509 "github.com/siderolabs/crypto/x509"
)

// Credentials for the Talos API of one cluster's machines: three PEM blocks. The roles that a machine grants are those in
// the Organization of Cert, whose extended key usage must be exactly clientAuth.
type Credentials struct{ CA, Cert, Key []byte }

// Format writes no part of the credentials, whatever the verb, so that a careless log line cannot leak the key.
func (Credentials) Format(s fmt.State, _ rune) {
	_, _ = io.WriteString(s, "talos.Credentials(redacted)")
}

// fingerprint tells one set of credentials from another without holding the key.
func (c Credentials) fingerprint() string { return digest(c.CA, c.Cert, c.Key) }

func digest(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:", len(p))
		_, _ = h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// mutualTLS is the TLS configuration for a machine that has its configuration, at the given host. The errors hold nothing of
// the PEM blocks.
func mutualTLS(c Credentials, host string) (*tls.Config, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.CA) {
		return nil, errors.New("the CA of the Talos API credentials holds no certificate")
	}
	pair, err := tls.X509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, fmt.Errorf("the client certificate and key of the Talos API credentials do not load: %w", err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// Not skipped but done by verify, in another order.
		InsecureSkipVerify: true,
		VerifyConnection:   func(s tls.ConnectionState) error { return verify(s.PeerCertificates, roots, host) },
		// Always show our certificate, also to a machine that asks for another CA's. Otherwise the machine of another
		// cluster would complain of a missing certificate, which is what a blank machine's door is told apart by.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil },
	}, nil
}

// verify checks what crypto/tls would check, but whose certificate it is counts before when it is valid, and that before
// what it names. In the usual order a blank machine with a wrong clock, or at an address that it does not know of, would look
// like one of our own with a faulty certificate.
func verify(chain []*x509.Certificate, roots *x509.CertPool, host string) error {
	if len(chain) == 0 {
		return errors.New("the machine showed no certificate")
	}
	leaf := chain[0]
	o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range chain[1:] {
		o.Intermediates.AddCert(c)
	}
	_, err := leaf.Verify(o)
	if invalid := (x509.CertificateInvalidError{}); errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		o.CurrentTime = leaf.NotBefore
		_, then := leaf.Verify(o)
		if foreign := (x509.UnknownAuthorityError{}); errors.As(then, &foreign) {
			return then
		}
	}
	if err != nil {
		return err
	}
	return leaf.VerifyHostname(host)
}

// errFingerprint is what a maintenance certificate other than the pinned one is refused with.
const errFingerprint = "the maintenance certificate is not the pinned one"

// maintenanceTLS is the TLS configuration for a blank machine: its certificate is self-signed anew at every boot, so that
// only a pinned fingerprint can tell that it is the right one. An empty fingerprint accepts any.
func maintenanceTLS(fingerprint string) (*tls.Config, error) {
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS13,
		// A blank machine has no CA to be verified against. VerifyConnection checks the pin, if there is one.
		InsecureSkipVerify: true,
	}
	if fingerprint == "" {
		return cfg, nil
	}
	want, err := talosx509.ParseFingerprint(fingerprint)
	if err != nil || len(want) != sha256.Size {
		return nil, fmt.Errorf("the maintenance fingerprint %q is not the base64 of a SHA-256, as Talos prints it on its console", fingerprint)
	}
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errors.New(errFingerprint)
		}
		if got := talosx509.SPKIFingerprint(s.PeerCertificates[0]); !got.Equal(want) {
			return fmt.Errorf("%s: it has %s, pinned is %s", errFingerprint, got, want)
		}
		return nil
	}
	return cfg, nil
}
