package talosmachine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/connect"
	"github.com/maesh/provider-ichor/internal/controller/lagging"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/machineconfig"
	"github.com/maesh/provider-ichor/internal/talos"
)

// testBundle is made once: its keys take a while.
var testBundle = sync.OnceValues(func() (*machineconfig.Bundle, error) { return machineconfig.NewBundle("v1.13.9") })

// newConfigured returns a bench whose machines run what is declared.
func newConfigured(t *testing.T, controlPlanes, workers []string) *bench {
	t.Helper()
	b := newBench(t, len(controlPlanes), controlPlanes, workers)
	var err error
	b.bundle, err = testBundle()
	b.must(err)
	for _, x := range b.boxes {
		x.active = b.rendered(x.name)
		x.persistent = x.active
	}
	return b
}

// rendered is the configuration that is declared for a machine.
func (b *bench) rendered(name string) []byte {
	b.t.Helper()
	m := b.get(name)
	e, err := b.conn.open(context.Background(), m)
	b.must(err)
	config, err := e.render(context.Background(), m, facts.Of("v1.13.9"))
	b.must(err)
	return config
}

// newBlank returns a bench with one blank worker that is declared and approved, and never was configured.
func newBlank(t *testing.T) (*bench, *box) {
	t.Helper()
	b := newConfigured(t, four[:1], []string{"w-1"})
	x := b.box("w-1")
	x.active, x.persistent, x.stage = nil, nil, "maintenance"
	b.must(b.kube.CoreV1().Nodes().Delete(context.Background(), "w-1", metav1.DeleteOptions{}))
	b.change("w-1", func(m *v1alpha1.TalosMachine) {
		meta.RemoveAnnotations(m, meta.AnnotationKeyExternalName)
		m.SetFinalizers(nil)
	})
	return b, x
}

func (b *bench) condition(name string, t xpv2.ConditionType) xpv2.Condition {
	b.t.Helper()
	return b.get(name).GetCondition(t)
}

func (b *bench) wantReason(name string, t xpv2.ConditionType, s corev1.ConditionStatus, r xpv2.ConditionReason) {
	b.t.Helper()
	if c := b.condition(name, t); c.Status != s || c.Reason != r {
		b.t.Errorf("%s: condition %s is %s/%s (%s), want %s/%s", name, t, c.Status, c.Reason, c.Message, s, r)
	}
}

func TestBlankMachineIsConfiguredOnce(t *testing.T) {
	b, x := newBlank(t)
	want := b.rendered("w-1")
	for range 4 {
		b.pass("w-1")
	}
	if diff := cmp.Diff([]string{"w-1: ApplyConfig(1)"}, b.sent()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if diff := cmp.Diff(string(want), string(x.active)); diff != "" {
		t.Errorf("what the machine got: -want, +got:\n%s", diff)
	}
	m := b.get("w-1")
	if got := meta.GetExternalName(m); got != x.uuid {
		t.Errorf("the UUID is not pinned: %q", got)
	}
	if !meta.FinalizerExists(m, v1alpha1.FinalizerMachine) || len(m.GetFinalizers()) != 1 {
		t.Errorf("finalizers: %q, want ours alone", m.GetFinalizers())
	}
	b.wantReason("w-1", v1alpha1.TypeConfigApplied, corev1.ConditionTrue, v1alpha1.ReasonInSync)
	b.wantReason("w-1", xpv2.TypeReady, corev1.ConditionTrue, xpv2.ReasonAvailable)
	if at := m.Status.AtProvider; at.UUID != x.uuid || at.Stage != "running" || at.TalosVersion != "v1.13.9" || at.BootID == "" {
		t.Errorf("what was observed is not shown: %+v", at)
	}
}

// TestConfiguringSurvivesCrashes ends the process after each write of a first configuration.
func TestConfiguringSurvivesCrashes(t *testing.T) {
	b, _ := newBlank(t)
	for range 4 {
		b.pass("w-1")
	}
	for k := 1; k <= len(b.written()); k++ {
		for how, damage := range damages {
			t.Run(fmt.Sprintf("%sAfterWrite%d", how, k), func(t *testing.T) {
				c, x := newBlank(t)
				c.dieAt, c.onDeath = k, func() { damage(c, "w-1") }
				for range 16 {
					c.pass("w-1")
					if c.dead {
						c.start()
					}
				}
				if got := meta.GetExternalName(c.get("w-1")); got != x.uuid {
					t.Errorf("the UUID is not pinned: %q", got)
				}
				if n := count(c.sent(), "ApplyConfig(1)"); n != 1 {
					t.Errorf("the first configuration was sent %d times: %q", n, c.sent())
				}
				c.wantReason("w-1", xpv2.TypeReady, corev1.ConditionTrue, xpv2.ReasonAvailable)
			})
		}
	}
}

func TestNothingIsSent(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(b *bench, x *box)
		want   xpv2.ConditionReason
		on     xpv2.ConditionType
	}{
		"Unapproved": {
			reason: "Nothing is sent before a person approves.",
			change: func(b *bench, _ *box) {
				b.change("w-1", func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.Approved = false })
			},
			on: xpv2.TypeReady, want: v1alpha1.ReasonAwaitingApproval,
		},
		"OtherUUID": {
			reason: "Another machine than the pinned one answers.",
			change: func(b *bench, _ *box) {
				b.change("w-1", func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.UUID = "00000000-0000-4000-8000-00000000dead" })
			},
			on: v1alpha1.TypeReachable, want: v1alpha1.ReasonIdentityMismatch,
		},
		"SameAddress": {
			reason: "The machine is declared twice.",
			change: func(b *bench, x *box) {
				twin := b.get("w-1").DeepCopy()
				twin.ObjectMeta = metav1.ObjectMeta{Namespace: "other", Name: "twin", UID: "twin"}
				b.must(b.mgmt.Create(context.Background(), twin))
				b.forget()
			},
			on: v1alpha1.TypeReachable, want: v1alpha1.ReasonDuplicateUUID,
		},
		"SameHostname": {
			reason: "A machine that joins under the hostname of another takes its Node, and its place in etcd.",
			change: func(b *bench, _ *box) {
				b.change("w-1", func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.Hostname = "cp-1" })
			},
			on: xpv2.TypeReady, want: xpv2.ReasonUnavailable,
		},
		"Foreign": {
			reason: "A machine of another cluster answers.",
			change: func(_ *bench, x *box) { x.foreign, x.active = true, []byte("theirs") },
			on:     v1alpha1.TypeReachable, want: v1alpha1.ReasonForeignCluster,
		},
		"Unreachable": {
			reason: "Nothing answers.",
			change: func(_ *bench, x *box) { x.unreachable = true },
			on:     v1alpha1.TypeReachable, want: v1alpha1.ReasonUnreachable,
		},
		"ClusterDeleted": {
			reason: "The cluster goes.",
			change: func(b *bench, _ *box) {
				c := &v1alpha1.TalosCluster{}
				b.must(b.mgmt.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: clusterName}, c))
				b.must(b.mgmt.Delete(context.Background(), c))
				b.forget()
			},
			on: xpv2.TypeReady, want: v1alpha1.ReasonAwaitingCluster,
		},
		"Removed": {
			reason: "A machine whose removal was completed is never configured again.",
			change: func(b *bench, x *box) {
				b.annotate("w-1", v1alpha1.AnnotationRemovalRecord, fmt.Sprintf(`{"uuid":%q,"completed":true}`, x.uuid))
			},
			on: v1alpha1.TypeRemoval, want: v1alpha1.ReasonRemoved,
		},
		"NoPKI": {
			reason: "The cluster has no PKI yet.",
			change: func(b *bench, _ *box) {
				b.conn.knock = func(context.Context, *v1alpha1.TalosCluster, bool) (Doors, error) {
					return nil, &connect.NotReadyError{Cluster: clusterName, Message: "its PKI does not exist"}
				}
			},
			on: xpv2.TypeReady, want: v1alpha1.ReasonAwaitingCluster,
		},
		"BadPatch": {
			reason: "What cannot be rendered is not sent.",
			change: func(b *bench, _ *box) {
				b.change("w-1", func(m *v1alpha1.TalosMachine) {
					m.Spec.ForProvider.ConfigPatches = []v1alpha1.ConfigPatch{{Inline: "machine: [not a map]"}}
				})
			},
			on: xpv2.TypeSynced, want: xpv2.ReasonReconcileError,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b, x := newBlank(t)
			tc.change(b, x)
			for range 3 {
				b.pass("w-1")
			}
			if sent := b.sent(); len(sent) > 0 {
				t.Errorf("\n%s\nit was sent: %q", tc.reason, sent)
			}
			if c := b.condition("w-1", tc.on); c.Reason != tc.want {
				t.Errorf("\n%s\ncondition %s has reason %q, want %q: %s", tc.reason, tc.on, c.Reason, tc.want, c.Message)
			}
		})
	}
}

// TestCreateOpensThePinnedMachine: the first configuration holds the keys of the cluster, so that nobody but the machine with
// the declared fingerprint may get it.
func TestCreateOpensThePinnedMachine(t *testing.T) {
	b, _ := newBlank(t)
	b.change("w-1", func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.MaintenanceFingerprint = "the-pin" })
	b.passUntil("w-1", func() bool { return len(b.sent()) > 0 })
	if b.pin != "the-pin" {
		t.Errorf("it was opened with fingerprint %q", b.pin)
	}
}

func TestCreatePinsTheUUID(t *testing.T) {
	b, x := newBlank(t)
	ctx, m := context.Background(), b.get("w-1")
	e, err := b.conn.open(ctx, m)
	b.must(err)
	if _, err := e.Observe(ctx, m); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Create(ctx, m); err != nil {
		t.Fatal(err)
	}
	if got := meta.GetExternalName(m); got != x.uuid {
		t.Errorf("Create pinned %q, want %q", got, x.uuid)
	}
}

// TestStaleCacheConfiguresNothing has the process believe what was true before a person changed their mind.
func TestStaleCacheConfiguresNothing(t *testing.T) {
	cases := map[string]func(b *bench){
		"Deleted": func(b *bench) {
			b.change("w-1", func(m *v1alpha1.TalosMachine) { m.SetFinalizers([]string{v1alpha1.FinalizerMachine}) })
			b.must(b.mgmt.Delete(context.Background(), b.get("w-1")))
		},
		"Removed": func(b *bench) { b.annotate("w-1", v1alpha1.AnnotationRemovalRecord, `{"uuid":"x","completed":true}`) },
		"Unapproved": func(b *bench) {
			b.change("w-1", func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.Approved = false })
		},
		"Recreated": func(b *bench) {
			another := b.get("w-1").DeepCopy()
			b.must(b.mgmt.Delete(context.Background(), b.get("w-1")))
			another.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: "w-1", UID: "another"}
			b.must(b.mgmt.Create(context.Background(), another))
		},
		"Twin": func(b *bench) {
			twin := b.get("w-1").DeepCopy()
			twin.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: "twin", UID: "twin"}
			b.must(b.mgmt.Create(context.Background(), twin))
		},
		"Namesake": func(b *bench) {
			other := b.get("w-1").DeepCopy()
			other.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: "w-2", UID: "w-2"}
			other.Spec.ForProvider.Address, other.Spec.ForProvider.UUID, other.Spec.ForProvider.Hostname = "192.0.2.99", "", "w-1"
			other.Status = v1alpha1.TalosMachineStatus{}
			b.must(b.mgmt.Create(context.Background(), other))
		},
		"ClusterDeleted": func(b *bench) {
			c := &v1alpha1.TalosCluster{}
			b.must(b.mgmt.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: clusterName}, c))
			b.must(b.mgmt.Delete(context.Background(), c))
		},
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			b, _ := newBlank(t)
			ctx, stale := context.Background(), b.get("w-1")
			e, err := b.conn.open(ctx, stale)
			b.must(err)
			o, err := e.Observe(ctx, stale)
			if err != nil || o.ResourceExists {
				t.Fatalf("Observe: %+v, %v", o, err)
			}
			e.kube = lagging.New(b.mgmt, b.history, b.history.Writes(), &v1alpha1.TalosMachine{}, &v1alpha1.TalosCluster{})
			change(b)
			b.forget()
			if _, err := e.Create(ctx, stale); err == nil {
				t.Error("Create went on with what was true before")
			}
			if sent := b.sent(); len(sent) > 0 {
				t.Errorf("it was sent: %q", sent)
			}
		})
	}
}

func TestObserveChangesNothing(t *testing.T) {
	b := newConfigured(t, four[:3], []string{"w-1"})
	b.box("w-1").active = []byte(strings.Replace(string(b.box("w-1").active), "w-1", "w-one", 1))
	ctx := context.Background()
	for _, name := range []string{"cp-1", "w-1"} {
		m := b.get(name)
		e, err := b.conn.open(ctx, m)
		b.must(err)
		if _, err := e.Observe(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.written()) > 0 {
		t.Errorf("Observe wrote: %q", b.written())
	}
}

func TestUnreachableIsAnError(t *testing.T) {
	b := newConfigured(t, four[:3], nil)
	b.box("cp-3").unreachable = true
	m := b.get("cp-3")
	e, err := b.conn.open(context.Background(), m)
	b.must(err)
	if o, err := e.Observe(context.Background(), m); err == nil {
		t.Errorf("a machine that does not answer was observed as %+v", o)
	} else if talos.ClassOf(err) != talos.Unreachable {
		t.Errorf("the class of %v was lost on the way", err)
	}
	b.pass("cp-3")
	b.wantReason("cp-3", v1alpha1.TypeReachable, corev1.ConditionFalse, v1alpha1.ReasonUnreachable)
	b.wantReason("cp-3", xpv2.TypeReady, corev1.ConditionFalse, xpv2.ReasonUnavailable)
}

// TestUnreachableMachineTellsWhetherItCanBeRemoved has a machine die: the very one that people want to remove. What a removal
// would be told is then decided by the others, and must not stay what it was while the machine lived.
func TestUnreachableMachineTellsWhetherItCanBeRemoved(t *testing.T) {
	b := newConfigured(t, four, nil)
	b.declareFewer()
	b.pass("cp-4")
	b.wantReason("cp-4", v1alpha1.TypeRemovable, corev1.ConditionFalse, v1alpha1.ReasonNotAllowed)
	b.box("cp-4").unreachable = true
	b.annotate("cp-4", v1alpha1.AnnotationAllowDelete, "true")
	b.pass("cp-4")
	b.wantReason("cp-4", v1alpha1.TypeRemovable, corev1.ConditionTrue, v1alpha1.ReasonRemovable)
	b.box("cp-1").unreachable = true
	b.pass("cp-4")
	b.wantReason("cp-4", v1alpha1.TypeRemovable, corev1.ConditionFalse, v1alpha1.ReasonNoLeader)
}

func TestAdopt(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(b *bench, x *box)
		late   bool
	}{
		"ByConfig": {reason: "The configuration names cluster, role and hostname.", change: func(*bench, *box) {}, late: true},
		"ByUUID": {
			reason: "The pinned machine proves itself, whatever its configuration is called.",
			change: func(b *bench, x *box) {
				b.change("w-1", func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.UUID = strings.ToUpper(x.uuid) })
				x.active = []byte(strings.ReplaceAll(string(x.active), "w-1", "old-name"))
			},
			late: true,
		},
		"OtherHostname": {
			reason: "Another machine of the cluster has the address.",
			change: func(_ *bench, x *box) { x.active = []byte(strings.ReplaceAll(string(x.active), "w-1", "w-2")) },
		},
		"OtherRole": {
			reason: "A machine of the other role has the address.",
			change: func(_ *bench, x *box) {
				x.active = []byte(strings.Replace(string(x.active), "type: worker", "type: controlplane", 1))
			},
		},
		"Secretive": {reason: "What it runs is not known.", change: func(_ *bench, x *box) { x.secretive = true }},
		"NoBundle":  {reason: "Whose configuration it has cannot be told.", change: func(b *bench, _ *box) { b.bundle = nil }},
		"OtherCluster": {
			reason: "A machine of another cluster that shares the PKI has the address.",
			change: func(b *bench, x *box) {
				x.active = []byte(strings.ReplaceAll(string(x.active), b.bundle.ClusterID(), "b3RoZXI="))
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newConfigured(t, four[:1], []string{"w-1"})
			x := b.box("w-1")
			b.change("w-1", func(m *v1alpha1.TalosMachine) { meta.RemoveAnnotations(m, meta.AnnotationKeyExternalName) })
			tc.change(b, x)
			for range 3 {
				b.pass("w-1")
			}
			if adopted := meta.GetExternalName(b.get("w-1")) == x.uuid; adopted != tc.late {
				t.Errorf("\n%s\nadopted: %t, want %t", tc.reason, adopted, tc.late)
			}
			if !tc.late {
				b.wantReason("w-1", v1alpha1.TypeReachable, corev1.ConditionFalse, v1alpha1.ReasonForeignCluster)
				if sent := b.sent(); len(sent) > 0 {
					t.Errorf("\n%s\nit was sent: %q", tc.reason, sent)
				}
			}
		})
	}
}

func TestBlankControlPlaneWithAMemberIsNotConfigured(t *testing.T) {
	b := newConfigured(t, four[:3], nil)
	b.pass("cp-3") // its member is seen
	x := b.box("cp-3")
	x.active, x.persistent, x.stage = nil, nil, "maintenance"
	b.pass("cp-3")
	b.pass("cp-3")
	if sent := b.sent(); len(sent) > 0 {
		t.Errorf("Talos would replace the member past every guard, and it was sent: %q", sent)
	}
	if c := b.condition("cp-3", xpv2.TypeReady); !strings.Contains(c.Message, "etcd still lists its member") {
		t.Errorf("the condition does not say why: %+v", c)
	}
}

func TestSecretPatch(t *testing.T) {
	b := newConfigured(t, four[:1], []string{"w-1"})
	b.change("w-1", func(m *v1alpha1.TalosMachine) {
		m.Spec.ForProvider.ConfigPatches = []v1alpha1.ConfigPatch{{SecretKeyRef: &xpv2.LocalSecretKeySelector{LocalSecretReference: xpv2.LocalSecretReference{Name: "patch"}, Key: "p"}}}
	})
	b.pass("w-1")
	if c := b.condition("w-1", xpv2.TypeSynced); !strings.Contains(c.Message, "spec.forProvider.configPatches[0]") {
		t.Errorf("the error does not name the patch: %+v", c)
	}
	const secret = "s3cr3t-value"
	b.must(b.mgmt.Create(context.Background(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "patch"},
		Data:       map[string][]byte{"p": []byte("machine:\n  registries:\n    config:\n      r.example.org:\n        auth:\n          password: " + secret)},
	}))
	m := b.get("w-1")
	e, err := b.conn.open(context.Background(), m)
	b.must(err)
	if _, err := e.Observe(context.Background(), m); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(e.seen.desired), secret) {
		t.Error("the patch was not applied")
	}
	if shown := fmt.Sprintf("%+v", m.Status); strings.Contains(shown, secret) || m.Status.AtProvider.Config.Diff == "" {
		t.Errorf("the difference is not shown, or the secret is: %s", shown)
	}
}

func TestChangeWithoutReboot(t *testing.T) {
	b := newConfigured(t, four[:1], []string{"w-1"})
	b.change("w-1", func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.Node.Labels = map[string]string{"rack": "r1"} })
	for range 3 {
		b.pass("w-1")
	}
	if diff := cmp.Diff([]string{"w-1: ApplyConfig(2)"}, b.sent()); diff != "" {
		t.Errorf("a change without a reboot: -want, +got:\n%s", diff)
	}
	b.wantReason("w-1", v1alpha1.TypeConfigApplied, corev1.ConditionTrue, v1alpha1.ReasonInSync)
}

func TestRejectedChangeIsShown(t *testing.T) {
	b := newConfigured(t, four[:1], []string{"w-1"})
	b.box("w-1").fault = func(string) (bool, error) {
		return false, &talos.Error{Op: "apply the machine configuration", Address: "x", Class: talos.Rejected, Err: errors.New("no such disk")}
	}
	b.change("w-1", func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.Node.Labels = map[string]string{"rack": "r1"} })
	b.pass("w-1")
	b.wantReason("w-1", v1alpha1.TypeConfigApplied, corev1.ConditionFalse, v1alpha1.ReasonConfigRejected)
	if c := b.condition("w-1", v1alpha1.TypeConfigApplied); !strings.Contains(c.Message, "no such disk") {
		t.Errorf("the condition does not say why: %+v", c)
	}
}
