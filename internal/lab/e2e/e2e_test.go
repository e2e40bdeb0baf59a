package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/maesh/provider-ichor/internal/lab"
)

func TestShow(t *testing.T) {
	good := check{"it stands", func(context.Context) error { return nil }}
	bad := check{"it flies", func(context.Context) error { return errors.Join(errors.New("it fell"), errors.New("twice")) }}
	var out strings.Builder
	if err := show(t.Context(), []check{good, good}, &out); err != nil || !strings.Contains(out.String(), "e2e: 2 of 2 checks held") {
		t.Errorf("error %v, output:\n%s", err, &out)
	}

	out.Reset()
	err := show(t.Context(), []check{good, bad, good}, &out)
	if err == nil || !strings.Contains(out.String(), "FAIL  it flies: it fell; twice\n") || !strings.Contains(out.String(), "e2e: 1 of 3 checks held") {
		t.Errorf("error %v, output:\n%s", err, &out)
	}

	out.Reset()
	ctx, cancel := context.WithCancel(t.Context())
	interrupted := check{"it goes on", func(context.Context) error { cancel(); return ctx.Err() }}
	if err := show(ctx, []check{interrupted, good}, &out); !errors.Is(err, context.Canceled) || strings.Contains(out.String(), "FAIL") {
		t.Errorf("an interrupt is no failure of a check, and no success; error %v, output:\n%s", err, &out)
	}
}

func TestInOrder(t *testing.T) {
	leave, reset := lab.RPC{Method: callLeave}, lab.RPC{Method: callReset}
	cases := map[string]struct {
		calls        []lab.RPC
		controlPlane bool
		want         string
	}{
		"ControlPlane":   {calls: []lab.RPC{leave, reset, reset}, controlPlane: true},
		"Worker":         {calls: []lab.RPC{reset}},
		"NeverLeft":      {calls: []lab.RPC{reset}, controlPlane: true, want: "before it left"},
		"LeftAfterwards": {calls: []lab.RPC{leave, reset, leave}, controlPlane: true, want: "after it was reset"},
		"LeftTwice":      {calls: []lab.RPC{leave, leave, reset}, controlPlane: true, want: "told 2 times to leave"},
		"WorkerLeft":     {calls: []lab.RPC{leave, reset}, want: "told 1 times to leave"},
		"NeverReset":     {calls: []lab.RPC{leave}, controlPlane: true, want: "0 times to reset"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { complains(t, inOrder(tc.calls, tc.controlPlane), tc.want) })
	}
}

func TestWants(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{"kind": "Claim", "metadata": map[string]any{"name": "three"}, "status": map[string]any{
		"conditions": []any{map[string]any{"type": "Ready", "status": "False", "reason": "Creating", "message": "cp-1 boots"}},
	}}}
	cases := map[string]struct {
		kind   string
		status corev1.ConditionStatus
		words  []string
		want   string
	}{
		"Holds":       {kind: "Ready", status: corev1.ConditionFalse, words: []string{"Creating", "cp-1"}},
		"OtherStatus": {kind: "Ready", status: corev1.ConditionTrue, want: "is False (Creating: cp-1 boots), want True"},
		"OtherWords":  {kind: "Ready", status: corev1.ConditionFalse, words: []string{"cp-2"}, want: `does not say "cp-2"`},
		"NotThere":    {kind: "Synced", status: corev1.ConditionTrue, want: "is Unknown"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { complains(t, wants(u, tc.kind, tc.status, tc.words...), tc.want) })
	}
}

// complains wants an error with these words, or none if there are no words.
func complains(t *testing.T, err error, words string) {
	t.Helper()
	switch {
	case words == "" && err != nil:
		t.Errorf("error %v, want none", err)
	case words != "" && (err == nil || !strings.Contains(err.Error(), words)):
		t.Errorf("error %v, want %q", err, words)
	}
}
