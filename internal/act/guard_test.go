package act

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/maesh/provider-ichor/internal/decide/permit"
	"github.com/maesh/provider-ichor/internal/talos"
)

// steps are all steps that are guarded, each done to a fresh machine.
var steps = map[string]struct {
	do func(a *Actor, l Lock, p permit.Permit, m *fakeMachine) error
	// call is what the ledger shows once the step was carried out.
	call string
	// needsProof is true if the machine itself must prove which one it is.
	needsProof bool
	// irreversible is true if the step cannot be taken back.
	irreversible bool
}{
	"MoveLeadership": {
		do: func(a *Actor, l Lock, p permit.Permit, m *fakeMachine) error {
			return a.MoveLeadership(context.Background(), l, p, "step", target, m)
		},
		call: "forfeit", needsProof: true,
	},
	"LeaveEtcd": {
		do: func(a *Actor, l Lock, p permit.Permit, m *fakeMachine) error {
			err := a.LeaveEtcd(context.Background(), l, p, "step", target, m)
			a.background.calls.Wait()
			return err
		},
		call: "leave", needsProof: true, irreversible: true,
	},
	"RemoveMember": {
		do: func(a *Actor, l Lock, p permit.Permit, m *fakeMachine) error {
			return a.RemoveMember(context.Background(), l, p, "step", target, 0xa1, []MemberRemover{m})
		},
		call: "remove member a1", irreversible: true,
	},
	"Reset": {
		do: func(a *Actor, l Lock, p permit.Permit, m *fakeMachine) error {
			return a.Reset(context.Background(), l, p, "step", target, m, talos.ResetOptions{Wipe: []string{"STATE"}})
		},
		call: "reset [STATE]", needsProof: true, irreversible: true,
	},
	"Reboot": {
		do: func(a *Actor, l Lock, p permit.Permit, m *fakeMachine) error {
			return a.Reboot(context.Background(), l, p, "step", target, m)
		},
		call: "reboot", needsProof: true,
	},
	"Bootstrap": {
		do: func(a *Actor, l Lock, p permit.Permit, m *fakeMachine) error {
			return a.Bootstrap(context.Background(), l, p, "step", target, m)
		},
		call: "bootstrap", needsProof: true, irreversible: true,
	},
	"StageConfig": {
		do: func(a *Actor, l Lock, p permit.Permit, m *fakeMachine) error {
			return a.StageConfig(context.Background(), l, p, "step", target, m, []byte("config"))
		},
		call: "apply config 3", needsProof: true,
	},
}

func TestStepsAreGuarded(t *testing.T) {
	for name, s := range steps {
		cases := map[string]struct {
			reason  string
			permit  permit.Permit
			lock    fakeLock
			uuid    string
			silent  error
			refused bool
		}{
			"Allowed":        {reason: "With everything in order the step is carried out.", permit: grant("step"), uuid: uuid},
			"UpperCaseUUID":  {reason: "Firmware writes UUIDs as it likes.", permit: grant("step"), uuid: strings.ToUpper(uuid)},
			"NoPermit":       {reason: "The zero permit permits nothing.", uuid: uuid, refused: true},
			"OtherStep":      {reason: "A permit for another step permits nothing.", permit: grant("other"), uuid: uuid, refused: true},
			"OtherMachine":   {reason: "A permit for another machine permits nothing.", permit: permit.Grant("uid-2", "step", now), uuid: uuid, refused: true},
			"OldSurvey":      {reason: "A permit from a stale survey permits nothing.", permit: permit.Grant(target.ID, "step", now.Add(-permit.MaxAge-time.Second)), uuid: uuid, refused: true},
			"LostLock":       {reason: "No call is made after the lock was lost.", permit: grant("step"), lock: fakeLock{lost: errBoom}, uuid: uuid, refused: true},
			"ForeignMachine": {reason: "Another machine at the address is left alone.", permit: grant("step"), uuid: "00000000-0000-4000-8000-000000000002", refused: s.needsProof},
			"Silent":         {reason: "A machine that does not say which one it is may be another one.", permit: grant("step"), uuid: uuid, silent: errBoom, refused: s.needsProof},
			"CannotMark": {
				reason: "What cannot be taken back is not begun unless that was written down.",
				permit: grant("step"), lock: fakeLock{cannotMark: errBoom}, uuid: uuid, refused: s.irreversible,
			},
		}
		for caseName, tc := range cases {
			t.Run(name+caseName, func(t *testing.T) {
				l := &ledger{}
				tc.lock.ledger = l
				err := s.do(newTestActor(t), &tc.lock, tc.permit, &fakeMachine{ledger: l, uuid: tc.uuid, silent: tc.silent})
				if (err != nil) != tc.refused {
					t.Errorf("\n%s\nerror: %v, want refused: %t", tc.reason, err, tc.refused)
				}
				done := l.calls[max(0, len(l.calls)-1):]
				if tc.refused {
					for _, c := range l.calls {
						if c == s.call {
							t.Errorf("\n%s\nthe step was carried out: %q", tc.reason, l.calls)
						}
					}
					return
				}
				if diff := cmp.Diff([]string{s.call}, done); diff != "" {
					t.Errorf("\n%s\nlast call: -want, +got:\n%s", tc.reason, diff)
				}
			})
		}
	}
}

// TestRebootInTheSameBoot sends no reboot to a machine that has had one since that was decided, or may have.
func TestRebootInTheSameBoot(t *testing.T) {
	unknown := target
	unknown.BootID = ""
	for name, tc := range map[string]struct {
		target Target
		boot   string
	}{"Booted": {target, "boot-2"}, "Unknown": {unknown, "boot-1"}} {
		l := &ledger{}
		m := &fakeMachine{ledger: l, uuid: uuid, boot: tc.boot}
		if err := newTestActor(t).Reboot(t.Context(), &fakeLock{ledger: l}, grant("step"), "step", tc.target, m); err == nil || slices.Contains(l.calls, "reboot") {
			t.Errorf("%s: error %v, calls %q", name, err, l.calls)
		}
	}
}

func TestLockIsReadLast(t *testing.T) {
	for name, s := range steps {
		l := &ledger{}
		if err := s.do(newTestActor(t), &fakeLock{ledger: l}, grant("step"), &fakeMachine{ledger: l, uuid: uuid}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var want []string
		switch {
		case s.irreversible && s.needsProof:
			want = []string{"prove", "mark irreversible", "check lock"}
		case s.irreversible:
			want = []string{"mark irreversible", "check lock"}
		case name == "Reboot":
			want = []string{"prove", "check lock"}
		default:
			continue
		}
		if name == "LeaveEtcd" {
			want = append(want, "renew while")
		}
		if diff := cmp.Diff(append(want, s.call), l.calls); diff != "" {
			t.Errorf("%s: what cannot be taken back is marked, then the lock is read, then the call is made: -want, +got:\n%s", name, diff)
		}
	}
}

func TestUnknownIdentityIsRefused(t *testing.T) {
	l := &ledger{}
	nameless := target
	nameless.UUID = ""
	err := newTestActor(t).Reset(context.Background(), &fakeLock{ledger: l}, grant("step"), "step", nameless, &fakeMachine{ledger: l}, talos.ResetOptions{})
	if identity := (*IdentityError)(nil); !errors.As(err, &identity) {
		t.Errorf("a machine without a pinned UUID was reset: %v, %q", err, l.calls)
	}
}

func TestNodeStepsAreGuarded(t *testing.T) {
	k := fake.NewClientset()
	a := newTestActor(t)
	for name, do := range map[string]func(l Lock, p permit.Permit) error{
		"Cordon": func(l Lock, p permit.Permit) error { return a.Cordon(context.Background(), l, p, "step", target, k) },
		"Drain": func(l Lock, p permit.Permit) error {
			return a.Drain(context.Background(), l, p, "step", target, k, DrainOptions{})
		},
		"DeleteNode": func(l Lock, p permit.Permit) error {
			return a.DeleteNode(context.Background(), l, p, "step", target, k)
		},
	} {
		if err := do(&fakeLock{ledger: &ledger{}}, grant("other")); err == nil {
			t.Errorf("%s was carried out with a permit for another step", name)
		}
		if err := do(&fakeLock{ledger: &ledger{}, lost: errBoom}, grant("step")); !errors.Is(err, errBoom) {
			t.Errorf("%s was carried out after the lock was lost: %v", name, err)
		}
	}
	if n := len(k.Actions()); n > 0 {
		t.Errorf("%d calls were made to the Kubernetes API: %v", n, k.Actions())
	}
}
