package act

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/maesh/provider-ichor/internal/decide/permit"
	"github.com/maesh/provider-ichor/internal/talos"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var errBoom = errors.New("boom")

const uuid = "00000000-0000-4000-8000-0000000000ab"

var target = Target{ID: "uid-1", Name: "cp-1", UUID: uuid, BootID: "boot-1", Node: "node-1"}

// ledger records, in order, everything that was done.
type ledger struct{ calls []string }

func (l *ledger) addf(format string, a ...any) { l.calls = append(l.calls, fmt.Sprintf(format, a...)) }

// fakeLock is a lock that can be lost.
type fakeLock struct {
	*ledger
	lost, cannotMark error
}

func (l *fakeLock) Check(context.Context) error { l.addf("check lock"); return l.lost }

func (l *fakeLock) MarkIrreversible(context.Context) error {
	l.addf("mark irreversible")
	return l.cannotMark
}

func (l *fakeLock) RenewWhile(ctx context.Context, fn func(context.Context) error) error {
	l.addf("renew while")
	return fn(ctx)
}

// fakeMachine records every call that would disturb a real one.
type fakeMachine struct {
	*ledger
	uuid string
	// boot is the boot that it is in; empty is the target's.
	boot string
	// silent is the error that the machine does not prove itself with.
	silent error
	err    error
}

func (m *fakeMachine) BootID(context.Context) (string, error) {
	return cmp.Or(m.boot, target.BootID), nil
}

func (m *fakeMachine) System(context.Context) (talos.System, error) {
	m.addf("prove")
	return talos.System{UUID: m.uuid}, m.silent
}

func (m *fakeMachine) ApplyConfig(_ context.Context, c []byte, mode talos.Mode) (talos.ApplyResult, error) {
	m.addf("apply %s %d", c, mode)
	return talos.ApplyResult{}, m.err
}

func (m *fakeMachine) Bootstrap(context.Context) error { m.addf("bootstrap"); return m.err }

func (m *fakeMachine) LeaveEtcd(context.Context) error { m.addf("leave"); return m.err }

func (m *fakeMachine) RemoveMember(_ context.Context, id uint64) error {
	m.addf("remove member %x", id)
	return m.err
}

func (m *fakeMachine) ForfeitLeadership(context.Context) error { m.addf("forfeit"); return m.err }

func (m *fakeMachine) Reset(_ context.Context, o talos.ResetOptions) error {
	m.addf("reset %v", o.Wipe)
	return m.err
}

func (m *fakeMachine) Reboot(context.Context) error { m.addf("reboot"); return m.err }

// newTestActor returns an actor whose long calls end with the test.
func newTestActor(t *testing.T) *Actor {
	t.Helper()
	b := NewBackground()
	t.Cleanup(b.Stop)
	return New(nil, testclock.NewFakePassiveClock(now), b)
}

func grant(step string) permit.Permit { return permit.Grant(target.ID, step, now) }
