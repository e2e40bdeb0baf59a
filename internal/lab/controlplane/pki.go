package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// A KeyPair is a certificate and its private key, both PEM.
type KeyPair struct {
	Cert, Key []byte
}

// PKI is what an API server identifies itself and others by. Its authorities may be anybody's: NewPKI makes fresh ones.
type PKI struct {
	// CA signs the server's certificate and those of its users.
	CA KeyPair

	// FrontProxyCA signs the certificate that the server shows to aggregated API servers.
	FrontProxyCA KeyPair

	// ServiceAccountKey is the PEM private key that signs service account tokens.
	ServiceAccountKey []byte
}

// NewPKI makes new authorities and a new service account key.
func NewPKI() (PKI, error) {
	ca, err := NewCA("kubernetes")
	if err != nil {
		return PKI{}, err
	}
	front, err := NewCA("front-proxy")
	if err != nil {
		return PKI{}, err
	}
	_, key, err := newKey()
	if err != nil {
		return PKI{}, err
	}
	return PKI{CA: ca, FrontProxyCA: front, ServiceAccountKey: key}, nil
}

const (
	// lifetime of what is made here: longer than any test or lab session, short enough not to matter if it gets lost.
	lifetime = 7 * 24 * time.Hour

	// backdating allows for a peer whose clock is a little behind.
	backdating = 5 * time.Minute
)

// A Leaf describes a certificate to be issued. One with names or addresses can be used by a server, and every one by a client.
type Leaf struct {
	CommonName    string
	Organizations []string
	DNSNames      []string
	IPs           []net.IP
}

// NewCA makes a self-signed certificate authority.
func NewCA(name string) (KeyPair, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return KeyPair{}, err
	}
	template, err := newTemplate(pkix.Name{CommonName: name})
	if err != nil {
		return KeyPair{}, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("cannot make the authority %q: %w", name, err)
	}
	return KeyPair{Cert: encode("CERTIFICATE", der), Key: keyPEM}, nil
}

// Issue makes a certificate signed by the authority ca.
func (ca KeyPair) Issue(leaf Leaf) (KeyPair, error) {
	caCert, caKey, err := ca.parse()
	if err != nil {
		return KeyPair{}, fmt.Errorf("cannot read the authority for %q: %w", leaf.CommonName, err)
	}
	key, keyPEM, err := newKey()
	if err != nil {
		return KeyPair{}, err
	}
	template, err := newTemplate(pkix.Name{CommonName: leaf.CommonName, Organization: leaf.Organizations})
	if err != nil {
		return KeyPair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(leaf.DNSNames)+len(leaf.IPs) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	template.DNSNames, template.IPAddresses = leaf.DNSNames, leaf.IPs
	der, err := x509.CreateCertificate(rand.Reader, template, caCert, key.Public(), caKey)
	if err != nil {
		return KeyPair{}, fmt.Errorf("cannot issue a certificate for %q: %w", leaf.CommonName, err)
	}
	return KeyPair{Cert: encode("CERTIFICATE", der), Key: keyPEM}, nil
}

func newTemplate(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("cannot make a serial number: %w", err)
	}
	now := time.Now()
	return &x509.Certificate{SerialNumber: serial, Subject: subject, NotBefore: now.Add(-backdating), NotAfter: now.Add(lifetime)}, nil
}

func newKey() (crypto.Signer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot generate a key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot encode a key: %w", err)
	}
	return key, encode("EC PRIVATE KEY", der), nil
}

func (ca KeyPair) parse() (*x509.Certificate, crypto.Signer, error) {
	block, _ := pem.Decode(ca.Cert)
	if block == nil {
		return nil, nil, errors.New("the certificate is not PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, err
	}
	key, err := parseKey(ca.Key)
	return cert, key, err
}

// parseKey reads the encodings that authorities come in: ours, and those of a Talos secrets bundle.
func parseKey(keyPEM []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(keyPEM)
	if block == nil {
		return nil, errors.New("the key is not PEM")
	}
	if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("the key is neither SEC 1 nor PKCS#1 nor PKCS#8")
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of type %T cannot sign", key)
	}
	return signer, nil
}

// publicPEM is the public half of a PEM private key.
func publicPEM(keyPEM []byte) ([]byte, error) {
	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	return encode("PUBLIC KEY", der), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
