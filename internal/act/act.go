// Package act carries out one decided step: it has the only call sites of calls that disturb or destroy. It must never
// decide: each call that cannot be taken back demands the held lock of the cluster and a permit from the decide packages,
// and the machine at the address proves by its SMBIOS UUID that it is the one.
package act

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/permit"
	"github.com/maesh/provider-ichor/internal/talos"
)

// A Target is the machine that a step is done to.
type Target struct {
	// ID is the UID of its TalosMachine.
	ID facts.MachineID
	// Name of its TalosMachine, for messages.
	Name string
	// UUID is the SMBIOS UUID that the machine must prove.
	UUID string
	// BootID is the boot that it was in when the step was decided; empty if that is not known.
	BootID string
	// Node is the name of its Kubernetes Node; empty if it has none.
	Node string
}

// A Lock is the held lock of the cluster. *clusterlock.Held satisfies it.
type Lock interface {
	// Check reads the lock afresh and returns an error unless it is still held.
	Check(ctx context.Context) error
	// MarkIrreversible writes down that what comes next cannot be taken back.
	MarkIrreversible(ctx context.Context) error
	// RenewWhile renews the lock while fn runs and cancels fn's context when that fails for too long.
	RenewWhile(ctx context.Context, fn func(ctx context.Context) error) error
}

// A Prover is a machine that can prove which one it is.
type Prover interface {
	System(ctx context.Context) (talos.System, error)
}

// An IdentityError says that another machine than the target answers at its address. Nothing was sent to it.
type IdentityError struct {
	Name, Want, Got string
}

func (e *IdentityError) Error() string {
	return fmt.Sprintf("the machine at the address of %q has SMBIOS UUID %q, not %q: nothing was sent to it", e.Name, e.Got, e.Want)
}

// An Actor carries out decided steps.
type Actor struct {
	kube       client.Client
	clock      clock.PassiveClock
	background *Background
}

// New returns an Actor that writes records with kube, reads the time from clk and runs long calls in background.
func New(kube client.Client, clk clock.PassiveClock, background *Background) *Actor {
	return &Actor{kube: kube, clock: clk, background: background}
}

// Running tells whether a long call for this machine is under way in this process. Its outcome is read from the world.
func (a *Actor) Running(id facts.MachineID) bool { return a.background.Running(string(id)) }

// LeaveFailed is what the last attempt of a machine to leave etcd answered, if that was an error. It is for people: whether
// the machine has left is for the others to tell.
func (a *Actor) LeaveFailed(id facts.MachineID) error { return a.background.Failed(string(id)) }

// permitted is what stands before a step that disturbs but can be taken back.
func (a *Actor) permitted(ctx context.Context, lock Lock, p permit.Permit, t Target, step string) error {
	if err := p.Check(t.ID, step, a.clock.Now()); err != nil {
		return fmt.Errorf("cannot %s %q: %w", step, t.Name, err)
	}
	if err := lock.Check(ctx); err != nil {
		return fmt.Errorf("cannot %s %q: %w", step, t.Name, err)
	}
	return nil
}

// irreversible is what stands before a step that cannot be taken back. The lock is read last, right before the call: it
// is the only one of these facts that somebody else can change at any moment.
func (a *Actor) irreversible(ctx context.Context, lock Lock, p permit.Permit, t Target, step string, m Prover) error {
	if err := p.Check(t.ID, step, a.clock.Now()); err != nil {
		return fmt.Errorf("cannot %s %q: %w", step, t.Name, err)
	}
	if m != nil {
		if err := prove(ctx, t, m); err != nil {
			return fmt.Errorf("cannot %s %q: %w", step, t.Name, err)
		}
	}
	if err := lock.MarkIrreversible(ctx); err != nil {
		return fmt.Errorf("cannot %s %q: %w", step, t.Name, err)
	}
	if err := lock.Check(ctx); err != nil {
		return fmt.Errorf("cannot %s %q: %w", step, t.Name, err)
	}
	return nil
}

// prove returns an error unless the machine proves to be the target.
func prove(ctx context.Context, t Target, m Prover) error {
	s, err := m.System(ctx)
	if err != nil {
		return fmt.Errorf("cannot read the identity of the machine: %w", err)
	}
	if t.UUID == "" || !strings.EqualFold(s.UUID, t.UUID) {
		return &IdentityError{Name: t.Name, Want: t.UUID, Got: s.UUID}
	}
	return nil
}
