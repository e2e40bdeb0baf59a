package accidents

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/common/expfmt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/maesh/provider-ichor/internal/connect"
	"github.com/maesh/provider-ichor/internal/lab/story"
)

// minSecrets is how many secrets a cluster has at least, each known in two ways of writing it. Fewer would mean that it is not
// known where they are.
const minSecrets = 11

// A logbook keeps all that the provider logs, debug messages and errors included.
type logbook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logbook) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.text.WriteString(prefix + " " + args + "\n")
	}, funcr.Options{Verbosity: 1})
}

func (b *logbook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// learnSecrets notes those of a cluster, which nobody may see anywhere but in the two Secrets that are for its owner.
func (w *world) learnSecrets(namespace, name string) {
	w.t.Helper()
	before := len(w.secrets)
	for _, in := range []string{connect.PKISecretName(name), name + "-connection"} {
		s := &corev1.Secret{}
		if !w.find(s, namespace, in) {
			w.t.Fatalf("there is no Secret %s", in)
		}
		for key, data := range s.Data {
			if key != "endpoint" && key != "clusterCA" {
				w.must(w.secrets.Learn(in+"/"+key, data))
			}
		}
	}
	if n := len(w.secrets) - before; n < 2*minSecrets {
		w.t.Fatalf("only %d secret texts of %s are known", n, name)
	}
}

// tellsNoSecret looks at every object of every kind, Events included, at every line that was logged and at every metric.
func (w *world) tellsNoSecret() {
	w.t.Helper()
	mayHold := func(kind schema.GroupVersionResource, o *unstructured.Unstructured) bool {
		ours := strings.HasSuffix(o.GetName(), connect.PKISecretSuffix) || strings.HasSuffix(o.GetName(), "-connection")
		return kind.Group == "" && kind.Resource == "secrets" && ours
	}
	objects, kinds, err := w.secrets.Scan(w.ctx, w.api.RESTConfig(), mayHold)
	w.must(err)
	logged := w.log.String()
	var metrics bytes.Buffer
	families, err := ctrlmetrics.Registry.Gather()
	w.must(err)
	for _, f := range families {
		_, err := expfmt.MetricFamilyToText(&metrics, f)
		w.must(err)
	}
	for what, text := range map[string]string{"the log": logged, "a metric": metrics.String()} {
		if len(text) == 0 {
			w.t.Errorf("%s was not looked at", what)
		}
		if secret := w.secrets.Find(text); secret != "" {
			w.t.Errorf("%s has %s", what, secret)
		}
	}
	w.t.Logf("looked for %d texts in %d objects of %d kinds, %d KiB of logs and %d metrics", len(w.secrets), objects, kinds, len(logged)/1024, len(families))
}

// TestSecretsAreFound shows that a secret in a log or a transcript would be found: in whatever way it is written.
func TestSecretsAreFound(t *testing.T) {
	secrets, log := story.Secrets{}, &logbook{}
	if err := secrets.Learn("bundle", []byte("trustdinfo: {token: abcdef.0123456789abcdef}\n")); err != nil {
		t.Fatal(err)
	}
	log.logger().V(1).Info("cannot apply", "config", "token: abcdef.0123456789abcdef")
	if got := secrets.Find(log.String()); got != "bundle.trustdinfo.token" {
		t.Errorf("%q was found in %q", got, log)
	}
}
