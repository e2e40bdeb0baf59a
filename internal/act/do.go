package act

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/configchange"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/removal"
	"github.com/maesh/provider-ichor/internal/talos"
)

// A Machine is everything that can be done to a configured machine.
type Machine interface {
	Configurer
	Leader
	Leaver
	MemberRemover
	Rebooter
	Resetter
}

// Doors open the machines and the Kubernetes API of one cluster.
type Doors interface {
	// Machine opens the Talos API of a configured machine.
	Machine(address string) Machine
	// Kubernetes opens the API of the cluster that the machines form.
	Kubernetes() (kubernetes.Interface, error)
}

// A Job is what a step is done to, and how.
type Job struct {
	// Lock of the cluster, held for the object below.
	Lock Lock
	// Doors of the cluster.
	Doors Doors
	// Object that declares the target. Its annotations are written, its status is not.
	Object *v1alpha1.TalosMachine
	// Facts that the step was decided from.
	Facts facts.Cluster
	// Target is the machine, one of the facts.
	Target facts.Machine
	// Drain says what a drain may do.
	Drain DrainOptions
	// Config is what a staged configuration is made of.
	Config []byte
}

func (j Job) target() Target {
	t := Target{ID: j.Target.ID, Name: j.Target.Name, UUID: j.Target.UUID}
	if r := j.Target.Record; r != nil && r.UUID != "" {
		t.UUID = r.UUID
	}
	if live, ok := j.Target.Live.Get(); ok {
		t.BootID, _ = live.BootID.Get()
	}
	if n, ok := j.Target.Node.Get(); ok && n.Exists {
		t.Node = n.Name
	}
	return t
}

func (j Job) machine() Machine { return j.Doors.Machine(j.Object.Spec.ForProvider.Address) }

// peers are the other control planes whose own member of etcd is a healthy voter.
func (j Job) peers() []MemberRemover {
	var peers []MemberRemover
	for _, v := range j.Facts.Etcd.Views {
		if v.Machine == j.Target.ID || v.Learner || !facts.Is(v.Healthy, true) {
			continue
		}
		if m, ok := j.Facts.Machine(v.Machine); ok {
			peers = append(peers, j.Doors.Machine(m.Address))
		}
	}
	return peers
}

// Remove carries out one step of a removal. The last one, Release, does nothing to a machine: Complete writes it down.
func (a *Actor) Remove(ctx context.Context, j Job, d removal.Act) error {
	t, step := j.target(), d.Step.String()
	switch d.Step {
	case removal.Record:
		return a.Record(ctx, j.Lock, j.Object, d.Record)
	case removal.Cordon, removal.Drain, removal.DeleteNode:
		return a.onNode(ctx, j, t, d)
	case removal.MoveLeadership:
		return a.MoveLeadership(ctx, j.Lock, d.Permit, step, t, j.machine())
	case removal.LeaveEtcd:
		return a.LeaveEtcd(ctx, j.Lock, d.Permit, step, t, j.machine())
	case removal.RemoveMember:
		return a.RemoveMember(ctx, j.Lock, d.Permit, step, t, d.Member, j.peers())
	case removal.Reset:
		live, _ := j.Target.Live.Get()
		return a.Reset(ctx, j.Lock, d.Permit, step, t, j.machine(), talos.ResetOptions{
			Wipe: WipeLabels(j.Target.Role, live.TalosVersion, j.Object.Spec.ForProvider.Reset.Wipe),
		})
	default:
		return fmt.Errorf("cannot carry out step %q of a removal: it is not known", step)
	}
}

func (a *Actor) onNode(ctx context.Context, j Job, t Target, d removal.Act) error {
	k, err := j.Doors.Kubernetes()
	if err != nil {
		return fmt.Errorf("cannot %s %q: %w", d.Step, t.Name, err)
	}
	switch d.Step {
	case removal.Cordon:
		return a.Cordon(ctx, j.Lock, d.Permit, d.Step.String(), t, k)
	case removal.Drain:
		return a.Drain(ctx, j.Lock, d.Permit, d.Step.String(), t, k, j.Drain)
	case removal.DeleteNode:
		return a.DeleteNode(ctx, j.Lock, d.Permit, d.Step.String(), t, k)
	default:
		return fmt.Errorf("cannot %s %q: that is no step on a Node", d.Step, t.Name)
	}
}

// Reconfigure carries out one step of a change of configuration that needs a reboot.
func (a *Actor) Reconfigure(ctx context.Context, j Job, d configchange.Act) error {
	t, step := j.target(), d.Step.String()
	switch d.Step {
	case configchange.Stage:
		return a.StageConfig(ctx, j.Lock, d.Permit, step, t, j.machine(), j.Config)
	case configchange.MoveLeadership:
		return a.MoveLeadership(ctx, j.Lock, d.Permit, step, t, j.machine())
	case configchange.Reboot:
		return a.Reboot(ctx, j.Lock, d.Permit, step, t, j.machine())
	case configchange.Cordon, configchange.Drain, configchange.Uncordon:
		return a.reconfigureNode(ctx, j, t, d)
	default:
		return fmt.Errorf("cannot carry out step %q of a change of configuration: it is not known", step)
	}
}

func (a *Actor) reconfigureNode(ctx context.Context, j Job, t Target, d configchange.Act) error {
	k, err := j.Doors.Kubernetes()
	if err != nil {
		return fmt.Errorf("cannot %s %q: %w", d.Step, t.Name, err)
	}
	switch d.Step {
	case configchange.Cordon:
		return a.Cordon(ctx, j.Lock, d.Permit, d.Step.String(), t, k)
	case configchange.Drain:
		return a.Drain(ctx, j.Lock, d.Permit, d.Step.String(), t, k, j.Drain)
	case configchange.Uncordon:
		return Uncordon(ctx, k, t.ID)
	default:
		return fmt.Errorf("cannot %s %q: that is no step on a Node", d.Step, t.Name)
	}
}
