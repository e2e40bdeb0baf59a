package talosmachine

import (
	"context"
	"strings"
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// TestTwins has a worker run under the hostname of a control plane, whose Node has the UUID of the one and the other by
// turns. Neither is drained or deleted for the other; both say so; and the lock is not kept from others meanwhile.
func TestTwins(t *testing.T) {
	b := newBench(t, 3, four[:3], []string{"w-1"})
	nodes, ctx := b.kube.CoreV1().Nodes(), context.Background()
	b.must(nodes.Delete(ctx, "w-1", metav1.DeleteOptions{}))
	b.box("w-1").nodename = "cp-2"
	write := func(uuid string) {
		n, err := nodes.Get(ctx, "cp-2", metav1.GetOptions{})
		b.must(err)
		n.Status.NodeInfo.SystemUUID = uuid
		_, err = nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{})
		b.must(err)
		b.clock.Step(time.Minute) // what was seen before is old
	}

	write(b.box("cp-2").uuid) // The worker's kubelet may be the slower one whenever anybody looks: its Node never says who it is.
	b.pass("w-1")
	b.clock.Step(time.Minute)
	for _, uuid := range []string{b.box("cp-2").uuid, b.box("w-1").uuid} {
		write(uuid)
		for name, other := range map[string]string{"w-1": "cp-2", "cp-2": "w-1"} {
			b.pass(name)
			if c := b.get(name).GetCondition(xpv2.TypeReady); c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, "also that of "+other) {
				t.Errorf("%s is ready %s: %q", name, c.Status, c.Message)
			}
			if got := b.get(name).Status.AtProvider.NodeName; got != "cp-2" {
				t.Errorf("the kubelet of %s runs under the name cp-2, and its status tells %q", name, got)
			}
		}
	}

	b.remove("w-1")
	b.forget()
	for range 3 {
		for _, uuid := range []string{b.box("w-1").uuid, b.box("cp-2").uuid} {
			write(uuid)
			b.forget()
			b.pass("w-1")
			if got := b.removalReason("w-1"); got != v1alpha1.ReasonNodeUnknown || b.lockHolder() != nil || len(b.sent()) > 0 {
				t.Fatalf("with the Node's UUID %s: reason %q, lock %v, sent %q", uuid, got, b.lockHolder(), b.sent())
			}
		}
	}

	b.box("w-1").nodename = "w-1"
	b.addNode(b.box("w-1"))
	b.walk("w-1")
	b.removed("w-1")
	if _, err := nodes.Get(ctx, "cp-2", metav1.GetOptions{}); err != nil {
		t.Errorf("the Node of cp-2 went with its twin: %v", err)
	}
}

// TestNamesakes has a machine that runs be declared with the hostname of another: nothing is changed on either until that is
// corrected.
func TestNamesakes(t *testing.T) {
	b := newConfigured(t, four[:3], []string{"w-1"})
	for _, other := range []string{"cp-1", "w-1"} {
		b.change("w-1", func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.Hostname = other })
		b.pass("w-1")
		c, ready := b.condition("w-1", xpv2.TypeReady), other == "w-1"
		if (c.Status == corev1.ConditionTrue) != ready || strings.Contains(c.Message, `Hostname "cp-1" is declared for cp-1 as well`) == ready {
			t.Errorf("with hostname %s, Ready is %s: %q", other, c.Status, c.Message)
		}
		if sent := b.sent(); len(sent) > 0 {
			t.Errorf("with hostname %s it was sent: %q", other, sent)
		}
	}
	b.change("w-1", func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.Hostname = "w-9" })
	b.pass("w-1")
	if sent := b.sent(); len(sent) != 1 {
		t.Errorf("a hostname that nobody has was sent: %q", sent)
	}
}
