package story

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/maesh/provider-ichor/internal/lab"
)

func TestTell(t *testing.T) {
	good := Check{Says: "it stands", Hold: func(context.Context) error { return nil }}
	bad := Check{Says: "it flies", Hold: func(context.Context) error { return errors.Join(errors.New("it fell"), errors.New("twice")) }}
	var out strings.Builder
	if err := Tell(t.Context(), "demo", []Check{good, good}, &out); err != nil || !strings.Contains(out.String(), "demo: 2 of 2 checks held") {
		t.Errorf("error %v, output:\n%s", err, &out)
	}

	out.Reset()
	err := Tell(t.Context(), "demo", []Check{good, bad, good}, &out)
	if errorText(err) != "a check did not hold" {
		t.Errorf("error %v", err)
	}
	if text := out.String(); !strings.Contains(text, "FAIL  it flies: it fell; twice\n") || !strings.Contains(text, "demo: 1 of 3 checks held") || strings.Count(text, "ok ") != 1 {
		t.Errorf("output:\n%s", text)
	}

	out.Reset()
	ctx, cancel := context.WithCancel(t.Context())
	interrupted := Check{Says: "it goes on", Hold: func(context.Context) error { cancel(); return ctx.Err() }}
	if err := Tell(ctx, "demo", []Check{good, interrupted, good}, &out); !errors.Is(err, context.Canceled) || strings.Contains(out.String(), "FAIL") {
		t.Errorf("an interrupt is no failure of a check, and no success; error %v, output:\n%s", err, &out)
	}
}

func TestInOrder(t *testing.T) {
	leave, reset, apply := lab.RPC{Method: CallLeave}, lab.RPC{Method: CallReset}, lab.RPC{Method: "/machine.MachineService/ApplyConfiguration"}
	cases := map[string]struct {
		calls        []lab.RPC
		controlPlane bool
		want         string
	}{
		"ControlPlane":        {calls: []lab.RPC{apply, leave, reset}, controlPlane: true},
		"ResetTwice":          {calls: []lab.RPC{leave, reset, reset}, controlPlane: true},
		"Worker":              {calls: []lab.RPC{reset}},
		"NeverLeft":           {calls: []lab.RPC{reset}, controlPlane: true, want: "before it left"},
		"LeftAfterwards":      {calls: []lab.RPC{leave, reset, leave}, controlPlane: true, want: "after it was reset"},
		"LeftTwice":           {calls: []lab.RPC{leave, leave, reset}, controlPlane: true, want: "told 2 times to leave"},
		"WorkerLeft":          {calls: []lab.RPC{leave, reset}, want: "told 1 times to leave"},
		"NeverReset":          {calls: []lab.RPC{leave}, controlPlane: true, want: "0 times to reset"},
		"NothingWasEverAsked": {want: "0 times to reset"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := errorText(InOrder(tc.calls, tc.controlPlane))
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("error %q, want %q", got, tc.want)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
