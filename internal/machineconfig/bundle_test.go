package machineconfig

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"go.yaml.in/yaml/v4"
)

func cloneSecrets(t *testing.T, b *Bundle) *secrets.Bundle {
	t.Helper()
	data, err := b.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	c := &secrets.Bundle{}
	if err := yaml.Unmarshal(data, c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestParseBundleReadsWhatMarshalWrites(t *testing.T) {
	first, err := testBundle(t).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	b, err := ParseBundle(first)
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(first), string(second)); d != "" {
		t.Error(d)
	}
	if b.ClusterID() == "" || b.ClusterID() != testBundle(t).ClusterID() {
		t.Errorf("cluster ID %q", b.ClusterID())
	}
}

func TestParseBundleNamesWhatIsMissing(t *testing.T) {
	whole := testBundle(t)
	for _, tc := range []struct {
		part   string
		damage func(*secrets.Bundle)
	}{
		{"cluster is required", func(b *secrets.Bundle) { b.Cluster = nil }},
		{"cluster.id", func(b *secrets.Bundle) { b.Cluster.ID = "" }},
		{"cluster.secret", func(b *secrets.Bundle) { b.Cluster.Secret = "" }},
		{"secrets is required", func(b *secrets.Bundle) { b.Secrets = nil }},
		{"secrets.bootstraptoken", func(b *secrets.Bundle) { b.Secrets.BootstrapToken = "" }},
		{"secrets.secretboxencryptionsecret", func(b *secrets.Bundle) { b.Secrets.SecretboxEncryptionSecret = "" }},
		{"trustdinfo is required", func(b *secrets.Bundle) { b.TrustdInfo = nil }},
		{"trustdinfo.token", func(b *secrets.Bundle) { b.TrustdInfo.Token = "" }},
		{"certs is required", func(b *secrets.Bundle) { b.Certs = nil }},
		{"certs.etcd is required", func(b *secrets.Bundle) { b.Certs.Etcd = nil }},
		{"certs.k8s is invalid", func(b *secrets.Bundle) { b.Certs.K8s.Key = nil }},
		{"certs.k8saggregator is invalid", func(b *secrets.Bundle) { b.Certs.K8sAggregator.Crt = nil }},
		{"certs.k8sserviceaccount is required", func(b *secrets.Bundle) { b.Certs.K8sServiceAccount = nil }},
		{"certs.os is required", func(b *secrets.Bundle) { b.Certs.OS = nil }},
		{"certs.k8s is invalid: its key is not that of its certificate", func(b *secrets.Bundle) { b.Certs.K8s.Key = b.Certs.Etcd.Key }},
		{"cluster.id is required; certs.os is required", func(b *secrets.Bundle) { b.Cluster.ID, b.Certs.OS = "", nil }},
	} {
		t.Run(tc.part, func(t *testing.T) {
			damaged := cloneSecrets(t, whole)
			tc.damage(damaged)
			data, err := yaml.Marshal(damaged)
			if err != nil {
				t.Fatal(err)
			}
			_, err = ParseBundle(data)
			if err == nil || !strings.Contains(err.Error(), tc.part) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error = %v", err)
			}
		})
	}
}

func TestParseBundleNeedsAuthorities(t *testing.T) {
	b := cloneSecrets(t, testBundle(t))
	_, crt, key, err := testBundle(t).TalosClient([]string{"os:admin"}, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	b.Certs.OS.Crt, b.Certs.OS.Key = crt, key
	data, err := yaml.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = ParseBundle(data); err == nil || !strings.Contains(err.Error(), "certs.os is invalid: its certificate is not that of an authority") {
		t.Errorf("error = %v", err)
	}
}

func TestParseBundleShowsNothing(t *testing.T) {
	for _, tc := range []struct{ reason, data, want string }{
		{"empty", " \n", "is empty"},
		{"not YAML", "cluster:\n\tid: " + sesame, "(line 2)"},
		{"a text", sesame, "not the YAML"},
		{"a text for a map", "cluster: {}\ntrustdinfo: " + sesame, "(line 2)"},
		{"another file", "apiVersion: v1\nkind: Secret\ndata:\n  x: " + sesame, "cluster is required"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			_, err := ParseBundle([]byte(tc.data))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error = %v, want %q", err, tc.want)
			}
			if strings.Contains(err.Error(), sesame[:4]) {
				t.Errorf("it shows a secret: %v", err)
			}
		})
	}
}

func TestNewBundleRefusesWhatIsNoVersion(t *testing.T) {
	if _, err := NewBundle("latest"); err == nil || !strings.Contains(err.Error(), `versions.talos "latest"`) {
		t.Errorf("error = %v", err)
	}
}

func TestBundleDoesNotPrint(t *testing.T) {
	b := testBundle(t)
	controlPlane, everywhere := b.secretValues()
	for _, s := range []string{fmt.Sprint(b), fmt.Sprintf("%+v", b), fmt.Sprintf("%#v", b), fmt.Sprintf("%q", b)} {
		if !strings.Contains(s, b.ClusterID()) {
			t.Errorf("printed %q", s)
		}
		for _, secret := range append(controlPlane, everywhere...) {
			if strings.Contains(s, secret) {
				t.Fatal("a secret is printed")
			}
		}
	}
}

func TestClientCertificates(t *testing.T) {
	b, now := testBundle(t), time.Now()
	_, talos, _, err := b.TalosClient([]string{"os:reader", "os:etcd:backup"}, 24*time.Hour, now)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := b.Kubeconfig("one", "https://192.0.2.10:6443", 24*time.Hour, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name         string
		crt, ca      []byte
		organization []string
		subject      string
	}{
		{"Talos", talos, b.OSCA(), []string{"os:etcd:backup", "os:reader"}, ""},
		{"Kubernetes", field(t, kubeconfig, "users", "user", "client-certificate-data"), b.K8sCA(), []string{"system:masters"}, "admin"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			block, _ := pem.Decode(tc.crt)
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(tc.ca)
			for at, want := range map[time.Duration]bool{-time.Minute: true, 0: true, 24*time.Hour - time.Minute: true, 24*time.Hour + time.Minute: false, -2 * time.Hour: false} {
				_, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now.Add(at), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
				if (err == nil) != want {
					t.Errorf("%s from now: %v", at, err)
				}
			}
			if d := cmp.Diff([]x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, cert.ExtKeyUsage); d != "" {
				t.Error(d)
			}
			slices.Sort(cert.Subject.Organization)
			if d := cmp.Diff(tc.organization, cert.Subject.Organization); d != "" {
				t.Error(d)
			}
			if cert.Subject.CommonName != tc.subject {
				t.Errorf("common name %q", cert.Subject.CommonName)
			}
		})
	}
	if _, _, _, err := b.TalosClient([]string{"root"}, time.Hour, now); err == nil {
		t.Error("an unknown role was issued")
	}
	if _, _, _, err := b.TalosClient(nil, time.Hour, now); err == nil {
		t.Error("a certificate without a role was issued")
	}
}

// field reads a value of the first entry of a list in a kubeconfig.
func field(t *testing.T, kubeconfig []byte, list, kind, name string) []byte {
	t.Helper()
	var c map[string]any
	if err := yaml.Unmarshal(kubeconfig, &c); err != nil {
		t.Fatal(err)
	}
	s, _ := c[list].([]any)[0].(map[string]any)[kind].(map[string]any)[name].(string)
	data, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
