package simulator

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/siderolabs/crypto/x509"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// monitorTimeout bounds the attempt to connect to a member that does not answer.
const monitorTimeout = 2 * time.Second

// Etcd connects straight to the etcd member of one machine, past the Talos API, so that a test can see what is true. The caller
// must close the client. It fails if there is no such machine, or it runs without a control plane's configuration.
func (f *Fleet) Etcd(name string) (*clientv3.Client, error) {
	m := f.Machine(name)
	if m == nil {
		return nil, fmt.Errorf("cannot watch etcd: there is no machine %q", name)
	}
	s := m.system()
	if s == nil || !s.canForward() {
		return nil, fmt.Errorf("cannot watch etcd: machine %q is no running control plane", name)
	}
	ca := s.activeConfig().Cluster().Etcd().CA()
	cert, err := issue(ca, time.Now(), x509.CommonName("monitor"),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}), x509.KeyUsage(stdx509.KeyUsageDigitalSignature))
	if err != nil {
		return nil, fmt.Errorf("cannot watch etcd of machine %q: %w", name, err)
	}
	pool := stdx509.NewCertPool()
	pool.AppendCertsFromPEM(ca.Crt)
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{"https://" + net.JoinHostPort(m.spec.Address.String(), strconv.Itoa(etcdClientPort))},
		DialTimeout: monitorTimeout,
		TLS:         &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*cert}, RootCAs: pool},
		Logger:      zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("cannot watch etcd of machine %q: %w", name, err)
	}
	return client, nil
}
