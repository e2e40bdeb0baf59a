package survey

import (
	"errors"
	"slices"
	"strings"
	"testing"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/facts"
)

var errNoKube = errors.New("the Kubernetes API is down - error from a previous attempt: read tcp 127.0.0.1:48356->127.0.0.1:6443: connection reset by peer")

func TestNodes(t *testing.T) {
	recorded := func(name string) func(*v1alpha1.TalosMachine) {
		return func(m *v1alpha1.TalosMachine) { m.Status.AtProvider.NodeName = name }
	}
	cases := map[string]struct {
		reason  string
		machine *v1alpha1.TalosMachine
		nodes   []kruntime.Object
		want    facts.Node
		why     string
	}{
		"ByUUID": {
			reason:  "A Node is found by the UUID that its kubelet saw, whatever it is called.",
			machine: machineObject("cp-1"),
			nodes:   []kruntime.Object{node("cp-1", "uuid-of-another"), node("renamed", "UUID-CP-1")},
			want:    facts.Node{Exists: true, Name: "renamed", Ready: true},
		},
		"NameProvesNothing": {
			reason:  "A Node of the same name is another machine's if its UUID is.",
			machine: machineObject("cp-1", recorded("cp-1")),
			nodes:   []kruntime.Object{node("cp-1", "uuid-of-another")},
			want:    facts.Node{},
		},
		"RecordedName": {
			reason:  "A Node that tells no UUID is the machine's if its name was recorded.",
			machine: machineObject("cp-1", recorded("k-1")),
			nodes:   []kruntime.Object{node("k-1", "")},
			want:    facts.Node{Exists: true, Name: "k-1", Ready: true},
		},
		"UnrecordedName": {
			reason:  "A Node that tells no UUID is nobody's by its name alone.",
			machine: machineObject("cp-1"),
			nodes:   []kruntime.Object{node("cp-1", "")},
			want:    facts.Node{},
		},
		"TwoNodes": {
			reason:  "A Node that was left over under an old name: nobody can say which of the two to drain.",
			machine: machineObject("cp-1"),
			nodes:   []kruntime.Object{node("old", "uuid-cp-1"), node("new", "uuid-cp-1")},
			why:     "new, old",
		},
		"NoUUID": {
			reason:  "Without a UUID no Node can be found, which is not the same as that there is none.",
			machine: machineObject("cp-9", func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.UUID = "" }),
			nodes:   []kruntime.Object{node("k-1", "uuid-cp-1")},
			why:     "UUID is not known",
		},
		"NeitherUUID": {
			reason:  "A machine that tells no UUID and a Node that tells none have nothing in common.",
			machine: machineObject("cp-9", func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.UUID = "" }),
			nodes:   []kruntime.Object{node("k-1", "")},
			why:     "UUID is not known",
		},
		"Cordoned": {
			reason:  "A cordon of somebody else.",
			machine: machineObject("cp-1"),
			nodes: []kruntime.Object{node("k-1", "uuid-cp-1", func(n *corev1.Node) {
				n.Spec.Unschedulable = true
				n.Annotations = map[string]string{v1alpha1.AnnotationCordonedBy: "uid-of-another"}
			})},
			want: facts.Node{Exists: true, Name: "k-1", Ready: true, Cordoned: true},
		},
		"CordonedByUs": {
			reason:  "A cordon for this very object.",
			machine: machineObject("cp-1"),
			nodes: []kruntime.Object{node("k-1", "uuid-cp-1", func(n *corev1.Node) {
				n.Spec.Unschedulable = true
				n.Annotations = map[string]string{v1alpha1.AnnotationCordonedBy: "uid-cp-1"}
			})},
			want: facts.Node{Exists: true, Name: "k-1", Ready: true, Cordoned: true, Ours: true},
		},
		"NotReady": {
			reason:  "A kubelet that stopped reporting.",
			machine: machineObject("cp-1"),
			nodes: []kruntime.Object{node("k-1", "uuid-cp-1", func(n *corev1.Node) {
				n.Status.Conditions[0].Status = corev1.ConditionUnknown
			})},
			want: facts.Node{Exists: true, Name: "k-1"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, _ := surveyor(t, &fakeAccess{configured: threeMembers(), kube: kubefake.NewClientset(tc.nodes...)}, cluster(), tc.machine)
			f, err := s.Cluster(t.Context(), home, "")
			if err != nil {
				t.Fatal(err)
			}
			got := f.Machines[0].Node
			if tc.why != "" {
				unknown(t, "node", got)
				if !strings.Contains(got.Why(), tc.why) {
					t.Errorf("\n%s\nwhy: got %q, want it to say %q", tc.reason, got.Why(), tc.why)
				}
				return
			}
			n, ok := got.Get()
			n.KubeletVersion, n.Addresses = "", nil
			if diff := cmp.Diff(tc.want, n); diff != "" || !ok {
				t.Errorf("\n%s\n-want +got (%s):\n%s", tc.reason, got.Why(), diff)
			}
		})
	}
}

// TestNodesOfOneName has the kubelets of two machines of one hostname write to one Node, and others be renamed.
func TestNodesOfOneName(t *testing.T) {
	was := func(name string) func(*v1alpha1.TalosMachine) {
		return func(m *v1alpha1.TalosMachine) { m.Status.AtProvider.NodeName = name }
	}
	const twins = `its hostname "k-1" is also that of cp-2`
	cases := map[string]struct {
		reason string
		cp2    []func(*v1alpha1.TalosMachine)
		// names under which the kubelets of cp-1 and cp-2 run, as they tell; empty if they do not tell
		names  [2]string
		silent string
		nodes  map[string]string // UUID by name
		// why cp-1's Node is not known; empty if it is.
		why  string
		same []string
		left []string
	}{
		"OursNow":      {reason: "A drain for the one would hit the other.", names: [2]string{"k-1", "k-1"}, nodes: map[string]string{"k-1": "uuid-cp-1"}, why: twins, same: []string{"cp-2"}},
		"TheirsNow":    {reason: "That no Node is found is only because the other one wrote last.", names: [2]string{"k-1", "k-1"}, nodes: map[string]string{"k-1": "uuid-cp-2"}, why: twins, same: []string{"cp-2"}},
		"NoNode":       {reason: "The next one to register is either of them.", names: [2]string{"k-1", "k-1"}, why: twins, same: []string{"cp-2"}},
		"Recorded":     {reason: "One that does not tell its name has the one that it was last seen with.", cp2: []func(*v1alpha1.TalosMachine){was("k-1")}, nodes: map[string]string{"k-1": "uuid-cp-1"}, why: twins, same: []string{"cp-2"}},
		"OtherName":    {reason: "Another machine has its own Node.", names: [2]string{"k-1", "k-2"}, nodes: map[string]string{"k-1": "uuid-cp-1", "k-2": "uuid-cp-2"}},
		"OtherRenamed": {reason: "What the other one tells counts, and not what it was called.", cp2: []func(*v1alpha1.TalosMachine){was("k-1")}, names: [2]string{"k-1", "k-2"}, nodes: map[string]string{"k-1": "uuid-cp-1"}},
		"OtherGone":    {reason: "A machine whose removal is completed has left its hostname.", cp2: []func(*v1alpha1.TalosMachine){was("k-1"), removed}, names: [2]string{"k-1", "k-1"}, nodes: map[string]string{"k-1": "uuid-cp-1"}},
		"OtherQuiet":   {reason: "A dead machine's replacement may have its hostname.", cp2: []func(*v1alpha1.TalosMachine){was("k-1")}, names: [2]string{"k-1", ""}, silent: "addr-cp-2", nodes: map[string]string{"k-1": "uuid-cp-1"}},
		"WeAreQuiet":   {reason: "A dead machine's Node is its replacement's by now.", names: [2]string{"", "k-1"}, silent: "addr-cp-1", nodes: map[string]string{"k-1": "uuid-cp-2"}},
		"QuietButOurs": {reason: "It is not: to delete it would hit the replacement.", names: [2]string{"", "k-1"}, silent: "addr-cp-1", nodes: map[string]string{"k-1": "uuid-cp-1"}, why: twins, same: []string{"cp-2"}},
		"Namesake":     {reason: "A Node of our name may become ours with the next heartbeat.", names: [2]string{"k-1", ""}, nodes: map[string]string{"k-1": "uuid-of-another"}, why: "has its name and the UUID of another machine", left: []string{"k-1"}},
		"Renamed":      {reason: "The Node of a kubelet that was renamed is not the one that its pods are on.", names: [2]string{"new", ""}, nodes: map[string]string{"old": "uuid-cp-1"}, why: "its kubelet runs under the name new by now", left: []string{"old"}},
		"LeftOver":     {reason: "Nor can anybody say whether one is to be left.", names: [2]string{"new", ""}, nodes: map[string]string{"old": "uuid-cp-1", "new": "uuid-cp-1"}, why: "the Nodes new, old are all of this machine by its UUID", left: []string{"new", "old"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := &fakeAccess{configured: threeMembers()}
			a.configured["addr-cp-1"].nodename, a.configured["addr-cp-2"].nodename = tc.names[0], tc.names[1]
			delete(a.configured, tc.silent)
			var nodes []kruntime.Object
			for name, uuid := range tc.nodes {
				nodes = append(nodes, node(name, uuid))
			}
			a.kube = kubefake.NewClientset(nodes...)
			s, _ := surveyor(t, a, cluster(), machineObject("cp-1"), machineObject("cp-2", tc.cp2...))
			f, err := s.Cluster(t.Context(), home, "uid-cp-1")
			if err != nil {
				t.Fatal(err)
			}
			got := f.Machines[0]
			if got.Node.IsKnown() != (tc.why == "") || (tc.why != "" && !strings.Contains(got.Node.Why(), tc.why)) {
				t.Errorf("\n%s\nknown is %t (%s), want to hear %q", tc.reason, got.Node.IsKnown(), got.Node.Why(), tc.why)
			}
			if diff := cmp.Diff([][]string{tc.same, tc.left}, [][]string{got.SameNodename, got.LeftoverNodes}); diff != "" {
				t.Errorf("\n%s\nsame names, leftovers: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// An overview does not ask workers. Whether one that has our hostname runs is what its object says.
func TestOverviewOfOneName(t *testing.T) {
	for _, reachable := range []bool{true, false} {
		w := machineObject("w-1", worker, func(m *v1alpha1.TalosMachine) {
			m.Status.AtProvider.NodeName = "k-1"
			if reachable {
				m.SetConditions(xpv2.Condition{Type: v1alpha1.TypeReachable, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonAnswering})
			}
		})
		a := &fakeAccess{configured: threeMembers(), kube: kubefake.NewClientset(node("k-1", "uuid-cp-1"))}
		a.configured["addr-cp-1"].nodename = "k-1"
		s, _ := surveyor(t, a, cluster(), machineObject("cp-1"), w)
		f, err := s.Overview(t.Context(), home, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Machines[0].Node.IsKnown(); got == reachable {
			t.Errorf("with another machine of its name that answers (%t), its Node is known: %t", reachable, got)
		}
	}
}

// load is what is on the Nodes k-1 and k-2.
func load() []kruntime.Object {
	pod := func(name, on string, change ...func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: on}}
		for _, f := range change {
			f(p)
		}
		return p
	}
	owned := func(kind, name string) func(*corev1.Pod) {
		yes := true
		return func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, Controller: &yes}}
		}
	}
	volume := func(name, on, pv string) *storagev1.VolumeAttachment {
		a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.VolumeAttachmentSpec{NodeName: on}}
		if pv != "" {
			a.Spec.Source.PersistentVolumeName = &pv
		}
		return a
	}
	now := metav1.Now()
	return []kruntime.Object{
		node("k-1", "uuid-cp-1"), node("k-2", "uuid-cp-2"),
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent"}},
		pod("web", "k-1", owned("ReplicaSet", "web")),
		pod("bare", "k-1"),
		pod("scratch", "k-1", owned("ReplicaSet", "scratch"), func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}),
		pod("going", "k-1", owned("ReplicaSet", "going"), func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &now, []string{"x/y"}
		}),
		pod("agent-1", "k-1", owned("DaemonSet", "agent")),
		pod("kube-apiserver", "k-1", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }),
		volume("va-1", "k-1", "pv-1"), volume("va-0", "k-1", ""), volume("va-2", "k-2", "pv-2"),
	}
}

// Everything that has to go before a Node is drained is named: also pods that a drain may not evict as it is declared, and
// those that are still going. Only what stays with the machine, DaemonSet and static pods, is left out.
func TestLoadOfTheTarget(t *testing.T) {
	kube := kubefake.NewClientset(load()...)
	s, _ := surveyor(t, &fakeAccess{configured: threeMembers(), kube: kube}, controlPlanes()...)
	f, err := s.Cluster(t.Context(), home, "uid-cp-1")
	if err != nil {
		t.Fatal(err)
	}
	n, _ := f.Machines[0].Node.Get()
	if diff := cmp.Diff([]string{"default/bare", "default/going", "default/scratch", "default/web"}, n.Evictable); diff != "" {
		t.Errorf("evictable: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"pv-1", "va-0"}, n.Attached); diff != "" {
		t.Errorf("attached: -want +got:\n%s", diff)
	}
	if other, _ := f.Machines[1].Node.Get(); len(other.Evictable)+len(other.Attached) > 0 {
		t.Errorf("load of a machine that is not the target: %+v", other)
	}
	for _, a := range kube.Actions() {
		if l, ok := a.(kubetesting.ListActionImpl); ok && a.GetResource().Resource == "pods" && !strings.Contains(l.GetListRestrictions().Fields.String(), "k-1") {
			t.Errorf("pods of every Node were read: %v", l)
		}
		if !slices.Contains([]string{"list", "get"}, a.GetVerb()) {
			t.Errorf("a survey did %s %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
}

func TestNoTargetReadsNoLoad(t *testing.T) {
	kube := kubefake.NewClientset(load()...)
	s, _ := surveyor(t, &fakeAccess{configured: threeMembers(), kube: kube}, controlPlanes()...)
	if _, err := s.Cluster(t.Context(), home, ""); err != nil {
		t.Fatal(err)
	}
	for _, a := range kube.Actions() {
		if r := a.GetResource().Resource; r != "nodes" {
			t.Errorf("%s were read for nobody", r)
		}
	}
}

// A Node whose pods or volumes cannot be read is not a drained one.
func TestUnreadableLoad(t *testing.T) {
	for _, r := range []string{"pods", "volumeattachments", "nodes"} {
		t.Run(r, func(t *testing.T) {
			kube := kubefake.NewClientset(load()...)
			kube.PrependReactor("list", r, func(kubetesting.Action) (bool, kruntime.Object, error) { return true, nil, errNoKube })
			s, _ := surveyor(t, &fakeAccess{configured: threeMembers(), kube: kube}, controlPlanes()...)
			f, err := s.Cluster(t.Context(), home, "uid-cp-1")
			if err != nil {
				t.Fatal(err)
			}
			unknown(t, "the target's node", f.Machines[0].Node)
			if r == "nodes" && !strings.HasSuffix(f.Machines[0].Node.Why(), "the Kubernetes API is down") {
				t.Errorf("why it is not known is another text each time: %q", f.Machines[0].Node.Why())
			}
			if got := f.Machines[1].Node.IsKnown(); got != (r != "nodes") {
				t.Errorf("the other Node is known: %v", got)
			}
		})
	}
}
