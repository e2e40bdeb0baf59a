package survey

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/talos"
)

// A fakeMachine answers what the test tells it to. What is missing is not answered: it is unreachable.
type fakeMachine struct {
	uuid, bootID, nodename, version, schematic, service, says string

	stage   string
	etcd    *talos.EtcdStatus
	members []talos.Member
	alarms  []talos.Alarm
	config  talos.Config
	// fail makes one question fail.
	fail map[string]error

	mu    sync.Mutex
	calls []string
}

func failed(c talos.Class) error {
	return &talos.Error{Op: "ask", Address: "a", Class: c, Err: errors.New("because of " + c.String())}
}

func (m *fakeMachine) asked(question string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, question)
	return m.fail[question]
}

func (m *fakeMachine) questions() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := slices.Clone(m.calls)
	slices.Sort(out)
	return out
}

func say[T comparable](m *fakeMachine, question string, v T) (T, error) {
	var zero T
	if err := m.asked(question); err != nil {
		return zero, err
	}
	if v == zero {
		return zero, failed(talos.Unreachable)
	}
	return v, nil
}

func (m *fakeMachine) System(context.Context) (talos.System, error) {
	return say(m, "System", talos.System{UUID: m.uuid})
}

func (m *fakeMachine) Status(context.Context) (talos.Status, error) {
	s, err := say(m, "Status", m.stage)
	return talos.Status{Stage: s, Ready: s == "running"}, err
}
func (m *fakeMachine) Version(context.Context) (string, error) { return say(m, "Version", m.version) }
func (m *fakeMachine) Nodename(context.Context) (string, error) {
	return say(m, "Nodename", m.nodename)
}

func (m *fakeMachine) BootID(context.Context) (string, error) { return say(m, "BootID", m.bootID) }
func (m *fakeMachine) Config(context.Context) (talos.Config, error) {
	return m.config, m.asked("Config")
}

func (m *fakeMachine) Schematic(context.Context) (string, error) {
	return m.schematic, m.asked("Schematic")
}

func (m *fakeMachine) EtcdService(context.Context) (talos.Service, error) {
	return say(m, "EtcdService", talos.Service{State: m.service, Says: m.says})
}

func (m *fakeMachine) EtcdStatus(context.Context) (talos.EtcdStatus, error) {
	s, err := say(m, "EtcdStatus", m.etcd)
	if err != nil {
		return talos.EtcdStatus{}, err
	}
	return *s, nil
}

func (m *fakeMachine) EtcdMembers(context.Context) ([]talos.Member, error) {
	return m.members, m.asked("EtcdMembers")
}

func (m *fakeMachine) EtcdAlarms(context.Context) ([]talos.Alarm, error) {
	return m.alarms, m.asked("EtcdAlarms")
}

// A fakeAccess has machines behind addresses: with their configuration, or blank.
type fakeAccess struct {
	configured, blank map[string]*fakeMachine
	kube              kubernetes.Interface
	kubeErr           error

	mu   sync.Mutex
	pins []string
}

func (a *fakeAccess) Machine(address string) Machine {
	if m, ok := a.configured[address]; ok {
		return m
	}
	if _, ok := a.blank[address]; ok {
		return refusing(talos.WrongCluster)
	}
	return refusing(talos.Unreachable)
}

func (a *fakeAccess) Maintenance(address, fingerprint string) Machine {
	a.mu.Lock()
	a.pins = append(a.pins, fingerprint)
	a.mu.Unlock()
	if m, ok := a.blank[address]; ok && m != nil {
		return m
	}
	return refusing(talos.CertificateRequired)
}

func (a *fakeAccess) Kubernetes() (kubernetes.Interface, error) { return a.kube, a.kubeErr }

// Open gives access to any cluster.
func (a *fakeAccess) Open(context.Context, *v1alpha1.TalosCluster) (Access, error) { return a, nil }

func refusing(c talos.Class) *fakeMachine {
	return &fakeMachine{fail: map[string]error{"System": failed(c), "Status": failed(c)}}
}

var (
	start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	home  = types.NamespacedName{Namespace: "site", Name: "home"}
)

func scheme(t *testing.T) *kruntime.Scheme {
	t.Helper()
	s := kruntime.NewScheme()
	for _, add := range []func(*kruntime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func surveyor(t *testing.T, a Opener, objects ...client.Object) (*Surveyor, *clocktesting.FakePassiveClock) {
	t.Helper()
	clk := clocktesting.NewFakePassiveClock(start)
	return NewWith(fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects...).Build(), a, clk), clk
}

func cluster() *v1alpha1.TalosCluster {
	c := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: home.Namespace, Name: home.Name, UID: "cluster-uid"}}
	c.Spec.ForProvider.ControlPlane.Count = 3
	return c
}

// machineObject is an approved control plane of cluster home whose UUID and address are made from its name.
func machineObject(name string, change ...func(*v1alpha1.TalosMachine)) *v1alpha1.TalosMachine {
	m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: home.Namespace, Name: name, UID: types.UID("uid-" + name)}}
	p := &m.Spec.ForProvider
	p.ClusterRef = &v1alpha1.ClusterReference{Name: home.Name}
	p.Role, p.Approved, p.Address, p.UUID = v1alpha1.RoleControlPlane, true, "addr-"+name, "UUID-"+name
	for _, f := range change {
		f(m)
	}
	return m
}

func worker(m *v1alpha1.TalosMachine)     { m.Spec.ForProvider.Role = v1alpha1.RoleWorker }
func unapproved(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.Approved = false }

// recorded is a machine whose removal has begun.
func recorded(m *v1alpha1.TalosMachine) {
	_ = m.SetRemovalRecord(v1alpha1.RemovalRecord{UUID: "uuid-" + m.GetName(), MemberID: "a1"})
}

func removed(m *v1alpha1.TalosMachine) {
	_ = m.SetRemovalRecord(v1alpha1.RemovalRecord{UUID: "uuid-" + m.GetName(), Completed: true})
}

// threeMembers are cp-1 to cp-3 as members 1 to 3; cp-1 leads.
func threeMembers() map[string]*fakeMachine {
	list := []talos.Member{{ID: 3, Name: "cp-3", PeerHosts: []string{"addr-cp-3"}}, {ID: 1, Name: "cp-1", PeerHosts: []string{"addr-cp-1"}}, {ID: 2, Name: "cp-2", PeerHosts: []string{"addr-cp-2"}}}
	out := map[string]*fakeMachine{}
	for i, name := range []string{"cp-1", "cp-2", "cp-3"} {
		out["addr-"+name] = &fakeMachine{
			uuid: "uuid-" + name, bootID: "boot-" + name, version: "v1.13.9", stage: "running", service: "Running", says: "Started task etcd",
			etcd: &talos.EtcdStatus{Member: uint64(i + 1), Leader: 1, Term: 4}, members: slices.Clone(list),
		}
	}
	return out
}

func node(name, uuid string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.NodeInfo.SystemUUID = uuid
	n.Status.NodeInfo.KubeletVersion = "v1.35.4"
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeExternalIP, Address: "192.0.2.1"}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, f := range change {
		f(n)
	}
	return n
}
