package talos

import (
	"context"
	"strings"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// TestDeadlines: a leave may take what Talos itself waits for in it. One that were given up earlier would be sent again while
// the first still goes on.
func TestDeadlines(t *testing.T) {
	const slack = time.Minute
	cases := map[string]struct {
		request    time.Duration
		call       func(context.Context, *Client) error
		atLeast    time.Duration
		noMoreThan time.Duration
	}{
		"Leave":       {request: 30 * time.Second, call: func(ctx context.Context, c *Client) error { return c.LeaveEtcd(ctx) }, atLeast: leaveTimeout - slack, noMoreThan: leaveTimeout},
		"LongerLeave": {request: 2 * leaveTimeout, call: func(ctx context.Context, c *Client) error { return c.LeaveEtcd(ctx) }, atLeast: 2*leaveTimeout - slack, noMoreThan: 2 * leaveTimeout},
		"Reset": {
			request: 30 * time.Second, call: func(ctx context.Context, c *Client) error { return c.Reset(ctx, ResetOptions{Wipe: []string{"STATE"}}) },
			noMoreThan: 30 * time.Second,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m, c := running(t)
			var left time.Duration
			reply := m.unary
			m.unary = func(ctx context.Context, method string, req any) (any, error) {
				if at, ok := ctx.Deadline(); ok {
					left = time.Until(at)
				}
				return reply(ctx, method, req)
			}
			if err := tc.call(t.Context(), c.WithTimeouts(tc.request, 0)); err != nil {
				t.Fatal(err)
			}
			if left <= 0 || left < tc.atLeast || left > tc.noMoreThan {
				t.Errorf("the machine had %s to answer, want %s to %s", left, tc.atLeast, tc.noMoreThan)
			}
		})
	}
}

// TestOneMachineAnswers: a reply of several machines is of none, since nobody can tell which of them is the one that was asked.
func TestOneMachineAnswers(t *testing.T) {
	m, c := running(t)
	m.unary = func(context.Context, string, any) (any, error) {
		one := &machineapi.EtcdStatus{MemberStatus: &machineapi.EtcdMemberStatus{MemberId: 11, Leader: 12}}
		return &machineapi.EtcdStatusResponse{Messages: []*machineapi.EtcdStatus{one, one}}, nil
	}
	if s, err := c.EtcdStatus(t.Context()); ClassOf(err) != Other {
		t.Errorf("EtcdStatus: %+v, %v", s, err)
	}
}

// TestDetailsAreScrubbed: a machine may quote a configuration in what it says of one, and that is full of keys.
func TestDetailsAreScrubbed(t *testing.T) {
	const token = "abcdef.0123456789abcdef"
	m, c := running(t)
	m.unary = func(context.Context, string, any) (any, error) {
		return &machineapi.ApplyConfigurationResponse{Messages: []*machineapi.ApplyConfiguration{{ModeDetails: "applied, token " + token}}}, nil
	}
	r, err := c.ApplyConfig(t.Context(), []byte("x"), NoReboot)
	if err != nil || strings.Contains(r.Details, token) || !strings.Contains(r.Details, "applied") {
		t.Errorf("details: %q, %v", r.Details, err)
	}
}
