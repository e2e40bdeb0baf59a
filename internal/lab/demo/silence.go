package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	corev1 "k8s.io/api/core/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

const (
	// faultSilent makes a machine accept connections and never answer.
	faultSilent = "api-blackhole"
	// silence is how long a machine that does not answer is watched: a few polls.
	silence = 10 * time.Second
	// quietOne is the machine.
	quietOne = "worker-2"
)

// silent cuts a machine off, first while it is wanted and then while it is being deleted.
func (d *Demo) silent(ctx context.Context) error {
	if err := d.declare(ctx, quietOne, v1alpha1.RoleWorker); err != nil {
		return err
	}
	var known *v1alpha1.TalosMachine
	err := d.await(ctx, quietOne+" is Ready and its Node is known", func(ctx context.Context) (err error) {
		if err := d.condition(ctx, quietOne, "Ready", "Available"); err != nil {
			return err
		}
		if known, err = d.machine(ctx, quietOne); err == nil && known.Status.AtProvider.NodeName == "" {
			return errors.New("its Node is not known yet")
		}
		return err
	})
	if err != nil {
		return err
	}
	if d.quiet, err = d.beginRemoval(ctx, quietOne); err != nil {
		return err
	}
	d.sayf("        %s stops answering\n", quietOne)
	if err := d.lab.Fleet.SetFault(ctx, d.quiet.before.Name, faultSilent, true); err != nil {
		return err
	}
	err = d.await(ctx, "Observe fails, and says why", func(ctx context.Context) error {
		return d.notObserved(ctx, known)
	})
	if err != nil {
		return err
	}
	if err := d.remove(ctx, quietOne); err != nil {
		return err
	}
	err = d.await(ctx, "its removal says that it waits for the machine", func(ctx context.Context) error {
		_ = d.gone(ctx, d.quiet) // Shows what it says.
		return d.condition(ctx, quietOne, string(v1alpha1.TypeRemoval), string(v1alpha1.ReasonMachineUnreachable))
	})
	if err != nil {
		return err
	}
	return d.stays(ctx, known)
}

// notObserved wants a machine's object to say that it cannot be observed, and to still know what it knew.
func (d *Demo) notObserved(ctx context.Context, known *v1alpha1.TalosMachine) error {
	m, err := d.machine(ctx, known.GetName())
	if err != nil {
		return err
	}
	if c := m.GetCondition(v1alpha1.TypeReachable); c.Status != corev1.ConditionFalse || c.Reason != v1alpha1.ReasonUnreachable {
		return fmt.Errorf("condition Reachable is %s (%s)", c.Status, c.Reason)
	}
	if c := m.GetCondition("Synced"); c.Status != corev1.ConditionFalse {
		return fmt.Errorf("condition Synced is %s (%s)", c.Status, c.Reason)
	}
	return remembers(m, known)
}

// remembers wants an object to hold everything by which its machine is known, and the finalizer.
func remembers(m, known *v1alpha1.TalosMachine) error {
	is, was := m.Status.AtProvider, known.Status.AtProvider
	if meta.GetExternalName(m) != meta.GetExternalName(known) || is.UUID != was.UUID || is.BootID != was.BootID || is.NodeName != was.NodeName {
		return fmt.Errorf("%s has forgotten what it knew: it was UUID %s, boot %s, Node %s, and is UUID %s, boot %s, Node %s",
			m.GetName(), was.UUID, was.BootID, was.NodeName, is.UUID, is.BootID, is.NodeName)
	}
	if !slices.Contains(m.GetFinalizers(), v1alpha1.FinalizerMachine) {
		return fmt.Errorf("%s has lost its finalizer", m.GetName())
	}
	return nil
}

// stays watches the object of a machine that does not answer for a while. The machine itself must not have been touched.
func (d *Demo) stays(ctx context.Context, known *v1alpha1.TalosMachine) error {
	until := time.NewTimer(silence)
	defer until.Stop()
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		m, err := d.machine(ctx, known.GetName())
		if err != nil {
			return fmt.Errorf("%s is gone although nobody could ask its machine: %w", known.GetName(), err)
		}
		if err := remembers(m, known); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-until.C:
			return d.untouched(ctx, d.quiet)
		case <-ticker.C:
		}
	}
}

func (d *Demo) answersAgain(ctx context.Context) error {
	d.sayf("        %s answers again\n", quietOne)
	if err := d.lab.Fleet.SetFault(ctx, d.quiet.before.Name, faultSilent, false); err != nil {
		return err
	}
	return d.ends(ctx, d.quiet)
}
