// Package metrics declares each metric of the provider once. It must never be read to decide anything, and none of its
// labels may hold what a machine or a person chose freely: reasons, steps and names of objects only.
package metrics

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const namespace = "ichor"

var (
	removals = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace,
		Name:      "removals_total",
		Help:      "Steps of machine removals that were carried out, by step.",
	}, []string{"step"})

	refusals = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace,
		Name:      "refusals_total",
		Help:      "Disruptions that a guard began to refuse, by reason.",
	}, []string{"reason"})

	bootstraps = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace,
		Name:      "bootstraps_total",
		Help:      "Bootstrap calls that were sent to a machine of a cluster. More than one means that a call was repeated to the same machine.",
	}, []string{"namespace", "cluster"})

	lockHeld = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace,
		Name:      "lock_held",
		Help:      "1 while the disruption lock of a cluster is held, by its holder (kind/name). Absent while it is free.",
	}, []string{"namespace", "cluster", "holder"})

	voters = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace,
		Name:      "etcd_voters",
		Help:      "Voters in the etcd of a cluster, by whether they are healthy (true, false). Absent while unknown.",
	}, []string{"namespace", "cluster", "healthy"})

	credentialsExpiry = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace,
		Name:      "credentials_expiry_timestamp_seconds",
		Help:      "When the published kubeconfig and talosconfig of a cluster expire, in seconds since 1970.",
	}, []string{"namespace", "cluster"})
)

// Register every metric of this package.
func Register(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{removals, refusals, bootstraps, lockHeld, voters, credentialsExpiry} {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("cannot register a metric: %w", err)
		}
	}
	return nil
}

// Removal counts one step of a removal that was carried out.
func Removal(step string) { removals.WithLabelValues(step).Inc() }

// Refusal counts one disruption that a guard began to refuse: not each pass in which it still does.
func Refusal(reason string) { refusals.WithLabelValues(reason).Inc() }

// Bootstrap counts one Bootstrap call to a machine of a cluster.
func Bootstrap(ns, cluster string) { bootstraps.WithLabelValues(ns, cluster).Inc() }

// LockHeld says who holds the disruption lock of a cluster, as kind/name; nobody if holder is empty.
func LockHeld(ns, cluster, holder string) {
	lockHeld.DeletePartialMatch(labels(ns, cluster))
	if holder != "" {
		lockHeld.WithLabelValues(ns, cluster, holder).Set(1)
	}
}

// Voters says how many voters the etcd of a cluster has, and how many of them are healthy. Unknown if negative.
func Voters(ns, cluster string, all, healthy int) {
	if all < 0 || healthy < 0 {
		voters.DeletePartialMatch(labels(ns, cluster))
		return
	}
	voters.WithLabelValues(ns, cluster, "true").Set(float64(healthy))
	voters.WithLabelValues(ns, cluster, "false").Set(float64(all - healthy))
}

// CredentialsExpiry says when the published credentials of a cluster expire.
func CredentialsExpiry(ns, cluster string, at time.Time) {
	credentialsExpiry.WithLabelValues(ns, cluster).Set(float64(at.Unix()))
}

// Forget everything about a cluster that is gone.
func Forget(ns, cluster string) {
	for _, v := range []*prometheus.GaugeVec{lockHeld, voters, credentialsExpiry} {
		v.DeletePartialMatch(labels(ns, cluster))
	}
	bootstraps.DeletePartialMatch(labels(ns, cluster))
}

func labels(ns, cluster string) prometheus.Labels {
	return prometheus.Labels{"namespace": ns, "cluster": cluster}
}
