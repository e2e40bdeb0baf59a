package taloscluster

import (
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	corev1 "k8s.io/api/core/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/maesh/provider-ichor/internal/machineconfig"
)

// issued returns what a cluster with the given bundle publishes at a time, and what it wants to be published.
func issued(t *testing.T, i int, at time.Time) (managed.ConnectionDetails, wanted) {
	t.Helper()
	data, _ := bundle(t, i)
	b, err := machineconfig.ParseBundle(data)
	if err != nil {
		t.Fatalf("ParseBundle(...): %v", err)
	}
	p := &pki{bundle: b}
	w := wantedOf(newCluster(), controlPlanes(3), p)
	details, err := (&external{clock: testclock.NewFakePassiveClock(at)}).issue(newCluster(), p, w)
	if err != nil {
		t.Fatalf("issue(...): %v", err)
	}
	return details, w
}

// TestCredentialsDue holds that credentials are renewed at half of their life, and at once when they lead elsewhere.
func TestCredentialsDue(t *testing.T) {
	const day = 24 * time.Hour
	ours, w := issued(t, 0, testNow)
	older, _ := issued(t, 0, testNow.Add(-30*day))
	others, _ := issued(t, 1, testNow)
	with := func(key string, value []byte) map[string][]byte {
		d := map[string][]byte{}
		for k, v := range ours {
			d[k] = v
		}
		d[key] = value
		return d
	}
	elsewhere := w
	elsewhere.endpoint = "https://192.0.2.99:6443"
	grown := w
	grown.endpoints = append([]string{"192.0.2.10"}, w.endpoints...)

	cases := map[string]struct {
		reason string
		data   map[string][]byte
		wanted wanted
		after  time.Duration
		want   string // why they are due; empty if they are not
	}{
		"New":              {reason: "What was just issued is as wanted.", data: ours, wanted: w},
		"BeforeHalf":       {reason: "Before half of their life nothing is renewed.", data: ours, wanted: w, after: 44 * day},
		"AtHalf":           {reason: "At half of their life they are renewed.", data: ours, wanted: w, after: 45 * day, want: "half of their life is over"},
		"OneOlder":         {reason: "The one that expires first decides: the kubeconfig.", data: with(keyKubeconfig, older[keyKubeconfig]), wanted: w, after: 15 * day, want: "half of their life is over"},
		"OtherOlder":       {reason: "The one that expires first decides: the talosconfig.", data: with(keyTalosconfig, older[keyTalosconfig]), wanted: w, after: 15 * day, want: "half of their life is over"},
		"Expired":          {reason: "A provider that was down for long renews them at once.", data: ours, wanted: w, after: 400 * day, want: "half of their life is over"},
		"Nothing":          {reason: "Nothing published is due.", wanted: w, want: "kubeconfig is missing"},
		"NoTalosconfig":    {reason: "Each of the two must be there.", data: with(keyTalosconfig, nil), wanted: w, want: "talosconfig is missing"},
		"Garbage":          {reason: "What cannot be read is replaced.", data: with(keyKubeconfig, []byte("{")), wanted: w, want: "kubeconfig cannot be read"},
		"EmptyKubeconfig":  {reason: "A kubeconfig that leads nowhere is replaced.", data: with(keyKubeconfig, []byte("kind: Config")), wanted: w, want: "kubeconfig has no current context"},
		"EmptyTalosconfig": {reason: "A talosconfig that leads nowhere is replaced.", data: with(keyTalosconfig, []byte("context: x")), wanted: w, want: "talosconfig has no current context"},
		"OtherEndpoint":    {reason: "When the endpoint changes, so do they.", data: ours, wanted: elsewhere, want: "kubeconfig leads to another endpoint"},
		"OtherMachines":    {reason: "When control planes come or go, the talosconfig changes.", data: ours, wanted: grown, want: "talosconfig leads to other control planes"},
		"OtherPKI":         {reason: "Credentials of another PKI are replaced.", data: others, wanted: w, want: "kubeconfig trusts another CA"},
		"OtherTalosPKI":    {reason: "A talosconfig of another PKI is replaced.", data: with(keyTalosconfig, others[keyTalosconfig]), wanted: w, want: "talosconfig trusts another CA"},
		"OtherCA":          {reason: "The CA that is published is that of the PKI.", data: with(keyClusterCA, []byte("x")), wanted: w, want: "clusterCA is another one"},
		"OtherEndpointKey": {reason: "The endpoint that is published is the declared one.", data: with(keyEndpoint, []byte("x")), wanted: w, want: "endpoint is another one"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := inspect(&corev1.Secret{Data: tc.data}, tc.wanted)
			got, due := p.due(testNow.Add(tc.after))
			if got != tc.want || due != (tc.want != "") {
				t.Errorf("\n%s\ndue(...): %q, %t; want %q", tc.reason, got, due, tc.want)
			}
		})
	}
}
