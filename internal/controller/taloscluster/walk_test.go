package taloscluster

import (
	"context"
	"fmt"
	"testing"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/connect"
)

// importedCluster is a cluster whose PKI is imported: making keys anew for each crash point would take minutes.
func importedCluster() *v1alpha1.TalosCluster { return newCluster(importing("import")) }

// TestWalk brings a cluster up, one pass per line.
func TestWalk(t *testing.T) {
	data, id := bundle(t, 0)
	w := newWorld(t, importedCluster())
	if err := w.api.Create(context.Background(), secret("import", "secrets.yaml", data)); err != nil {
		t.Fatalf("cannot create the bundle to import: %v", err)
	}
	r := w.reconciler()
	step := func(what string, check func(c *v1alpha1.TalosCluster) string) {
		t.Helper()
		if _, err := w.pass(r); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if problem := check(w.cluster(context.Background())); problem != "" {
			t.Fatalf("%s: %s", what, problem)
		}
	}
	w.machines[2].known = false // It does not answer, so it may have etcd data.

	step("the PKI is made", func(c *v1alpha1.TalosCluster) string {
		return differs("external name", id, c.GetAnnotations()["crossplane.io/external-name"])
	})
	step("one that does not answer stops the bootstrap, and credentials are issued meanwhile", func(c *v1alpha1.TalosCluster) string {
		return differs("Ready", v1alpha1.ReasonAwaitingControlPlanes, c.GetCondition(xpv2.TypeReady).Reason)
	})
	step("nothing more is done", func(c *v1alpha1.TalosCluster) string {
		return differs("bootstrapped", "", c.GetAnnotations()[v1alpha1.AnnotationBootstrapped])
	})
	w.machines[2].known = true
	step("the machine is written down", func(c *v1alpha1.TalosCluster) string {
		if c.GetAnnotations()[v1alpha1.AnnotationBootstrapped] == "" {
			return "no machine was written down"
		}
		return differs("Bootstrap calls", 0, w.allSends())
	})
	step("Bootstrap is sent", func(c *v1alpha1.TalosCluster) string {
		return differs("Bootstrap calls", 1, w.allSends()) + differs("Ready", v1alpha1.ReasonBootstrapping, c.GetCondition(xpv2.TypeReady).Reason)
	})
	step("one voter of three is not ready", func(c *v1alpha1.TalosCluster) string {
		return differs("Ready", v1alpha1.ReasonAwaitingMembers, c.GetCondition(xpv2.TypeReady).Reason)
	})
	w.join()
	step("three voters are", func(c *v1alpha1.TalosCluster) string {
		return differs("Ready", corev1.ConditionTrue, c.GetCondition(xpv2.TypeReady).Status) +
			differs("EtcdHealthy", v1alpha1.ReasonEtcdAllHealthy, c.GetCondition(v1alpha1.TypeEtcdHealthy).Reason) +
			differs("Transitioning", v1alpha1.ReasonStableControlPlaneCount, c.GetCondition(v1alpha1.TypeTransitioning).Reason) +
			differs("counts", v1alpha1.ControlPlaneCounts{Declared: 3, Approved: 3, Voters: 3, HealthyVoters: 3}, c.Status.AtProvider.ControlPlanes)
	})
	before := len(w.api.log)
	step("nothing is left to do", func(*v1alpha1.TalosCluster) string { return differs("Bootstrap calls", 1, w.allSends()) })
	for _, line := range w.api.log[before:] {
		if line != "update-status *v1alpha1.TalosCluster/prod" {
			t.Errorf("an unchanged cluster was written to: %s", line)
		}
	}
}

// TestCrashAtEveryEffect kills the process before and after each of its effects while it brings a cluster up, and lets
// another one go on. Whenever it dies, there is one PKI, Bootstrap reaches one machine only, and the cluster comes up.
func TestCrashAtEveryEffect(t *testing.T) {
	data, _ := bundle(t, 0)
	all := 1 // Known after the first walk, which never crashes.
	for k := -1; k < all; k++ {
		for _, after := range []bool{false, true} {
			for how, damage := range damages {
				t.Run(fmt.Sprintf("%sEffect%dAfter%t", how, k, after), func(t *testing.T) {
					w := newWorld(t, importedCluster())
					if err := w.api.Create(context.Background(), secret("import", "secrets.yaml", data)); err != nil {
						t.Fatalf("cannot create the bundle to import: %v", err)
					}
					w.effects = 0
					w.crash = func(n int, a bool) error {
						if n == k && a == after {
							return errCrash
						}
						return nil
					}
					w.converge(damage)
					if k < 0 {
						all = max(all, w.effects)
					}
					if n := len(w.sends); n != 1 {
						t.Errorf("Bootstrap reached %d machines (%v), want one", n, w.sends)
					}
					if diff := cmp.Diff(data, secretData(t, w.api, connect.PKISecretName(testCluster))[connect.PKISecretKey]); diff != "" {
						t.Errorf("the PKI is not the one that was imported")
					}
				})
			}
		}
	}
	if all < 10 {
		t.Errorf("only %d effects were counted: the walk was not a whole one", all)
	}
}

// damages are what may go wrong besides, when the process ends.
var damages = map[string]func(w *world){
	"Nothing": func(*world) {},
	// A management cluster that is restored from a backup has lost the status of everything.
	"StatusLost": func(w *world) {
		c := w.cluster(context.Background())
		c.Status = v1alpha1.TalosClusterStatus{}
		if err := w.api.Status().Update(context.Background(), c); err != nil {
			w.t.Fatalf("cannot take the status away: %v", err)
		}
	},
	"LockLost": func(w *world) {
		if err := w.api.DeleteAllOf(context.Background(), &coordinationv1.Lease{}, client.InNamespace(testNamespace)); err != nil {
			w.t.Fatalf("cannot take the lock away: %v", err)
		}
	},
	// Two providers that both think that they lead, as after a lease that expired under one that was paused.
	"SecondReplica": func(w *world) { w.twin = w.reconciler() },
	// A cache that is filled from an API server that lags behind shows each object as it was before its last write.
	"CacheBehind": func(w *world) { w.behind = true },
}

// converge runs passes, with a new process after each crash and the damage done, until the cluster is ready and nothing is left
// to do.
func (w *world) converge(damage func(*world)) {
	w.t.Helper()
	r := w.reconciler()
	for range 40 {
		_, _ = w.pass(r) // What failed is tried again.
		if w.dead {
			w.crash, w.dead = nil, false
			damage(w)
			r = w.reconciler()
			continue
		}
		if w.allSends() > 0 {
			w.join()
		}
		if w.settled(r) {
			return
		}
	}
	c := w.cluster(context.Background())
	w.t.Fatalf("the cluster never settled: %+v", c.Status.Conditions)
}

// settled tells whether the cluster is ready, the lock is free, and another pass changes nothing.
func (w *world) settled(r reconcile.Reconciler) bool {
	c := w.cluster(context.Background())
	if c.GetCondition(xpv2.TypeReady).Status != corev1.ConditionTrue || len(secretData(w.t, w.api, "prod-connection")) == 0 {
		return false
	}
	before := len(w.api.log)
	if _, err := w.pass(r); err != nil || c.Status.AtProvider.Disruption != nil {
		return false
	}
	status := 1 // Each process writes it.
	if w.twin != nil {
		status++
	}
	return len(w.api.log)-before <= status
}

func (w *world) allSends() int {
	n := 0
	for _, sent := range w.sends {
		n += sent
	}
	return n
}

// differs says what differs, or nothing.
func differs(what string, want, got any) string {
	if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(got)); diff != "" {
		return fmt.Sprintf("%s: want %v, got %v. ", what, want, got)
	}
	return ""
}
