package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

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
