package talosmachine

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// TestCacheBehindAPerson has a person change their mind between any two passes, in a way that forbids what was asked for, and the
// cache of the process not see it yet. What cannot be taken back must not be sent any more.
func TestCacheBehindAPerson(t *testing.T) {
	blank := func(t *testing.T) *bench { b, _ := newBlank(t); return b }
	cases := map[string]struct {
		reason string
		begin  func(t *testing.T) *bench
		name   string
		change func(b *bench)
		op     string
	}{
		"Unapproved": {
			reason: "A machine whose approval was taken back gets no configuration.",
			begin:  blank, name: "w-1", op: "ApplyConfig(1)",
			change: func(b *bench) {
				b.change("w-1", func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.Approved = false })
			},
		},
		"MachineDeleted": {
			reason: "A machine whose object was deleted gets no configuration.",
			begin:  blank, name: "w-1", op: "ApplyConfig(1)",
			change: func(b *bench) { b.must(b.mgmt.Delete(context.Background(), b.get("w-1"))) },
		},
		"ClusterDeleted": {
			reason: "A machine whose cluster was deleted gets no configuration.",
			begin:  blank, name: "w-1", op: "ApplyConfig(1)",
			change: func(b *bench) { b.must(b.mgmt.Delete(context.Background(), b.cluster())) },
		},
		"CountRaised": {
			reason: "A control plane that is declared to be needed does not leave.",
			begin: func(t *testing.T) *bench {
				b := newBench(t, 1, four[:3], nil)
				b.remove("cp-3")
				return b
			},
			name: "cp-3", op: "LeaveEtcd",
			change: func(b *bench) {
				c := b.cluster()
				c.Spec.ForProvider.ControlPlane.Count = 3
				b.must(b.mgmt.Update(context.Background(), c))
			},
		},
		"ControlPlaneJoins": {
			reason: "Nothing is rebooted while the number of control planes is even.",
			begin: func(t *testing.T) *bench {
				b := newConfigured(t, four[:3], nil)
				b.needReboot("cp-2")
				return b
			},
			name: "cp-2", op: "Reboot",
			change: func(b *bench) {
				x := b.join("cp-4", true)
				b.declare(x, v1alpha1.RoleControlPlane)
				x.active = b.rendered("cp-4")
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			sent := func(b *bench) bool { return count(b.sent(), tc.op) > 0 }
			for n, done := 0, false; !done; n++ {
				t.Run(fmt.Sprintf("AfterPass%d", n), func(t *testing.T) {
					b := tc.begin(t)
					for range n {
						b.pass(tc.name)
					}
					if done = sent(b) || n > maxPasses; done {
						if n == 0 || n > maxPasses {
							t.Fatalf("%s is sent after %d passes", tc.op, n)
						}
						return
					}
					b.before, b.behind = b.history.Writes(), true
					tc.change(b)
					b.forget()
					b.start()
					for range 4 {
						b.pass(tc.name)
					}
					if sent(b) {
						t.Errorf("\n%s\nsent: %q", tc.reason, slices.Clone(b.sent()))
					}
				})
			}
		})
	}
}

// cluster reads the TalosCluster.
func (b *bench) cluster() *v1alpha1.TalosCluster {
	b.t.Helper()
	c := &v1alpha1.TalosCluster{}
	b.must(b.mgmt.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: clusterName}, c))
	return c
}
