package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	defaults := func(changes ...func(*flags)) *flags {
		f := &flags{
			leaderElection: true, maxReconcileRate: 10, sync: time.Hour, poll: time.Minute, wait: 15 * time.Second,
			pollStateMetric: 30 * time.Second, webhookPort: 9443, metricsAddress: ":8080", healthAddress: ":8081",
		}
		for _, change := range changes {
			change(f)
		}
		return f
	}
	cases := map[string]struct {
		reason  string
		args    []string
		env     map[string]string
		want    *flags
		wantErr string // what it has to say
	}{
		"Defaults": {
			reason: "Crossplane starts a provider without arguments: leader election is on, and no webhook without certificates.",
			want:   defaults(),
		},
		"CrossplaneEnvironment": {
			reason: "What Crossplane puts into the environment of a pod is used.",
			env:    map[string]string{"POD_NAMESPACE": "crossplane-system", "TLS_SERVER_CERTS_DIR": "/tls/server"},
			want:   defaults(func(f *flags) { f.namespace, f.webhookCertDir = "crossplane-system", "/tls/server" }),
		},
		"WebhookDirectoryFirst": {
			reason: "The directory for webhooks goes before that for servers, and a flag before both.",
			env:    map[string]string{"WEBHOOK_TLS_CERT_DIR": "/tls/webhook", "TLS_SERVER_CERTS_DIR": "/tls/server"},
			want:   defaults(func(f *flags) { f.webhookCertDir = "/tls/webhook" }),
		},
		"FlagFirst": {
			reason: "A flag goes before the environment.",
			args:   []string{"--webhook-cert-dir=/tls/flag", "--no-leader-election", "--poll=10s", "--wait=3s"},
			env:    map[string]string{"WEBHOOK_TLS_CERT_DIR": "/tls/webhook", "LEADER_ELECTION": "true", "PROVIDER_ICHOR_POLL": "20s"},
			want: defaults(func(f *flags) {
				f.webhookCertDir, f.leaderElection, f.poll, f.wait = "/tls/flag", false, 10*time.Second, 3*time.Second
			}),
		},
		"AnyFlagFromTheEnvironment": {
			reason: "A DeploymentRuntimeConfig can set every flag without arguments.",
			env:    map[string]string{"PROVIDER_ICHOR_MAX_RECONCILE_RATE": "50", "LEADER_ELECTION": "false"},
			want:   defaults(func(f *flags) { f.maxReconcileRate, f.leaderElection = 50, false }),
		},
		"Unknown": {
			reason:  "A flag that does not exist is an error.",
			args:    []string{"--quorum=none"},
			wantErr: "--quorum",
		},
		"Unreadable": {
			reason:  "What is wrong is found by its flag, also if it comes from the environment.",
			env:     map[string]string{"PROVIDER_ICHOR_POLL": "soon"},
			wantErr: `--poll="soon"`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, k := range []string{"POD_NAMESPACE", "LEADER_ELECTION"} {
				t.Setenv(k, "") // Whatever runs the tests may have set them.
			}
			for k, v := range tc.env {
				t.Setenv(k, v)
			}
			got, err := parse(tc.args, func(k string) string { return tc.env[k] })
			if (err != nil) != (tc.wantErr != "") || (err != nil && !strings.Contains(err.Error(), tc.wantErr)) {
				t.Fatalf("\n%s\nparse(...): error %v, want %q", tc.reason, err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(flags{})); diff != "" {
				t.Errorf("\n%s\nparse(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
