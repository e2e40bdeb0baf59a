package controlplane

import (
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"os"
	"testing"
)

func TestServerCertificateNames(t *testing.T) {
	pki, err := NewPKI()
	if err != nil {
		t.Fatal(err)
	}
	o := APIServerOptions{
		Dir: t.TempDir(), Bind: netip.MustParseAddrPort("127.9.0.1:6443"), PKI: pki,
		ServiceCIDRs: []string{"10.96.0.0/12"}, Names: []string{"k8s.example.test", "192.0.2.7"},
	}
	if _, err := o.writePKI(); err != nil {
		t.Fatal(err)
	}
	cert := readCert(t, o.Dir+"/pki/server.crt")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pki.CA.Cert)
	for _, name := range []string{"127.9.0.1", "127.0.0.1", "localhost", "10.96.0.1", "kubernetes.default.svc", "k8s.example.test", "192.0.2.7"} {
		if _, err := cert.Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := cert.Verify(x509.VerifyOptions{DNSName: "elsewhere.test", Roots: roots}); err == nil {
		t.Error("the certificate is valid for any name")
	}
}

func TestLeafWithoutNamesCannotServe(t *testing.T) {
	ca, err := NewCA("test")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(Leaf{CommonName: "client"})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(decode(t, pair.Cert))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.Cert)
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err == nil {
		t.Error("a client's certificate can be a server's")
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
}

func readCert(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(decode(t, content))
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func decode(t *testing.T, content []byte) []byte {
	t.Helper()
	block, _ := pem.Decode(content)
	if block == nil {
		t.Fatal("not PEM")
	}
	return block.Bytes
}
