package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// gather returns every sample of a registry as name{label values} = value, labels in the order of their names.
func gather(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatalf("Gather(): %v", err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			values := make([]string, 0, len(m.GetLabel()))
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			name := f.GetName() + "{" + strings.Join(values, ",") + "}"
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return got
}

func TestMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	if err := Register(r); err != nil {
		t.Fatalf("Register(...): %v", err)
	}
	if err := Register(r); err == nil {
		t.Errorf("Register(...): the same metrics were registered twice without an error")
	}

	Removal("Drain")
	Removal("Drain")
	Refusal("QuorumWouldBreak")
	Bootstrap("metal", "prod")
	LockHeld("metal", "prod", "TalosMachine/cp-1")
	LockHeld("metal", "prod", "TalosMachine/cp-2") // replaces the holder before it
	LockHeld("metal", "test", "TalosMachine/cp-1")
	LockHeld("metal", "test", "") // free
	Voters("metal", "prod", 3, 2)
	Voters("metal", "test", 3, 2)
	Voters("metal", "test", -1, -1) // no longer known
	CredentialsExpiry("metal", "prod", time.Unix(1700000000, 0))

	want := map[string]float64{
		"ichor_removals_total{Drain}":                            2,
		"ichor_refusals_total{QuorumWouldBreak}":                 1,
		"ichor_bootstraps_total{prod,metal}":                     1,
		"ichor_lock_held{prod,TalosMachine/cp-2,metal}":          1,
		"ichor_etcd_voters{prod,true,metal}":                     2,
		"ichor_etcd_voters{prod,false,metal}":                    1,
		"ichor_credentials_expiry_timestamp_seconds{prod,metal}": 1700000000,
	}
	if diff := cmp.Diff(want, gather(t, r)); diff != "" {
		t.Errorf("metrics: -want, +got:\n%s", diff)
	}

	Forget("metal", "prod")
	want = map[string]float64{"ichor_removals_total{Drain}": 2, "ichor_refusals_total{QuorumWouldBreak}": 1}
	if diff := cmp.Diff(want, gather(t, r)); diff != "" {
		t.Errorf("metrics of a cluster that is gone: -want, +got:\n%s", diff)
	}
}
