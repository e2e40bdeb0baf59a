package main

import (
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/maesh/provider-ichor/internal/commandline"
	"github.com/maesh/provider-ichor/internal/controller/waiting"
	"github.com/maesh/provider-ichor/internal/version"
)

// flags are what the provider can be told. Crossplane starts it without any, so every default is for a pod that
// Crossplane made, and every flag can be set from the environment as well: as PROVIDER_ICHOR_ and its name, or as shown.
type flags struct {
	kubeconfig string
	namespace  string
	debug      bool

	leaderElection   bool
	maxReconcileRate int
	sync             time.Duration
	poll             time.Duration
	wait             time.Duration
	pollStateMetric  time.Duration

	webhookCertDir string
	webhookHost    string
	webhookPort    int
	metricsAddress string
	healthAddress  string
}

// parse the command line.
func parse(args []string, lookup func(string) string) (*flags, error) {
	f := &flags{}
	app := kingpin.New("provider-ichor", "A Crossplane provider that turns Talos Linux machines into Kubernetes clusters and keeps etcd's quorum.").DefaultEnvars()
	app.Version(version.Version)
	app.HelpFlag.Short('h')

	app.Flag("kubeconfig", "Kubeconfig of the management cluster. Without it, $KUBECONFIG or the service account of the pod is used.").StringVar(&f.kubeconfig)
	app.Flag("namespace", "Namespace of the leader election Lease. Without it, the namespace of the pod is used.").Envar("POD_NAMESPACE").StringVar(&f.namespace)
	app.Flag("debug", "Log more.").Short('d').BoolVar(&f.debug)
	app.Flag("leader-election", "Let one replica at a time work. Crossplane runs two while it upgrades a provider.").Short('l').Default("true").Envar("LEADER_ELECTION").BoolVar(&f.leaderElection)
	app.Flag("sync", "How often every object is looked at even though nothing changed it.").Short('s').Default("1h").DurationVar(&f.sync)
	app.Flag("poll", "How often each cluster and each machine is looked at.").Default("1m").DurationVar(&f.poll)
	app.Flag("wait", "How soon a removal or a reboot that waits for something is looked at again.").Default(waiting.Interval.String()).DurationVar(&f.wait)
	app.Flag("poll-state-metric", "How often the metrics of the states of managed resources are counted.").Default("30s").DurationVar(&f.pollStateMetric)
	app.Flag("max-reconcile-rate", "How many passes may begin each second, and how many of one kind may run at once.").Default("10").IntVar(&f.maxReconcileRate)
	app.Flag("webhook-cert-dir", "Directory with tls.crt and tls.key for the webhooks, which are served only if it is given. Without it, $WEBHOOK_TLS_CERT_DIR or $TLS_SERVER_CERTS_DIR is used.").StringVar(&f.webhookCertDir)
	app.Flag("webhook-host", "Address that the webhooks are served at. Without it, every address.").StringVar(&f.webhookHost)
	app.Flag("webhook-port", "Port that the webhooks are served at.").Default("9443").IntVar(&f.webhookPort)
	app.Flag("metrics-bind-address", "Address that metrics are served at; 0 serves none.").Default(":8080").StringVar(&f.metricsAddress)
	app.Flag("health-probe-bind-address", "Address that /healthz and /readyz are served at; 0 serves none.").Default(":8081").StringVar(&f.healthAddress)

	commandline.NameFlags(app)
	if _, err := app.Parse(args); err != nil {
		return nil, err
	}
	for _, env := range []string{"WEBHOOK_TLS_CERT_DIR", "TLS_SERVER_CERTS_DIR"} {
		if f.webhookCertDir == "" {
			f.webhookCertDir = lookup(env)
		}
	}
	return f, nil
}
