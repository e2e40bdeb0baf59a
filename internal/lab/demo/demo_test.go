package demo

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/maesh/provider-ichor/internal/lab"
)

func TestChoose(t *testing.T) {
	story := []chapter{
		{name: "up", base: true, checks: []check{{says: "up"}}},
		{name: "one", checks: []check{{says: "1a"}, {says: "1b"}}},
		{name: "two", checks: []check{{says: "2"}}},
		{name: "down", base: true, checks: []check{{says: "down"}}},
	}
	cases := map[string]struct {
		reason string
		only   []string
		want   []string
		err    string
	}{
		"All":     {reason: "Without a choice everything is shown.", want: []string{"up", "1a", "1b", "2", "down"}},
		"One":     {reason: "What the others stand on is shown always.", only: []string{"two"}, want: []string{"up", "2", "down"}},
		"Order":   {reason: "The order is that of the story.", only: []string{"two", "one"}, want: []string{"up", "1a", "1b", "2", "down"}},
		"Unknown": {reason: "A chapter that does not exist must not make an empty demo.", only: []string{"three"}, err: `there is no chapter "three"; there are up, one, two, down`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			checks, err := choose(story, tc.only)
			if text := errorText(err); text != tc.err {
				t.Fatalf("\n%s\nerror %q, want %q", tc.reason, text, tc.err)
			}
			var got []string
			for _, c := range checks {
				got = append(got, c.says)
			}
			if diff := cmp.Diff(tc.want, got); err == nil && diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
	for _, name := range Short() {
		if !slices.Contains(Chapters(), name) {
			t.Errorf("the short demo has chapter %q, and the story has not", name)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestShow(t *testing.T) {
	good := check{"it stands", func(context.Context) error { return nil }}
	bad := check{"it flies", func(context.Context) error { return errors.Join(errors.New("it fell"), errors.New("twice")) }}
	var out strings.Builder
	if err := show(t.Context(), []check{good, good}, &out); err != nil || !strings.Contains(out.String(), "demo: 2 of 2 checks held") {
		t.Errorf("error %v, output:\n%s", err, &out)
	}

	out.Reset()
	err := show(t.Context(), []check{good, bad, good}, &out)
	if errorText(err) != "a check did not hold" {
		t.Errorf("error %v", err)
	}
	if text := out.String(); !strings.Contains(text, "FAIL  it flies: it fell; twice\n") || !strings.Contains(text, "demo: 1 of 3 checks held") || strings.Count(text, "ok ") != 1 {
		t.Errorf("output:\n%s", text)
	}

	out.Reset()
	ctx, cancel := context.WithCancel(t.Context())
	interrupted := check{"it goes on", func(context.Context) error { cancel(); return ctx.Err() }}
	if err := show(ctx, []check{good, interrupted, good}, &out); !errors.Is(err, context.Canceled) || strings.Contains(out.String(), "FAIL") {
		t.Errorf("an interrupt is no failure of a check, and no success; error %v, output:\n%s", err, &out)
	}
}

func TestInOrder(t *testing.T) {
	leave, reset, apply := lab.RPC{Method: callLeave}, lab.RPC{Method: callReset}, lab.RPC{Method: "/machine.MachineService/ApplyConfiguration"}
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
			got := errorText(inOrder(tc.calls, tc.controlPlane))
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("error %q, want %q", got, tc.want)
			}
		})
	}
}
