package act

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "apps", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "rs", Controller: ptr.To(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: "node-1"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func unmanaged(p *corev1.Pod) { p.OwnerReferences = nil }

func withData(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
}

func ending(p *corev1.Pod) {
	p.DeletionTimestamp = ptr.To(metav1.NewTime(now))
	p.Finalizers = []string{"example.com/slow"}
}

func daemon(p *corev1.Pod) {
	p.OwnerReferences[0].Kind, p.OwnerReferences[0].Name = "DaemonSet", "ds"
}

func budget(name, app string, allowed int32) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed, CurrentHealthy: 1, DesiredHealthy: 1},
	}
}

// evictions answers evictions with an error where one is given, and returns which were asked for.
func evictions(k *fake.Clientset, refuse map[string]error) func() []string {
	k.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		e := a.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
		if o := e.DeleteOptions; o != nil && o.GracePeriodSeconds != nil {
			return true, nil, fmt.Errorf("pod %s is given %d s and not its own time to end", e.GetName(), *o.GracePeriodSeconds)
		}
		return true, nil, refuse[e.GetName()]
	})
	return func() []string {
		var names []string
		for _, a := range k.Actions() {
			if a.GetSubresource() == "eviction" {
				names = append(names, a.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction).GetName())
			}
		}
		slices.Sort(names)
		return names
	}
}

func TestDrain(t *testing.T) {
	tooMany := kerrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 10)
	ds := appsDaemonSet()

	cases := map[string]struct {
		reason  string
		objects []runtime.Object
		refuse  map[string]error
		options DrainOptions
		evicted []string
		want    string // of the error
	}{
		"Evicts": {
			reason:  "Each pod that kubectl would evict is evicted, and no pod is waited for.",
			objects: []runtime.Object{pod("a"), pod("b"), ds, pod("d", daemon)},
			evicted: []string{"a", "b"},
		},
		"NotTwice": {
			reason:  "A pod that ends already is not evicted again.",
			objects: []runtime.Object{pod("a", ending), pod("b")},
			evicted: []string{"b"},
		},
		"Gone": {
			reason:  "A pod that went meanwhile is no failure.",
			objects: []runtime.Object{pod("a")},
			refuse:  map[string]error{"a": kerrors.NewNotFound(corev1.Resource("pods"), "a")},
			evicted: []string{"a"},
		},
		"Budget": {
			reason:  "A pod that a budget protects blocks the drain and is named, with its budget; the others go.",
			objects: []runtime.Object{pod("a"), pod("b"), budget("roomy", "a", 3), budget("tight", "b", 0), budget("other", "c", 0)},
			refuse:  map[string]error{"b": tooMany},
			evicted: []string{"a", "b"},
			want:    `the drain of Node "node-1" is blocked: pod apps/b is protected by PodDisruptionBudget "tight", which allows 0 disruptions now (1 healthy, 1 needed): have more such pods elsewhere, or change the budget`,
		},
		"Unmanaged": {
			reason:  "A pod that nobody would create again blocks the drain before anything is evicted.",
			objects: []runtime.Object{pod("a"), pod("b", unmanaged)},
			want:    `the drain of Node "node-1" is blocked: Pods that declare no controller (spec.forProvider.drain.force evicts them): apps/b`,
		},
		"Forced": {
			reason:  "It goes if a person chose that.",
			objects: []runtime.Object{pod("b", unmanaged)},
			options: DrainOptions{Force: true},
			evicted: []string{"b"},
		},
		"Data": {
			reason:  "A pod whose data would be lost blocks the drain.",
			objects: []runtime.Object{pod("a", withData)},
			want:    `the drain of Node "node-1" is blocked: Pods with local storage (spec.forProvider.drain.deleteEmptyDirData evicts them): apps/a`,
		},
		"DataGivenUp": {
			reason:  "It goes if a person chose that.",
			objects: []runtime.Object{pod("a", withData)},
			options: DrainOptions{DeleteEmptyDirData: true},
			evicted: []string{"a"},
		},
		"Failure": {
			reason:  "What is no block is a failure.",
			objects: []runtime.Object{pod("a")},
			refuse:  map[string]error{"a": errBoom},
			evicted: []string{"a"},
			want:    `cannot drain Node "node-1": cannot evict pod apps/a: boom`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			k := fake.NewClientset(tc.objects...)
			asked := evictions(k, tc.refuse)
			err := newTestActor(t).Drain(context.Background(), &fakeLock{ledger: &ledger{}}, grant("step"), "step", target, k, tc.options)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\nerror: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.evicted, asked()); diff != "" {
				t.Errorf("\n%s\nevictions: -want, +got:\n%s", tc.reason, diff)
			}
			blocked := (*DrainBlockedError)(nil)
			if tc.want != "" && name != "Failure" && !errors.As(err, &blocked) {
				t.Errorf("\n%s\n%v is not a *DrainBlockedError, so it would not be waited for", tc.reason, err)
			}
		})
	}
}

func TestDrainNamesNotTooMany(t *testing.T) {
	e := &DrainBlockedError{Node: "n"}
	for i := range 7 {
		e.Blockers = append(e.Blockers, fmt.Sprintf("pod %d", i))
	}
	want := `the drain of Node "n" is blocked: pod 0; pod 1; pod 2; pod 3; pod 4; and 2 more`
	if diff := cmp.Diff(want, e.Error()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func appsDaemonSet() runtime.Object {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "ds"}}
}
