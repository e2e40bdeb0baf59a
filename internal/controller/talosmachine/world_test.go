package talosmachine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/act"
	"github.com/maesh/provider-ichor/internal/machineconfig"
	"github.com/maesh/provider-ichor/internal/survey"
	"github.com/maesh/provider-ichor/internal/talos"
)

// errKilled is what every call answers once the process was killed.
var errKilled = errors.New("the process was killed")

// A world is everything outside of the process: machines with their etcd, and the Kubernetes cluster that they form.
// Every write is counted, those to the management cluster included; after the write with the number dieAt, every call
// fails, as it does for a process that was killed right after that write.
type world struct {
	t *testing.T

	mu      sync.Mutex
	boxes   []*box
	members map[uint64]string // etcd: member to box
	leader  uint64
	kube    *kubefake.Clientset
	kubeErr error
	// closed is why the Kubernetes API cannot even be opened.
	closed error
	bundle *machineconfig.Bundle

	writes   []string
	dieAt    int
	dead     bool
	teardown bool
	// onWrite, if set, is what happens besides at each write.
	onWrite func(what string)

	// site is what the provider config says of drains, and pin the fingerprint that a blank machine was last opened with.
	site v1alpha1.MachineDrain
	pin  string
}

// A box is one machine.
type box struct {
	w *world

	name, address, uuid string
	nodename            string // under which its kubelet runs
	controlPlane        bool
	boots               int
	stage               string // as Talos names it
	active, persistent  []byte
	member              uint64
	unreachable         bool
	foreign             bool          // configured with another PKI
	secretive           bool          // does not show its configuration
	bootless            bool          // does not tell its boot ID
	leaving             chan struct{} // if set, a leave from etcd takes until it is closed
	questions           int           // that were answered
	rebootsAfter        int           // if set, it reboots, at once, after so many questions
	leavesLate          bool          // a leave that nobody waits for any more happens all the same
	leaves              int           // how many were begun
	// fault, if set, decides what a write answers, before or after it takes effect.
	fault func(op string) (takesEffect bool, err error)
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, members: map[uint64]string{}, kube: kubefake.NewClientset()}
	w.kube.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.dead {
			return true, nil, errKilled
		}
		if w.kubeErr != nil {
			return true, nil, w.kubeErr
		}
		if verb := a.GetVerb(); verb != "get" && verb != "list" && verb != "watch" {
			w.wrote(strings.TrimSuffix(fmt.Sprintf("kubernetes: %s %s %s", verb, a.GetResource().Resource, a.GetSubresource()), " "))
		}
		return false, nil, nil
	})
	return w
}

// wrote counts one write. The process dies after it, not before: its effect is there.
func (w *world) wrote(what string) {
	w.writes = append(w.writes, what)
	if w.onWrite != nil {
		w.onWrite(what)
	}
	if len(w.writes) == w.dieAt {
		w.dead = true
	}
}

// revive begins a new process.
func (w *world) revive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead, w.dieAt = false, 0
}

func (w *world) violatedf(format string, a ...any) {
	w.t.Helper()
	w.t.Errorf("INVARIANT VIOLATED: %s; writes: %q", fmt.Sprintf(format, a...), w.writes)
}

// join adds a machine that runs and is a member of its cluster.
func (w *world) join(name string, controlPlane bool) *box {
	n := len(w.boxes) + 1
	b := &box{
		w: w, name: name, nodename: name, address: fmt.Sprintf("192.0.2.%d", n), uuid: fmt.Sprintf("00000000-0000-4000-8000-%012d", n),
		controlPlane: controlPlane, stage: "running", active: []byte("config of " + name), persistent: []byte("config of " + name),
	}
	if controlPlane {
		b.member = uint64(0xa0 + n)
		w.members[b.member] = name
		if w.leader == 0 {
			w.leader = b.member
		}
	}
	w.boxes = append(w.boxes, b)
	w.addNode(b)
	return b
}

func (w *world) addNode(b *box) {
	w.t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: b.name},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{SystemUUID: b.uuid},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	if err := w.kube.Tracker().Add(node); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) box(name string) *box {
	for _, b := range w.boxes {
		if b.name == name {
			return b
		}
	}
	w.t.Fatalf("there is no machine %q", name)
	return nil
}

func (w *world) at(address string) *box {
	for _, b := range w.boxes {
		if b.address == address {
			return b
		}
	}
	return &box{w: w, address: address, unreachable: true}
}

// settle lets time pass: what was begun takes its course.
func (w *world) settle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.boxes {
		switch b.stage {
		case "resetting":
			b.stage, b.active, b.persistent, b.boots = "maintenance", nil, nil, b.boots+1
		case "rebooting":
			b.stage, b.active, b.boots = "running", b.persistent, b.boots+1
		case "booting":
			b.stage = "running"
		}
	}
}

// serves tells whether etcd has quorum.
func (w *world) serves() bool { return w.healthy() >= len(w.members)/2+1 && len(w.members) > 0 }

func (w *world) healthy() int {
	n := 0
	for id, name := range w.members {
		if b := w.box(name); b.member == id && b.up() {
			n++
		}
	}
	return n
}

func (w *world) removeMember(id uint64) {
	delete(w.members, id)
	if w.leader == id {
		w.leader = 0
		for other := range w.members {
			w.leader = max(w.leader, other)
		}
	}
	if !w.teardown && !w.serves() {
		w.violatedf("I1: etcd lost its quorum by the removal of member %x", id)
	}
}

func (b *box) up() bool { return !b.unreachable && b.stage == "running" }

// A door is one way to call a machine.
type door struct {
	*box
	maintenance bool
}

func (d door) fail(op string, c talos.Class, text string) error {
	return &talos.Error{Op: op, Address: d.address, Class: c, Err: errors.New(text)}
}

// open is what happens to every call before it reaches the machine.
func (d door) open(op string) error {
	switch {
	case d.w.dead:
		return errKilled
	case d.unreachable || d.stage == "resetting" || d.stage == "rebooting":
		return d.fail(op, talos.Unreachable, "connection refused")
	case d.maintenance && d.active != nil:
		return d.fail(op, talos.CertificateRequired, "certificate required")
	case !d.maintenance && (d.active == nil || d.foreign):
		return d.fail(op, talos.WrongCluster, "signed by unknown authority")
	}
	return nil
}

func ask[T any](d door, op string, answer func() (T, error)) (T, error) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	var zero T
	if err := d.open(op); err != nil {
		return zero, err
	}
	defer func() {
		if d.questions++; d.questions == d.rebootsAfter {
			d.active, d.boots = d.persistent, d.boots+1
		}
	}()
	return answer()
}

// tell is a write.
func (d door) tell(op string, effect func()) error {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	if err := d.open(op); err != nil {
		return err
	}
	takes, err := true, error(nil)
	if d.fault != nil {
		takes, err = d.fault(op)
	}
	if takes {
		effect()
	}
	d.w.wrote(fmt.Sprintf("%s: %s", d.name, op))
	return err
}

func (d door) System(context.Context) (talos.System, error) {
	return ask(d, "System", func() (talos.System, error) { return talos.System{UUID: d.uuid}, nil })
}

func (d door) Status(context.Context) (talos.Status, error) {
	return ask(d, "Status", func() (talos.Status, error) { return talos.Status{Stage: d.stage, Ready: true}, nil })
}

func (d door) Version(context.Context) (string, error) {
	return ask(d, "Version", func() (string, error) { return "v1.13.9", nil })
}

func (d door) BootID(context.Context) (string, error) {
	return ask(d, "BootID", func() (string, error) {
		if d.bootless {
			return "", d.fail("BootID", talos.Denied, "not authorized")
		}
		return fmt.Sprintf("boot-%d", d.boots), nil
	})
}

func (d door) Nodename(context.Context) (string, error) {
	return ask(d, "Nodename", func() (string, error) { return d.nodename, nil })
}

func (d door) Config(context.Context) (talos.Config, error) {
	return ask(d, "Config", func() (talos.Config, error) {
		if d.secretive {
			return talos.Config{}, d.fail("Config", talos.Denied, "not authorized")
		}
		return talos.Config{Active: d.active, Persistent: d.persistent}, nil
	})
}

func (d door) Schematic(context.Context) (string, error) {
	return ask(d, "Schematic", func() (string, error) { return "", nil })
}

func (d door) EtcdService(context.Context) (talos.Service, error) {
	return ask(d, "EtcdService", func() (talos.Service, error) {
		if _, ok := d.w.members[d.member]; !ok {
			return talos.Service{State: "Finished"}, nil
		}
		return talos.Service{State: "Running"}, nil
	})
}

func (d door) EtcdStatus(context.Context) (talos.EtcdStatus, error) {
	return ask(d, "EtcdStatus", func() (talos.EtcdStatus, error) {
		if _, ok := d.w.members[d.member]; !ok {
			return talos.EtcdStatus{}, d.fail("EtcdStatus", talos.Other, "etcd does not run")
		}
		s := talos.EtcdStatus{Member: d.member, Leader: d.w.leader, Term: 7}
		if !d.w.serves() {
			s.Leader, s.Errors = 0, []string{"etcdserver: no leader"}
		}
		return s, nil
	})
}

func (d door) EtcdMembers(context.Context) ([]talos.Member, error) {
	return ask(d, "EtcdMembers", func() ([]talos.Member, error) {
		if _, ok := d.w.members[d.member]; !ok {
			return nil, d.fail("EtcdMembers", talos.Other, "etcd does not run")
		}
		var list []talos.Member
		for id, name := range d.w.members {
			list = append(list, talos.Member{ID: id, Name: name, PeerHosts: []string{d.w.box(name).address}})
		}
		slices.SortFunc(list, func(a, b talos.Member) int { return strings.Compare(a.Name, b.Name) })
		return list, nil
	})
}

func (d door) EtcdAlarms(context.Context) ([]talos.Alarm, error) {
	return ask(d, "EtcdAlarms", func() ([]talos.Alarm, error) { return nil, nil })
}

func (d door) ApplyConfig(_ context.Context, data []byte, mode talos.Mode) (talos.ApplyResult, error) {
	return talos.ApplyResult{}, d.tell(fmt.Sprintf("ApplyConfig(%d)", mode), func() {
		if mode == talos.Staged {
			d.persistent = data
			return
		}
		if d.active == nil {
			d.stage = "booting"
		}
		d.active, d.persistent = data, data
	})
}

func (d door) ForfeitLeadership(context.Context) error {
	return d.tell("ForfeitLeadership", func() {
		for id := range d.w.members {
			if id != d.member {
				d.w.leader = id
			}
		}
	})
}

func (d door) LeaveEtcd(ctx context.Context) error {
	d.w.mu.Lock()
	d.leaves++
	d.w.mu.Unlock()
	if d.leaving != nil {
		select {
		case <-d.leaving:
		case <-ctx.Done():
			if d.leavesLate {
				d.w.mu.Lock()
				defer d.w.mu.Unlock()
				d.w.removeMember(d.member)
			}
			return d.fail("LeaveEtcd", talos.Ambiguous, "canceled")
		}
	}
	return d.tell("LeaveEtcd", func() { d.w.removeMember(d.member) })
}

func (d door) RemoveMember(_ context.Context, id uint64) error {
	return d.tell(fmt.Sprintf("RemoveMember(%x)", id), func() { d.w.removeMember(id) })
}

func (d door) Reset(_ context.Context, o talos.ResetOptions) error {
	return d.tell("Reset", func() {
		if _, listed := d.w.members[d.member]; listed && d.controlPlane && d.w.serves() && len(d.w.members) > 1 {
			d.w.violatedf("I2: %s was reset while etcd lists its member", d.name)
		}
		if !slices.Contains(o.Wipe, "STATE") || !slices.Contains(o.Wipe, "EPHEMERAL") {
			d.w.violatedf("%s was reset without wiping both STATE and EPHEMERAL: %q", d.name, o.Wipe)
		}
		d.stage = "resetting"
	})
}

func (d door) Reboot(context.Context) error {
	return d.tell("Reboot", func() { d.stage = "rebooting" })
}

// worldDoors are the doors of the world's one cluster.
type worldDoors struct {
	w *world
	s *survey.Surveyor
}

func (d worldDoors) Machine(address string) act.Machine { return door{box: d.w.at(address)} }

func (d worldDoors) Maintenance(address, fingerprint string) act.Configurer {
	d.w.pin = fingerprint
	return door{box: d.w.at(address), maintenance: true}
}

func (d worldDoors) Kubernetes() (kubernetes.Interface, error) { return d.w.kube, d.w.closed }

func (d worldDoors) Bundle() *machineconfig.Bundle { return d.w.bundle }

func (d worldDoors) Drain() v1alpha1.MachineDrain { return d.w.site }

func (d worldDoors) ImageFactory() string { return "factory.example.org" }

func (d worldDoors) Look(ctx context.Context, mg *v1alpha1.TalosMachine) (survey.Observation, error) {
	return d.s.Look(ctx, mg, worldAccess{d.w})
}

// worldAccess is how a survey sees the world.
type worldAccess struct{ w *world }

func (a worldAccess) Open(context.Context, *v1alpha1.TalosCluster) (survey.Access, error) {
	return a, nil
}

func (a worldAccess) Machine(address string) survey.Machine { return door{box: a.w.at(address)} }

func (a worldAccess) Maintenance(address, _ string) survey.Machine {
	return door{box: a.w.at(address), maintenance: true}
}

func (a worldAccess) Kubernetes() (kubernetes.Interface, error) { return a.w.kube, nil }

// pass is how long a pass that waits is put off.
const pass = 15 * time.Second
