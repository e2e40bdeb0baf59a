package story

import (
	"encoding/base64"
	"encoding/pem"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bundleYAML is a secrets bundle as Talos writes it, with made-up secrets.
func bundleYAML(key string) []byte {
	return []byte(`cluster: {id: not-a-secret-id, secret: cluster-secret-value}
secrets: {bootstraptoken: abcdef.0123456789abcdef, secretboxencryptionsecret: secretbox-value}
trustdinfo: {token: ghijkl.0123456789abcdef}
certs: {etcd: {crt: bm90IHNlY3JldA==, key: ` + key + `}}
`)
}

func somePEM(header string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: header, Bytes: []byte(header + strings.Repeat(", made up, and of no use to anybody", 3))}))
}

func TestFindIn(t *testing.T) {
	key := somePEM("EC PRIVATE KEY")
	encoded := base64.StdEncoding.EncodeToString([]byte(key))
	secrets := Secrets{}
	if err := secrets.Learn("pki", bundleYAML(encoded)); err != nil {
		t.Fatal(err)
	}
	in64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	body := strings.Split(key, "\n")[1]
	cases := map[string]struct {
		text string
		want string // what is found at least; empty for nothing
	}{
		"Nothing":            {text: "the ID not-a-secret-id and the certificate bm90IHNlY3JldA== are no secrets"},
		"Certificate":        {text: somePEM("CERTIFICATE")},
		"CertificateBase64":  {text: in64(somePEM("CERTIFICATE"))},
		"HiddenConfig":       {text: "machine:\n  type: worker\n  token: (hidden)\n"},
		"Token":              {text: "rendered with abcdef.0123456789abcdef for cp-1", want: "pki.secrets.bootstraptoken"},
		"TokenInBase64":      {text: in64("the token=ghijkl.0123456789abcdef"), want: "pki.trustdinfo.token"},
		"ClusterSecret":      {text: `{"a":["cluster-secret-value"]}`, want: "pki.cluster.secret"},
		"KeyAsInTheBundle":   {text: "x" + encoded + "y", want: "pki.certs.etcd.key"},
		"KeyAsPEM":           {text: key, want: "pki.certs.etcd.key as PEM"},
		"KeyOnOneLine":       {text: strings.ReplaceAll(key, "\n", `\n`), want: "pki.certs.etcd.key as PEM"},
		"KeyWithoutItsEnds":  {text: body, want: "pki.certs.etcd.key as PEM"},
		"KeyEncodedTwice":    {text: in64(encoded), want: "pki.certs.etcd.key in base64"},
		"OtherKey":           {text: somePEM("PRIVATE KEY")[:40], want: "a private key"},
		"OtherKeyInBase64":   {text: "k: " + in64(somePEM("PRIVATE KEY"))[:60], want: "a private key"},
		"RSAKeyInBase64":     {text: "k: " + in64(somePEM("RSA PRIVATE KEY"))[:60], want: "a private key"},
		"ECKeyInBase64":      {text: "k: " + in64(somePEM("EC PRIVATE KEY"))[:40], want: "a private key"},
		"Ed25519KeyInBase64": {text: "k: " + in64(somePEM("ED25519 PRIVATE KEY"))[:60], want: "a private key"},
		"EncryptedInBase64":  {text: "k: " + in64(somePEM("ENCRYPTED PRIVATE KEY"))[:60], want: "a private key"},
		"OtherConfig":        {text: "version: v1alpha1\nmachine:\n  type: worker\n  token: zzzzzz.0123456789abcdef\n", want: "a machine configuration with its token"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			object := map[string]any{"metadata": map[string]any{"annotations": map[string]any{"note": tc.text}}, "n": int64(1)}
			path, got := secrets.FindIn(object)
			if got != tc.want {
				t.Errorf("found %q, want %q", got, tc.want)
			}
			if tc.want != "" && !strings.HasPrefix(path, "metadata.annotations.note") {
				t.Errorf("found at %q", path)
			}
			if left := secrets.Find(secrets.Hide(tc.text)); left != "" {
				t.Errorf("hide leaves %s", left)
			}
		})
	}
	if _, got := secrets.FindIn(map[string]any{"abcdef.0123456789abcdef": "x"}); got != "pki.secrets.bootstraptoken" {
		t.Errorf("found %q as a key", got)
	}
}

// TestLearnFrom holds that each document of a Secret is known, and that an empty one does no harm.
func TestLearnFrom(t *testing.T) {
	for _, key := range []string{"secrets.yaml", "kubeconfig", "talosconfig"} {
		secrets := Secrets{}
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Data: map[string][]byte{key: []byte("{token: a-secret-value, url: not-a-secret}")}}
		if err := secrets.LearnFrom(s); err != nil {
			t.Fatal(err)
		}
		if got := secrets.Hide("a-secret-value at not-a-secret"); got != "(hidden) at not-a-secret" {
			t.Errorf("%s: %q is left", key, got)
		}
	}
}

// TestHideTakesTheWholeKey holds that no body is left of a key that was never learned.
func TestHideTakesTheWholeKey(t *testing.T) {
	key := somePEM("PRIVATE KEY")
	for name, tc := range map[string]struct{ text, want string }{
		"PEM":       {key, "a (hidden)-----END PRIVATE KEY-----\n z"},
		"OnOneLine": {strings.ReplaceAll(key, "\n", `\n`), `a (hidden)-----END PRIVATE KEY-----\n z`},
		"Base64":    {base64.StdEncoding.EncodeToString([]byte(key)), "a (hidden) z"},
	} {
		if got := (Secrets{}).Hide("a " + tc.text + " z"); got != tc.want {
			t.Errorf("%s: %q is left, want %q", name, got, tc.want)
		}
	}
}

func TestLearnShowsNothing(t *testing.T) {
	err := Secrets{}.Learn("pki", []byte("a: b: abcdef.0123456789abcdef"))
	if err == nil || strings.Contains(err.Error(), "abcdef") {
		t.Errorf("error %v, want one that does not quote the document", err)
	}
}
