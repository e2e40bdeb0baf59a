package machineconfig

import (
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	cryptox509 "github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"go.yaml.in/yaml/v4"
)

// backdate is how long before now certificates become valid. Machines whose clock is behind would refuse them otherwise,
// and machines that boot for the first time have such clocks.
const backdate = time.Hour

// A Bundle is the secrets of one cluster: its certificate authorities, tokens and encryption secrets. It does not show
// them when it is printed.
type Bundle struct {
	secrets *secrets.Bundle
}

// NewBundle makes new secrets for a cluster that begins with this version of Talos, such as v1.13.9.
func NewBundle(talosVersion string) (*Bundle, error) {
	contract, err := contractOf("versions.talos", talosVersion)
	if err != nil {
		return nil, err
	}
	b, err := secrets.NewBundle(secrets.NewFixedClock(secrets.NewClock().Now().Add(-backdate)), contract)
	if err != nil {
		return nil, fmt.Errorf("cannot make the secrets of a cluster: %w", err)
	}
	return &Bundle{secrets: b}, nil
}

// ParseBundle reads secrets in the form that `talosctl gen secrets` writes. The error names every part that is missing or
// cannot be used, and shows none.
func ParseBundle(data []byte) (*Bundle, error) {
	if len(strings.TrimSpace(string(data))) == 0 {
		return nil, errors.New("the secrets bundle is empty")
	}
	b := &secrets.Bundle{}
	if err := yaml.Unmarshal(data, b); err != nil {
		return nil, fmt.Errorf("the secrets bundle is not the YAML of a Talos secrets bundle%s", where(err))
	}
	if err := b.Validate(); err != nil {
		return nil, fmt.Errorf("the secrets bundle cannot be used: %s", oneLine(err))
	}
	for _, ca := range []struct {
		name string
		pair *cryptox509.PEMEncodedCertificateAndKey
	}{{"certs.etcd", b.Certs.Etcd}, {"certs.k8s", b.Certs.K8s}, {"certs.k8saggregator", b.Certs.K8sAggregator}, {"certs.os", b.Certs.OS}} {
		if err := checkAuthority(ca.pair); err != nil {
			return nil, fmt.Errorf("the secrets bundle cannot be used: %s is invalid: %w", ca.name, err)
		}
	}
	return &Bundle{secrets: b}, nil
}

// checkAuthority returns an error unless the pair can sign certificates that others accept.
func checkAuthority(pair *cryptox509.PEMEncodedCertificateAndKey) error {
	cert, err := pair.GetCert()
	if err != nil {
		return err
	}
	key, err := pair.GetKey()
	if err != nil {
		return err
	}
	return errors.Join(isAuthority(cert), matches(cert, key))
}

func isAuthority(cert *x509.Certificate) error {
	if !cert.IsCA {
		return errors.New("its certificate is not that of an authority")
	}
	return nil
}

func matches(cert *x509.Certificate, key any) error {
	signer, ok := key.(crypto.Signer)
	if !ok {
		return errors.New("its key cannot sign")
	}
	public, ok := signer.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(cert.PublicKey) {
		return errors.New("its key is not that of its certificate")
	}
	return nil
}

// Marshal writes the secrets in the form that ParseBundle and talosctl read. It is deterministic.
func (b *Bundle) Marshal() ([]byte, error) {
	data, err := yaml.Marshal(b.secrets)
	if err != nil {
		return nil, errors.New("cannot encode the secrets bundle")
	}
	return data, nil
}

// ClusterID is the ID of the cluster. It is no secret.
func (b *Bundle) ClusterID() string { return b.secrets.Cluster.ID }

// OSCA is the certificate, in PEM, of the authority of the Talos API.
func (b *Bundle) OSCA() []byte { return b.secrets.Certs.OS.Crt }

// K8sCA is the certificate, in PEM, of the authority of the Kubernetes API.
func (b *Bundle) K8sCA() []byte { return b.secrets.Certs.K8s.Crt }

// String tells whose secrets these are, and none of them.
func (b *Bundle) String() string {
	return fmt.Sprintf("secrets bundle of cluster ID %q", b.ClusterID())
}

// GoString is String.
func (b *Bundle) GoString() string { return b.String() }

// secretValues are all texts of a bundle that nobody may see. Those that only control planes may have come first.
func (b *Bundle) secretValues() (controlPlane, everywhere []string) {
	s := b.secrets
	for _, key := range [][]byte{s.Certs.OS.Key, s.Certs.K8s.Key, s.Certs.Etcd.Key, s.Certs.K8sAggregator.Key, s.Certs.K8sServiceAccount.Key} {
		controlPlane = append(controlPlane, string(key))
	}
	for _, text := range []string{s.Secrets.AESCBCEncryptionSecret, s.Secrets.SecretboxEncryptionSecret} {
		if text != "" {
			controlPlane = append(controlPlane, text)
		}
	}
	return controlPlane, []string{s.Cluster.Secret, s.Secrets.BootstrapToken, s.TrustdInfo.Token}
}

// contractOf returns what to render for a version of Talos. For one that is newer than the machinery, the machinery renders
// the newest that it knows, which a newer machine accepts.
func contractOf(field, version string) (*config.VersionContract, error) {
	c, err := config.ParseContractFromVersion(version)
	if err != nil || c.Major != config.TalosVersion1_13.Major {
		return nil, &FieldError{Field: field, Value: version, Problem: "it is not a version of Talos such as v1.13.9"}
	}
	return c, nil
}

var line = regexp.MustCompile(`\bline \d+\b`)

// where tells the line of an error of YAML. The rest of its text may quote what it stumbled over, which may be a secret.
func where(err error) string {
	if at := line.FindString(err.Error()); at != "" {
		return " (" + at + ")"
	}
	return ""
}

// oneLine writes an error that holds others as one line.
func oneLine(err error) string {
	var many interface{ WrappedErrors() []error }
	if !errors.As(err, &many) {
		return strings.Join(strings.Fields(err.Error()), " ")
	}
	var texts []string
	for _, e := range many.WrappedErrors() {
		texts = append(texts, oneLine(e))
	}
	return strings.Join(texts, "; ")
}
