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

// TestPersist holds that silence is not taken for success.
func TestPersist(t *testing.T) {
	c := &campaign{}
	conflict := kerrors.NewConflict(schema.GroupResource{}, "cp-1", errors.New("somebody was faster"))
	for name, answers := range map[string][]error{
		"Silence": {context.DeadlineExceeded}, "SilenceAfterARace": {conflict, fmt.Errorf("no answer: %w", context.DeadlineExceeded)},
		"Race": {conflict, nil}, "Success": {nil},
	} {
		asked := 0
		err := c.persist(t.Context(), func(context.Context) error {
			asked++
			return answers[asked-1]
		})
		if want := answers[len(answers)-1]; asked != len(answers) || !errors.Is(err, want) {
			t.Errorf("%s: error %v after %d of %d tries, want %v", name, err, asked, len(answers), want)
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
