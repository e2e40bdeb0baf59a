package lab

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/maesh/provider-ichor/internal/lab/controlplane"
)

// EtcdTLS makes a client's certificate from the authority of etcd in a Talos secrets bundle, so that etcd can be looked at
// without the product. No error tells what is in the bundle.
func EtcdTLS(bundle []byte) (*tls.Config, error) {
	var secrets struct {
		Certs struct {
			Etcd struct{ Crt, Key []byte }
		}
	}
	if err := yaml.Unmarshal(bundle, &secrets); err != nil {
		return nil, errors.New("cannot read the authority of etcd from the PKI Secret")
	}
	ca := controlplane.KeyPair{Cert: secrets.Certs.Etcd.Crt, Key: secrets.Certs.Etcd.Key}
	pair, err := ca.Issue(controlplane.Leaf{CommonName: "lab"})
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("cannot use the certificate for etcd: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.Cert)
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}
