package act

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/talos"
)

func TestRemoveMember(t *testing.T) {
	class := func(c talos.Class) error {
		return &talos.Error{Op: "remove an etcd member", Address: "x", Class: c, Err: errBoom}
	}
	cases := map[string]struct {
		reason string
		member facts.MemberID
		peers  []error // what each peer answers
		asked  int
		fails  bool
	}{
		"First":      {reason: "One peer is enough.", member: 1, peers: []error{nil, nil}, asked: 1},
		"Gone":       {reason: "A member that is gone is no error.", member: 1, peers: []error{class(talos.NotFound), nil}, asked: 1},
		"Down":       {reason: "Nothing was sent to a peer that is down: the next one is asked.", member: 1, peers: []error{class(talos.Unreachable), nil}, asked: 2},
		"AllDown":    {reason: "No peer is a failure.", member: 1, peers: []error{class(talos.Unreachable), class(talos.NotReady)}, asked: 2, fails: true},
		"None":       {reason: "No peer is a failure.", member: 1, fails: true},
		"Ambiguous":  {reason: "A call that may have been carried out is not repeated before the world was looked at.", member: 1, peers: []error{class(talos.Ambiguous), nil}, asked: 1, fails: true},
		"Refused":    {reason: "Another peer would refuse it, too.", member: 1, peers: []error{class(talos.EtcdUnhealthy), nil}, asked: 1, fails: true},
		"NoMemberID": {reason: "Zero is no member.", peers: []error{nil}, fails: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := &ledger{}
			peers := make([]MemberRemover, 0, len(tc.peers))
			for _, err := range tc.peers {
				peers = append(peers, &fakeMachine{ledger: l, err: err})
			}
			err := newTestActor(t).RemoveMember(context.Background(), &fakeLock{ledger: &ledger{}}, grant("step"), "step", target, tc.member, peers)
			if (err != nil) != tc.fails {
				t.Errorf("\n%s\nRemoveMember(...): %v, want failure: %t", tc.reason, err, tc.fails)
			}
			if len(l.calls) != tc.asked {
				t.Errorf("\n%s\n%d peers were asked, want %d", tc.reason, len(l.calls), tc.asked)
			}
		})
	}
}

func TestAmbiguousStaysAmbiguous(t *testing.T) {
	cause := &talos.Error{Op: "reset the machine", Address: "x", Class: talos.Ambiguous, Err: errBoom}
	m := &fakeMachine{ledger: &ledger{}, uuid: uuid, err: cause}
	err := newTestActor(t).Reset(context.Background(), &fakeLock{ledger: &ledger{}}, grant("step"), "step", target, m, talos.ResetOptions{})
	if talos.ClassOf(err) != talos.Ambiguous {
		t.Errorf("the class of %v was lost on the way", err)
	}
}

func TestWipeLabels(t *testing.T) {
	known := facts.Of[string]
	cases := map[string]struct {
		reason   string
		role     facts.Role
		version  facts.Known[string]
		declared []string
		want     []string
	}{
		"Always":      {reason: "Both hold what must go.", role: facts.ControlPlane, version: known("v1.13.9"), want: []string{"STATE", "EPHEMERAL"}},
		"Declared":    {reason: "What is declared comes on top, once.", role: facts.Worker, version: known("v1.13.9"), declared: []string{"u-data", "STATE"}, want: []string{"STATE", "EPHEMERAL", "u-data"}},
		"Newer":       {reason: "Newer versions keep etcd's data on a volume of its own.", role: facts.ControlPlane, version: known("v1.14.0"), want: []string{"STATE", "EPHEMERAL", "CRI", "KUBELET", "LOG", "ETCD"}},
		"NewerBeta":   {reason: "The betas do, too.", role: facts.ControlPlane, version: known("v1.14.0-beta.1"), want: []string{"STATE", "EPHEMERAL", "CRI", "KUBELET", "LOG", "ETCD"}},
		"NewerAlpha":  {reason: "The alphas do not know these labels and would refuse the reset.", role: facts.ControlPlane, version: known("v1.14.0-alpha.2"), want: []string{"STATE", "EPHEMERAL"}},
		"NewerWorker": {reason: "A worker has no etcd.", role: facts.Worker, version: known("v1.15.2"), want: []string{"STATE", "EPHEMERAL", "CRI", "KUBELET", "LOG"}},
		"Unknown":     {reason: "An unknown label would have the reset refused.", role: facts.ControlPlane, version: facts.Unknown[string]("no answer"), want: []string{"STATE", "EPHEMERAL"}},
		"Odd":         {reason: "A version that cannot be read is not known.", role: facts.ControlPlane, version: known("main"), want: []string{"STATE", "EPHEMERAL"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, WipeLabels(tc.role, tc.version, tc.declared)); diff != "" {
				t.Errorf("\n%s\nWipeLabels(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestBackgroundRunsEachOnce(t *testing.T) {
	b := NewBackground()
	begun, ended := make(chan struct{}), make(chan struct{})
	if !b.Go("a", func(ctx context.Context) error { close(begun); <-ctx.Done(); close(ended); return nil }) {
		t.Fatal("a call was not begun")
	}
	<-begun
	if b.Go("a", func(context.Context) error { t.Error("a second call for the same machine was begun"); return nil }) {
		t.Error("a second call for the same machine was accepted")
	}
	if !b.Running("a") || b.Running("b") {
		t.Error("what runs is not told")
	}
	b.Stop()
	select {
	case <-ended:
	default:
		t.Error("Stop returned before the call had ended")
	}
	if b.Running("a") {
		t.Error("a call that has ended is remembered")
	}
	if b.Go("b", func(context.Context) error { return nil }) {
		t.Error("a call was begun after everything was stopped")
	}
}

func TestBackgroundIsBounded(t *testing.T) {
	b := NewBackground()
	t.Cleanup(b.Stop)
	for i := range maxBackground {
		if !b.Go(string(rune('A'+i)), func(ctx context.Context) error { <-ctx.Done(); return nil }) {
			t.Fatalf("call %d was not begun", i)
		}
	}
	if b.Go("one more", func(context.Context) error { return nil }) {
		t.Error("there is no bound")
	}
}

func TestBackgroundForgetsAFailureThatWasMadeUpFor(t *testing.T) {
	b := NewBackground()
	t.Cleanup(b.Stop)
	for _, want := range []error{errBoom, nil} {
		if !b.Go("a", func(context.Context) error { return want }) {
			t.Fatal("a call was not begun")
		}
		b.calls.Wait()
		if got := b.Failed("a"); !errors.Is(got, want) {
			t.Errorf("after a call that ended with %v: %v", want, got)
		}
	}
}

// TestLeaveBeyondTheBoundIsAnError: a leave that was not begun must not pass for one that was.
func TestLeaveBeyondTheBoundIsAnError(t *testing.T) {
	a, l := newTestActor(t), &ledger{}
	a.background.Stop()
	err := a.LeaveEtcd(context.Background(), &fakeLock{ledger: l}, grant("step"), "step", target, &fakeMachine{ledger: l, uuid: uuid})
	if err == nil || slices.Contains(l.calls, "leave") {
		t.Errorf("a leave that was not begun: %v, %q", err, l.calls)
	}
}

func TestLeaveIsNotRepeatedWhileItRuns(t *testing.T) {
	a, l := newTestActor(t), &ledger{}
	release := make(chan struct{})
	a.background.Go(string(target.ID), func(context.Context) error { <-release; return nil })
	err := a.LeaveEtcd(context.Background(), &fakeLock{ledger: l}, grant("step"), "step", target, &fakeMachine{ledger: l, uuid: uuid})
	close(release)
	if err != nil || len(l.calls) > 0 {
		t.Errorf("a second leave was begun while one runs: %v, %q", err, l.calls)
	}
}

func TestLeaveEndsWithTheLock(t *testing.T) {
	// The lock's RenewWhile never calls back: it was lost.
	a, l := newTestActor(t), &ledger{}
	m := &fakeMachine{ledger: l, uuid: uuid}
	if err := a.LeaveEtcd(context.Background(), lostInRenewal{&fakeLock{ledger: l}}, grant("step"), "step", target, m); err != nil {
		t.Fatal(err)
	}
	a.background.calls.Wait()
	for _, c := range l.calls {
		if c == "leave" {
			t.Errorf("the machine left etcd without the lock: %q", l.calls)
		}
	}
}

type lostInRenewal struct{ *fakeLock }

func (lostInRenewal) RenewWhile(context.Context, func(context.Context) error) error {
	return errors.New("lost")
}

// losingPeer does not answer, and the lock is lost while it does not.
type losingPeer struct{ lock *fakeLock }

func (p losingPeer) RemoveMember(context.Context, uint64) error {
	p.lock.lost = errBoom
	return &talos.Error{Op: "remove an etcd member", Address: "x", Class: talos.Unreachable, Err: errBoom}
}

func TestRemoveMemberAsksNobodyOnceTheLockIsLost(t *testing.T) {
	lock, next := &fakeLock{ledger: &ledger{}}, &ledger{}
	peers := []MemberRemover{losingPeer{lock}, &fakeMachine{ledger: next}}
	err := newTestActor(t).RemoveMember(context.Background(), lock, grant("step"), "step", target, 1, peers)
	if !errors.Is(err, errBoom) {
		t.Errorf("RemoveMember(...): %v, want the loss of the lock", err)
	}
	if len(next.calls) != 0 {
		t.Errorf("after the lock was lost, the next peer was asked: %v", next.calls)
	}
}
