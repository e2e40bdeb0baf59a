package metrics

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/statemetrics"
	"github.com/prometheus/client_golang/prometheus"
)

// TestMonitoringKnowsItsMetrics finds a metric, or a label of it, that an alert or the dashboard asks for and that nobody
// serves: such an alert never fires, and nobody notices.
func TestMonitoringKnowsItsMetrics(t *testing.T) {
	labelsOf := served(t)
	for _, name := range []string{"alerts.yaml", "dashboard.json"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "cluster", "monitoring", name))
		if err != nil {
			t.Fatalf("cannot read %q: %v", name, err)
		}
		if name == "dashboard.json" && !json.Valid(text) {
			t.Errorf("%s is no JSON", name)
		}
		asked := unserved(string(text), labelsOf)
		if asked.metrics == 0 {
			t.Errorf("%s asks for no metric that this test could find", name)
		}
		for _, u := range asked.unserved {
			t.Errorf("%s asks for %s, which is not served", name, u)
		}
	}
}

// TestUnserved sees that the check above can fail.
func TestUnserved(t *testing.T) {
	known := map[string]string{"ichor_x_total": "{reason}"}
	for expr, want := range map[string]int{
		`ichor_x_total{reason="a"}`:     0,
		`rate(ichor_x_total[1h])`:       0,
		`ichor_y_total`:                 1,
		`ichor_x_total{cluster="prod"}`: 1,
	} {
		if got := unserved(expr, known); len(got.unserved) != want || got.metrics != 1 {
			t.Errorf("unserved(%q) = %v of %d metrics, want %d of 1", expr, got.unserved, got.metrics, want)
		}
	}
}

type asked struct {
	metrics  int
	unserved []string
}

var (
	metricName = regexp.MustCompile(`\b((?:ichor|crossplane)_[a-z_]+)(\{[^}]*\})?`)
	matcher    = regexp.MustCompile(`([a-z_]+)\s*=`)
	ofDesc     = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: (\{[^}]*\})`)
)

// unserved finds metrics and labels in a text that are not among the given labels by metric.
func unserved(text string, labelsOf map[string]string) asked {
	var out asked
	for _, m := range metricName.FindAllStringSubmatch(text, -1) {
		out.metrics++
		name := strings.TrimSuffix(m[1], "_bucket") // What a histogram serves.
		labels, ok := labelsOf[name]
		if !ok {
			out.unserved = append(out.unserved, m[1])
			continue
		}
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !strings.Contains(labels, l[1]) {
				out.unserved = append(out.unserved, m[1]+" by "+l[1])
			}
		}
	}
	return out
}

// served are the metrics of the provider, with their labels.
func served(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	d := make(chan *prometheus.Desc, 100)
	r := &describing{into: d}
	if err := Register(r); err != nil {
		t.Fatalf("Register(...): %v", err)
	}
	managed.NewMRMetricRecorder().Describe(d)
	statemetrics.NewMRStateMetrics().Describe(d)
	close(d)
	for desc := range d {
		m := ofDesc.FindStringSubmatch(desc.String())
		if m == nil {
			t.Fatalf("cannot read the description %s", desc)
		}
		out[m[1]] = m[2]
	}
	return out
}

// describing is a registry that only asks what it is given.
type describing struct {
	prometheus.Registerer
	into chan<- *prometheus.Desc
}

func (d *describing) Register(c prometheus.Collector) error {
	c.Describe(d.into)
	return nil
}
