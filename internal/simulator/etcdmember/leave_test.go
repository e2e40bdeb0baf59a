package etcdmember

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
)

func TestLeaveIsNotIdempotent(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.bootstrapped("a")
	b := l.joined("b")
	for _, call := range []struct{ code, text string }{
		{},
		{"DeadlineExceeded", "failed to leave cluster: failed to get local etcd member ID: context deadline exceeded"},
	} {
		_, err := b.EtcdLeaveCluster(l.within(patience), &machine.EtcdLeaveClusterRequest{})
		if call.code == "" {
			if err != nil {
				t.Fatalf("first leave: %v", err)
			}
			continue
		}
		wantError(t, "second leave", err, call.code, call.text)
	}
	if err := b.Leave(l.within(patience)); err != nil {
		t.Errorf("a reset after that does not pass over the leave: %v", err)
	}
	// Nothing keeps a machine that has left from becoming a second cluster.
	if err := b.Bootstrap(false, false); err != nil {
		t.Fatal(err)
	}
	b.awaitVoter()
	if a.names() != "a" || b.names() != "b" {
		t.Errorf("members: a tells %q, b tells %q", a.names(), b.names())
	}
}

func TestLeaveFaults(t *testing.T) {
	t.Parallel()
	type want struct {
		code, text string
		left       bool // in the end
	}
	cases := map[string]struct {
		reason string
		want   want
	}{
		FaultLeaveFails:      {"nothing changes", want{"Unknown", "failed to leave cluster: failed to remove member: etcdserver: unhealthy cluster", false}},
		FaultLeaveHangs:      {"nothing changes before the caller's deadline, nor after it", want{"DeadlineExceeded", "context deadline exceeded", false}},
		FaultLeaveOKButError: {"the caller cannot know", want{"Unavailable", "error reading from server: EOF", true}},
		FaultLeaveLate:       {"the caller has given up", want{"", "", true}},
	}
	for fault, c := range cases {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			a := l.bootstrapped("a")
			b := l.joined("b")
			b.fault(fault, true)
			deadline := patience
			if fault == FaultLeaveHangs || fault == FaultLeaveLate {
				deadline = 200 * time.Millisecond
			}
			_, err := b.EtcdLeaveCluster(l.within(deadline), &machine.EtcdLeaveClusterRequest{})
			if c.want.code != "" {
				wantError(t, c.reason, err, c.want.code, c.want.text)
			}
			if left := len(a.members()) == 1; left != c.want.left {
				t.Errorf("%s: left is %v, want %v", c.reason, left, c.want.left)
			}
			if left := b.Status().State == StateFinished; left != c.want.left {
				t.Errorf("%s: status %+v", c.reason, b.Status())
			}
		})
	}
}

func TestResetPassesOverTheLeaveOfWhatIsNotRunning(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.add("a")
	a.Start()
	a.awaitState(StatePreparing)
	if err := a.Leave(l.within(patience)); err != nil {
		t.Errorf("leave without data: %v", err)
	}
	// Data is not enough: a join may have been interrupted right after it began to write.
	if err := os.MkdirAll(filepath.Join(a.data(), "member"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := a.Leave(l.within(patience)); err != nil {
		t.Errorf("leave while preparing: %v", err)
	}
	if st := a.Status(); st.State != StatePreparing {
		t.Errorf("status: %+v", st)
	}
}

func TestStopEndsLeaveThatWaits(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.bootstrapped("a")
	a.fault(FaultLeaveHangs, true)
	answer := make(chan error, 1)
	go func() { answer <- a.Leave(context.Background()) }()
	a.Stop()
	select {
	case err := <-answer:
		if err == nil {
			t.Errorf("the leave succeeded")
		}
	case <-time.After(patience):
		t.Fatal("the leave outlives the machine")
	}
	if _, err := os.Stat(filepath.Join(a.data(), "member")); err != nil {
		t.Errorf("the data is gone: %v", err)
	}
}
