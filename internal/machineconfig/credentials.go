package machineconfig

import (
	stdx509 "crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"go.yaml.in/yaml/v4"
)

// adminRoles are the roles of the credentials that are given to people.
var adminRoles = []string{string(role.Admin)}

// TalosClient issues a client certificate for the Talos API with these roles, valid until ttl after now. All of it is PEM.
func (b *Bundle) TalosClient(roles []string, ttl time.Duration, now time.Time) (ca, crt, key []byte, err error) {
	set, unknown := role.Parse(roles)
	if len(unknown) > 0 || len(set.Strings()) == 0 {
		return nil, nil, nil, fmt.Errorf("cannot issue a client certificate for the Talos API: roles %q are not all known", roles)
	}
	pair, err := secrets.NewAdminCertificateAndKey(now.Add(-backdate), b.secrets.Certs.OS, set, ttl+backdate)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("cannot issue a client certificate for the Talos API: %w", err)
	}
	return b.OSCA(), pair.Crt, pair.Key, nil
}

// Talosconfig writes a talosconfig with an administrator's certificate, valid until ttl after now.
func (b *Bundle) Talosconfig(name string, endpoints []string, ttl time.Duration, now time.Time) ([]byte, error) {
	ca, crt, key, err := b.TalosClient(adminRoles, ttl, now)
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(map[string]any{
		"context": name,
		"contexts": map[string]any{name: map[string]any{
			"endpoints": endpoints,
			"ca":        inBase64(ca),
			"crt":       inBase64(crt),
			"key":       inBase64(key),
		}},
	})
}

// Kubeconfig writes a kubeconfig with an administrator's certificate, valid until ttl after now.
func (b *Bundle) Kubeconfig(name, endpoint string, ttl time.Duration, now time.Time) ([]byte, error) {
	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(b.secrets.Certs.K8s)
	if err != nil {
		return nil, errors.New("cannot issue a client certificate for the Kubernetes API: the authority of the cluster cannot be used")
	}
	pair, err := x509.NewKeyPair(ca,
		x509.CommonName("admin"),
		x509.Organization("system:masters"),
		x509.NotBefore(now.Add(-backdate)),
		x509.NotAfter(now.Add(ttl)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature|stdx509.KeyUsageKeyEncipherment),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}),
	)
	if err != nil {
		return nil, fmt.Errorf("cannot issue a client certificate for the Kubernetes API: %w", err)
	}
	user := "admin@" + name
	named := func(name, kind string, what map[string]any) []any {
		return []any{map[string]any{"name": name, kind: what}}
	}
	return yaml.Marshal(map[string]any{
		"apiVersion":      "v1",
		"kind":            "Config",
		"current-context": user,
		"clusters":        named(name, "cluster", map[string]any{"server": endpoint, "certificate-authority-data": inBase64(b.K8sCA())}),
		"users":           named(user, "user", map[string]any{"client-certificate-data": inBase64(pair.CrtPEM), "client-key-data": inBase64(pair.KeyPEM)}),
		"contexts":        named(user, "context", map[string]any{"cluster": name, "user": user, "namespace": "default"}),
	})
}

func inBase64(data []byte) string { return base64.StdEncoding.EncodeToString(data) }
