package crashsweep

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/lab"
)

// What the machines call the calls that are judged.
const (
	callBootstrap = "/machine.MachineService/Bootstrap"
	callLeave     = "/machine.MachineService/EtcdLeaveCluster"
	callReset     = "/machine.MachineService/Reset"
	callReboot    = "/machine.MachineService/Reboot"
)

// A job is what a provider is asked for, again and again.
type job struct {
	// prepare brings the cluster to where the job begins, and nobody is killed.
	prepare func(context.Context) error
	// ask for it, as a user does.
	ask func(context.Context) (asked, error)
	// ended is an error as long as it is under way, and holds is one if what it left is not what it has to leave.
	ended func(context.Context, asked) error
	holds func(context.Context, asked) error
}

// asked is what a job was asked to do with.
type asked struct {
	// name of the machine that it is about, and what it was before; empty if it is about all.
	name   string
	before lab.Machine
	// from is the number of the last call before.
	from uint64
}

// Jobs are the names of all jobs.
func Jobs() []string { return []string{"removal", "worker", "reboot", "teardown", "bringup"} }

func (s *sweep) jobs() map[string]job {
	rests := func(ctx context.Context, _ asked) error { return s.serves(ctx, declared, workers) }
	oneLess := func(ctx context.Context, _ asked) error { return s.serves(ctx, declared, workers-1) }
	nothing := func(ctx context.Context, _ asked) error { return s.nothing(ctx) }
	left := func(controlPlane bool) func(context.Context, asked) error {
		return func(ctx context.Context, a asked) error { return s.removed(ctx, a, controlPlane) }
	}
	return map[string]job{
		"removal":  {prepare: s.fourth, ask: s.removeLeader, ended: rests, holds: left(true)},
		"worker":   {prepare: s.up, ask: s.removeWorker, ended: oneLess, holds: left(false)},
		"reboot":   {prepare: s.up, ask: s.reconfigure, ended: s.reconfigured, holds: s.rebooted},
		"teardown": {prepare: s.up, ask: s.tearDown, ended: nothing, holds: s.tornDown},
		"bringup":  {prepare: s.down, ask: s.bringUp, ended: rests, holds: s.broughtUp},
	}
}

// fourth lets another control plane join, so that one can go.
func (s *sweep) fourth(ctx context.Context) error {
	if err := s.up(ctx); err != nil {
		return err
	}
	s.joined++
	if err := s.declare(ctx, fmt.Sprintf("cp-%d", s.joined), v1alpha1.RoleControlPlane); err != nil {
		return err
	}
	return s.await(ctx, "another control plane has joined", func(ctx context.Context) error { return s.serves(ctx, declared+1, workers) })
}

// removeLeader removes the control plane that leads etcd: it has the most to do before it can go.
func (s *sweep) removeLeader(ctx context.Context) (asked, error) {
	t := &v1alpha1.TalosCluster{}
	if err := s.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: clusterName}, t); err != nil {
		return asked{}, err
	}
	return s.removeMachine(ctx, t.Status.AtProvider.Etcd.Leader)
}

// removeWorker removes the worker that is longest there.
func (s *sweep) removeWorker(ctx context.Context) (asked, error) {
	return s.removeMachine(ctx, fmt.Sprintf("worker-%d", s.hired-workers+1))
}

func (s *sweep) removeMachine(ctx context.Context, name string) (asked, error) {
	a, err := s.about(ctx, name)
	if err != nil {
		return a, err
	}
	return a, s.remove(ctx, &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
}

// about looks at a machine before anything is asked of it.
func (s *sweep) about(ctx context.Context, name string) (asked, error) {
	m, err := s.machine(ctx, name)
	if err != nil {
		return asked{}, err
	}
	before, err := s.lab.Fleet.At(ctx, m.Spec.ForProvider.Address)
	return asked{name: name, before: before}, err
}

// removed wants what a removal has to leave: a machine that left etcd before it was reset, once, that is blank in a new boot,
// and nothing sent to any other that disturbs it.
func (s *sweep) removed(ctx context.Context, a asked, controlPlane bool) error {
	after, err := s.lab.Fleet.At(ctx, a.before.Address)
	if err != nil {
		return err
	}
	if after.Stage != stageMaintenance || after.BootID == a.before.BootID || after.UUID != a.before.UUID {
		return fmt.Errorf("machine %s is in stage %q of boot %s (it was in boot %s): it was not reset", after.Name, after.Stage, after.BootID, a.before.BootID)
	}
	sent, err := s.lab.Fleet.Changes(ctx, "", a.from)
	if err != nil {
		return err
	}
	return orderly(sent, after.Name, controlPlane)
}

// orderly wants a leave from etcd before the first reset of a control plane, no leave of a worker, and no other machine to have
// been disturbed. A leave whose answer nobody got may be sent again as long as it did not happen; a reset as well.
func orderly(sent []lab.RPC, machine string, controlPlane bool) error {
	left, resets := 0, 0
	for _, c := range sent {
		if err := unasked(c, machine); err != nil {
			return err
		}
		switch c.Method {
		case callLeave:
			if resets > 0 {
				return errors.New("it was told to leave etcd after it was reset")
			}
			if c.Done && c.Code == 0 && len(c.Forwarded) == 0 {
				left++
			}
		case callReset:
			if controlPlane && left == 0 {
				return errors.New("it was reset before it left etcd")
			}
			resets++
		}
	}
	want := 0
	if controlPlane {
		want = 1
	}
	if left != want || resets == 0 {
		return fmt.Errorf("it left etcd %d times, want %d, and was reset %d times, want at least 1", left, want, resets)
	}
	return nil
}

// unasked is an error if a call disturbs a machine in a way that no removal of the given one needs.
func unasked(c lab.RPC, machine string) error {
	switch c.Method {
	case callLeave, callReset:
		if c.Machine != machine {
			return fmt.Errorf("%s was sent to %s, which nobody asked for", c.Method, c.Machine)
		}
	case callReboot, callBootstrap:
		return fmt.Errorf("%s was sent to %s, which nobody asked for", c.Method, c.Machine)
	}
	return nil
}

// reconfigure changes what a control plane needs a reboot for.
func (s *sweep) reconfigure(ctx context.Context) (asked, error) {
	all, err := s.machines(ctx)
	if err != nil {
		return asked{}, err
	}
	for i := range all {
		if all[i].Spec.ForProvider.Role == v1alpha1.RoleControlPlane {
			a, err := s.about(ctx, all[i].GetName())
			if err != nil {
				return a, err
			}
			s.changed++
			return a, s.change(ctx, a.name, func(m *v1alpha1.TalosMachine) {
				m.Spec.ForProvider.ConfigPatches = []v1alpha1.ConfigPatch{{Inline: fmt.Sprintf("machine:\n  env:\n    SWEEP: \"%d\"\n", s.changed)}}
			})
		}
	}
	return asked{}, errors.New("there is no control plane")
}

// reconfigured wants the machine to be in a new boot and everything at rest. Before the provider has looked, all is as it was.
func (s *sweep) reconfigured(ctx context.Context, a asked) error {
	after, err := s.lab.Fleet.At(ctx, a.before.Address)
	if err != nil {
		return err
	}
	if after.BootID == a.before.BootID {
		return fmt.Errorf("machine %s is still in boot %s: it was not rebooted", after.Name, after.BootID)
	}
	return s.serves(ctx, declared, workers)
}

// rebooted wants one reboot of one machine, and nothing else that disturbs.
func (s *sweep) rebooted(ctx context.Context, a asked) error {
	after, err := s.lab.Fleet.At(ctx, a.before.Address)
	if err != nil {
		return err
	}
	if after.UUID != a.before.UUID {
		return fmt.Errorf("machine %s has another UUID", after.Name)
	}
	sent, err := s.lab.Fleet.Changes(ctx, "", a.from)
	if err != nil {
		return err
	}
	reboots := 0
	for _, c := range sent {
		switch c.Method {
		case callReboot:
			reboots++
		case callLeave, callReset, callBootstrap:
			return fmt.Errorf("%s was sent to %s", c.Method, c.Machine)
		}
		if c.Machine != after.Name {
			return fmt.Errorf("%s was sent to %s, which nobody asked for", c.Method, c.Machine)
		}
	}
	if reboots != 1 {
		return fmt.Errorf("it was told %d times to reboot, want once", reboots)
	}
	return nil
}

func (s *sweep) tearDown(ctx context.Context) (asked, error) {
	if err := s.leave(); err != nil { // Etcd has to go.
		return asked{}, err
	}
	return asked{}, s.remove(ctx, &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: clusterName}})
}

// nothing wants everything to be gone and every machine to be blank.
func (s *sweep) nothing(ctx context.Context) error {
	t := &v1alpha1.TalosCluster{}
	err := s.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: clusterName}, t)
	if err == nil {
		return fmt.Errorf("the TalosCluster is still there: %s", t.GetCondition(v1alpha1.TypeRemoval).Message)
	}
	if !kerrors.IsNotFound(err) {
		return err
	}
	for _, list := range []client.ObjectList{
		&v1alpha1.TalosMachineList{}, &v1alpha1.ProviderConfigUsageList{}, &corev1.SecretList{}, &coordinationv1.LeaseList{},
	} {
		if err := s.kube.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		if n := meta.LenList(list); n > 0 {
			return fmt.Errorf("a %T still has %d objects", list, n)
		}
	}
	machines, err := s.lab.Fleet.Machines(ctx)
	if err != nil {
		return err
	}
	for _, m := range machines {
		if m.Stage != stageMaintenance {
			return fmt.Errorf("machine %s is in stage %q", m.Name, m.Stage)
		}
	}
	return nil
}

// tornDown wants the workers to have gone before any control plane.
func (s *sweep) tornDown(ctx context.Context, a asked) error {
	sent, err := s.lab.Fleet.Changes(ctx, "", a.from)
	if err != nil {
		return err
	}
	reset := map[string]bool{}
	for _, c := range sent {
		switch {
		case c.Method == callLeave && len(reset) < workers:
			return fmt.Errorf("%s was told to leave etcd before the workers were reset", c.Machine)
		case c.Method == callBootstrap || c.Method == callReboot:
			return fmt.Errorf("%s was sent to %s", c.Method, c.Machine)
		case c.Method == callReset:
			reset[c.Machine] = true
		}
	}
	if len(reset) != declared+workers {
		return fmt.Errorf("%d machines were reset, want %d", len(reset), declared+workers)
	}
	return nil
}

// down takes the cluster down, unless it is.
func (s *sweep) down(ctx context.Context) error {
	if s.nothing(ctx) == nil {
		return nil
	}
	if _, err := s.tearDown(ctx); err != nil {
		return err
	}
	return s.await(ctx, "the cluster is gone", s.nothing)
}

func (s *sweep) bringUp(ctx context.Context) (asked, error) { return asked{}, s.declareAll(ctx) }

// broughtUp wants one machine to have been told to bootstrap etcd, and nothing that takes anything away.
func (s *sweep) broughtUp(ctx context.Context, a asked) error {
	sent, err := s.lab.Fleet.Changes(ctx, "", a.from)
	if err != nil {
		return err
	}
	founders := map[string]bool{}
	for _, c := range sent {
		switch c.Method {
		case callBootstrap:
			founders[c.Machine] = true
		case callLeave, callReset, callReboot:
			return fmt.Errorf("%s was sent to %s", c.Method, c.Machine)
		}
	}
	if len(founders) != 1 {
		return fmt.Errorf("bootstrap was sent to %d machines, want 1", len(founders))
	}
	return nil
}
