package soak

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"testing"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestUnanswered holds that silence is told from a refusal.
func TestUnanswered(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"NoError":     {nil, false},
		"Webhook":     {kerrors.NewInternalError(errors.New("failed calling webhook")), true},
		"Timeout":     {kerrors.NewTimeoutError("slow", 1), true},
		"Deadline":    {fmt.Errorf("cannot ask: %w", context.DeadlineExceeded), true},
		"ClientGone":  {&url.Error{Op: "Get", URL: "https://example.org", Err: os.ErrDeadlineExceeded}, true},
		"Forbidden":   {kerrors.NewForbidden(schema.GroupResource{}, "cp-1", errors.New("no")), false},
		"Interrupted": {context.Canceled, false},
	} {
		if got := unanswered(tc.err); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

func TestName(t *testing.T) {
	for want, e := range map[string]struct {
		event  Event
		lasted time.Duration
	}{
		"fault api-down":                           {Event{Do: Break, Fault: "api-down", For: time.Second}, time.Second},
		"stop the provider":                        {Event{Do: Pause, For: 6 * time.Minute}, time.Minute}, // It was cut short.
		"steal the Lease, for longer than a lease": {Event{Do: Steal, For: 6 * time.Minute}, 6 * time.Minute},
	} {
		if got := e.event.name(e.lasted); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
