package workload

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestShapeOwnsOnlyItsOwn(t *testing.T) {
	foreign := corev1.Taint{Key: "someone", Effect: corev1.TaintEffectNoExecute}
	gpu := corev1.Taint{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}
	plane := corev1.Taint{Key: controlPlaneRole, Effect: corev1.TaintEffectNoSchedule}

	type want struct {
		Labels, Annotations map[string]string
		Taints              []corev1.Taint
	}
	cases := map[string]struct {
		reason string
		object corev1.Node
		args   Node
		want   want
	}{
		"Fresh": {
			reason: "What the configuration says is set and listed as owned.",
			args:   Node{Labels: map[string]string{"zone": "a"}, Annotations: map[string]string{"note": "x"}, Taints: []corev1.Taint{gpu}},
			want: want{
				Labels: map[string]string{"zone": "a"},
				Annotations: map[string]string{
					"note": "x", ownedLabels: `["zone"]`, ownedAnnotations: `["note"]`, ownedTaints: `["gpu"]`,
				},
				Taints: []corev1.Taint{gpu},
			},
		},
		"Dropped": {
			reason: "What an earlier configuration set and this one does not is taken off, and nothing else.",
			object: corev1.Node{
				ObjectMeta: metav1.ObjectMeta{
					Labels: map[string]string{"zone": "a", "theirs": "yes"},
					Annotations: map[string]string{
						"note": "x", "theirs": "yes", ownedLabels: `["zone"]`, ownedAnnotations: `["note"]`, ownedTaints: `["gpu"]`,
					},
				},
				Spec: corev1.NodeSpec{Taints: []corev1.Taint{foreign, gpu}},
			},
			want: want{
				Labels:      map[string]string{"theirs": "yes"},
				Annotations: map[string]string{"theirs": "yes"},
				Taints:      []corev1.Taint{foreign},
			},
		},
		"Conflict": {
			reason: "A label that somebody else has set to another value stays theirs.",
			object: corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"zone": "b"}}},
			args:   Node{Labels: map[string]string{"zone": "a"}},
			want:   want{Labels: map[string]string{"zone": "b"}, Annotations: map[string]string{}},
		},
		"Changed": {
			reason: "A changed value of our own label is written.",
			object: corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Labels: map[string]string{"zone": "a"}, Annotations: map[string]string{ownedLabels: `["zone"]`},
			}},
			args: Node{Labels: map[string]string{"zone": "b"}},
			want: want{Labels: map[string]string{"zone": "b"}, Annotations: map[string]string{ownedLabels: `["zone"]`}},
		},
		"ControlPlane": {
			reason: "A control plane gets its label and its taint.",
			args:   Node{ControlPlane: true},
			want: want{
				Labels:      map[string]string{controlPlaneRole: ""},
				Annotations: map[string]string{ownedLabels: `["` + controlPlaneRole + `"]`, ownedTaints: `["` + controlPlaneRole + `"]`},
				Taints:      []corev1.Taint{plane},
			},
		},
		"SchedulableControlPlane": {
			reason: "A control plane that may run ordinary pods loses the taint.",
			object: corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{ownedTaints: `["` + controlPlaneRole + `"]`}},
				Spec:       corev1.NodeSpec{Taints: []corev1.Taint{plane}},
			},
			args: Node{ControlPlane: true, Schedulable: true},
			want: want{
				Labels:      map[string]string{controlPlaneRole: ""},
				Annotations: map[string]string{ownedLabels: `["` + controlPlaneRole + `"]`},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.args.Address = netip.MustParseAddr("127.0.0.1")
			if err := tc.args.shape(&tc.object, time.Unix(0, 0)); err != nil {
				t.Fatal(err)
			}
			for _, standard := range []string{corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable} {
				if _, exists := tc.object.Labels[standard]; !exists {
					t.Errorf("label %q is missing", standard)
				}
				delete(tc.object.Labels, standard)
			}
			got := want{Labels: tc.object.Labels, Annotations: tc.object.Annotations, Taints: tc.object.Spec.Taints}
			if tc.want.Labels == nil {
				tc.want.Labels = map[string]string{}
			}
			if len(got.Taints) == 0 {
				got.Taints = nil
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestShapeIsStable(t *testing.T) {
	node := Node{Name: "n", Address: netip.MustParseAddr("127.0.0.1"), ControlPlane: true, Labels: map[string]string{"b": "1", "a": "2"}}
	first := &corev1.Node{}
	if err := node.shape(first, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	second := first.DeepCopy()
	if err := node.shape(second, time.Unix(1000, 0)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("an unchanged node is written again: -first, +second:\n%s", diff)
	}

	// The node controller has given it up; the kubelet says that it is there.
	i := slices.IndexFunc(second.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	second.Status.Conditions[i].Status = corev1.ConditionUnknown
	if isReady(second) {
		t.Error("Unknown counts as Ready")
	}
	if err := node.shape(second, time.Unix(2000, 0)); err != nil {
		t.Fatal(err)
	}
	if at := second.Status.Conditions[i].LastTransitionTime; !isReady(second) || at.Unix() != 2000 {
		t.Errorf("Ready %t since %v, want true since 2000", isReady(second), at.Unix())
	}
}

func TestStopTime(t *testing.T) {
	grace := int64(30)
	c := newClock(10)
	cases := map[string]struct {
		reason string
		stop   string
		takes  time.Duration
		ends   bool
	}{
		"Prompt": {reason: "A well-behaved pod ends soon.", takes: promptStop / 10, ends: true},
		"Slow":   {reason: "A pod that ignores SIGTERM gets its whole grace.", stop: StopSlow, takes: 3 * time.Second, ends: true},
		"Never":  {reason: "A stuck pod does not end.", stop: StopNever},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				DeletionGracePeriodSeconds: &grace, Annotations: map[string]string{StopAnnotation: tc.stop},
			}}
			if takes, ends := c.stopTime(pod); takes != tc.takes || ends != tc.ends {
				t.Errorf("%s\ngot %v, %t; want %v, %t", tc.reason, takes, ends, tc.takes, tc.ends)
			}
		})
	}
}

func TestAddressIn(t *testing.T) {
	for _, subnet := range []string{"10.244.0.0/16", "10.1.2.128/25", "fd00:10:244::/64", "10.0.0.1/32"} {
		prefix := netip.MustParsePrefix(subnet)
		one, again, two := addressIn(prefix, "one"), addressIn(prefix, "one"), addressIn(prefix, "two")
		if !prefix.Contains(one) || !prefix.Contains(two) || one != again {
			t.Errorf("%s: %s, %s, %s", subnet, one, again, two)
		}
		if one == two && !prefix.IsSingleIP() {
			t.Errorf("%s: two pods get %s", subnet, one)
		}
	}
}

func TestClockIsNeverTooFast(t *testing.T) {
	cases := map[string]struct {
		reason                       string
		scale                        float64
		notReady, heartbeat, monitor time.Duration
		toleration                   int
	}{
		"Real":    {reason: "0 is real time.", scale: 0, notReady: 50 * time.Second, heartbeat: 10 * time.Second, monitor: 5 * time.Second, toleration: 300},
		"Twofold": {reason: "Everything halves.", scale: 2, notReady: 25 * time.Second, heartbeat: 5 * time.Second, monitor: 2500 * time.Millisecond, toleration: 150},
		"Extreme": {reason: "A busy machine needs a moment.", scale: 1e6, notReady: 5 * time.Second, heartbeat: time.Second, monitor: 500 * time.Millisecond, toleration: 15},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newClock(tc.scale)
			if c.notReady() != tc.notReady || c.heartbeat() != tc.heartbeat || c.monitor() != tc.monitor || c.tolerationSeconds() != tc.toleration {
				t.Errorf("%s\ngot %v, %v, %v, %d", tc.reason, c.notReady(), c.heartbeat(), c.monitor(), c.tolerationSeconds())
			}
		})
	}
}
