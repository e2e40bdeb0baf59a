package simulator

import (
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// adminKubeconfig makes what `talosctl kubeconfig` fetches: a new administrator's certificate and the declared endpoint.
func adminKubeconfig(cfg config.Config, now time.Time) ([]byte, error) {
	cluster := cfg.Cluster()
	if cluster.IssuingCA() == nil || cluster.Endpoint() == nil {
		return nil, errors.New("kubernetes CA or endpoint is not configured")
	}
	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(cluster.IssuingCA())
	if err != nil {
		return nil, fmt.Errorf("cannot read kubernetes CA: %w", err)
	}
	admin := cluster.AdminKubeconfig()
	pair, err := x509.NewKeyPair(ca,
		x509.CommonName(admin.CommonName()), x509.Organization(admin.CertOrganization()),
		x509.NotBefore(now.Add(-time.Minute)), x509.NotAfter(now.Add(admin.CertLifetime())),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature|stdx509.KeyUsageKeyEncipherment),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}))
	if err != nil {
		return nil, fmt.Errorf("cannot issue administrator certificate: %w", err)
	}
	pem := x509.NewCertificateAndKeyFromKeyPair(pair)
	user := "admin@" + cluster.Name()
	kubeconfig := clientcmdapi.Config{
		CurrentContext: user,
		Clusters: map[string]*clientcmdapi.Cluster{
			cluster.Name(): {Server: cluster.Endpoint().String(), CertificateAuthorityData: cluster.IssuingCA().Crt},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: pem.Crt, ClientKeyData: pem.Key}},
		Contexts:  map[string]*clientcmdapi.Context{user: {Cluster: cluster.Name(), AuthInfo: user, Namespace: "default"}},
	}
	out, err := clientcmd.Write(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("cannot encode kubeconfig: %w", err)
	}
	return out, nil
}
