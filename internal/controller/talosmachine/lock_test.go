package talosmachine

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/clusterlock"
)

var rewrite = flag.Bool("rewrite", false, "write what is told now into testdata, to be reviewed as prose")

const (
	// outage is how long an API server is away: longer than a lock lives.
	outage = 10 * time.Minute
	// deadline is by when whoever could not renew a lock has stopped, before anybody else may take it: after four minutes,
	// and before five.
	deadline = 4*time.Minute + 30*time.Second
)

var errDown = errors.New("connection refused")

// A siege is a cluster of five control planes and a worker: cp-4 is being removed, cp-5 and w-1 wait for that. All that they
// say is written down.
type siege struct {
	*bench
	told *strings.Builder
}

// TestLockUnderFire takes the lock of a removal away in every way, and an API server down for longer than a lock lives. No
// other machine is disturbed meanwhile, the removal ends, and what everybody says is held against testdata/lock.txt.
func TestLockUnderFire(t *testing.T) {
	var told strings.Builder
	for _, s := range []struct {
		name string
		run  func(siege)
		left int // how often cp-4 is sent a leave
	}{
		{"ManagementDownInADrain", managementDownInADrain, 1},
		{"ManagementDownInALeave", func(s siege) { managementDownInALeave(s, false) }, 2},
		{"ManagementDownInALeaveThatHappens", func(s siege) { managementDownInALeave(s, true) }, 1},
		{"KubernetesDownInADrain", kubernetesDownInADrain, 1},
		{"KubernetesDownInALeave", kubernetesDownInALeave, 1},
		{"StolenInADrain", stolenInADrain, 1},
		{"StolenInALeave", stolenInALeave, 1},
		{"StolenForGood", stolenForGood, 1},
		{"DeletedByHandAfterTheLeave", deletedByHandAfterTheLeave, 1},
		{"LostBetweenLookAndCall", lostBetweenLookAndCall, 1},
	} {
		t.Run(s.name, func(t *testing.T) {
			b := siege{bench: newBench(t, 3, []string{"cp-1", "cp-2", "cp-3", "cp-4", "cp-5"}, []string{"w-1"}), told: &told}
			fmt.Fprintf(&told, "# %s\n", s.name)
			s.run(b)
			b.finish()
			if n := b.leaves("cp-4"); n != s.left {
				b.violatedf("cp-4 was sent a leave %d times, want %d", n, s.left)
			}
		})
	}
	path := filepath.Join("testdata", "lock.txt")
	if *rewrite {
		if err := os.WriteFile(path, []byte(told.String()), 0o644); err != nil { //nolint:gosec // A text for everybody.
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), told.String()); diff != "" && !t.Failed() {
		t.Errorf("what people are told: -want, +got:\n%s", diff)
	}
}

// says writes down what the removals of machines say.
func (s siege) says(when string, machines ...string) {
	s.t.Helper()
	fmt.Fprintf(s.told, "%s:\n", when)
	for _, name := range machines {
		m := s.get(name)
		c := m.GetCondition(v1alpha1.TypeRemoval)
		if m.Status.AtProvider.Removal == nil {
			s.t.Fatalf("%s says nothing of its removal", name)
		}
		note := map[bool]string{true: " (past the point of no return)"}[m.Status.AtProvider.Removal.Irreversible]
		fmt.Fprintf(s.told, "  %s: %s %s%s\n    %s\n", name, c.Status, c.Reason, note, c.Message)
	}
	fmt.Fprintln(s.told)
}

// others are asked for as well, and look a few times. Nothing is done to them.
func (s siege) othersWait(when string) {
	s.t.Helper()
	if s.get("w-1").GetDeletionTimestamp() == nil {
		s.remove("cp-5")
		s.remove("w-1")
	}
	for range 3 {
		s.pass("cp-5")
		s.pass("w-1")
	}
	s.untouched("cp-5", "w-1")
	s.says(when, "cp-5", "w-1")
}

// untouched expects that nothing was done to those who wait.
func (s siege) untouched(names ...string) {
	s.t.Helper()
	for _, name := range names {
		if x := s.box(name); s.node(name).Spec.Unschedulable || x.stage != "running" || x.leaves > 0 {
			s.violatedf("%s waits and was disturbed", name)
		}
	}
}

// hold gets the removal of cp-4 to where it is drained, and keeps it there; letGo has it go on.
func (s siege) hold() {
	s.t.Helper()
	s.annotate("cp-4", v1alpha1.AnnotationHoldPrefix+"storage", "replicas move")
	s.remove("cp-4")
	s.passUntil("cp-4", func() bool { return s.removalReason("cp-4") == v1alpha1.ReasonHeld })
}

func (s siege) letGo() {
	s.t.Helper()
	s.change("cp-4", func(m *v1alpha1.TalosMachine) { meta.RemoveAnnotations(m, v1alpha1.AnnotationHoldPrefix+"storage") })
}

// drainsForLong gets the removal of cp-4 into a drain that does not end before the pod is gone that is returned.
func (s siege) drainsForLong() (end func()) {
	s.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "apps", Name: "slow", DeletionTimestamp: ptr.To(metav1.Now()), Finalizers: []string{"example.org/slow"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "slow", Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{NodeName: "cp-4"},
	}
	s.must(s.kube.Tracker().Add(pod))
	s.remove("cp-4")
	s.passUntil("cp-4", func() bool { return s.removalReason("cp-4") == v1alpha1.ReasonStepDrain })
	return func() {
		s.must(s.kube.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "apps", "slow"))
	}
}

// leavesForLong gets the removal of cp-4 into a leave that does not end by itself.
func (s siege) leavesForLong() *box {
	s.t.Helper()
	x := s.box("cp-4")
	x.leaving = make(chan struct{})
	s.remove("cp-4")
	s.passUntil("cp-4", func() bool { return s.background.Running("uid-cp-4") })
	// The leave, and both that watch over its lock: one that renews it, and one that ends the leave at the deadline.
	s.soon("cp-4 leaves", func() bool { return s.leaves("cp-4") == 1 && s.clock.Waiters() == 2 })
	return x
}

// down is an outage, in which everybody goes on looking.
func (s siege) down(management bool, d time.Duration) {
	s.t.Helper()
	set := func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if management {
			s.mgmtErr = err
		} else {
			s.kubeErr = err
		}
	}
	set(errDown)
	sent := len(s.sent())
	for spent := time.Duration(0); spent < d; spent += 3 * pass {
		for _, name := range []string{"cp-4", "cp-5", "w-1"} {
			s.pass(name)
		}
		if !management {
			s.soon("the lock is renewed", func() bool { return s.clock.Since(s.lease().Spec.RenewTime.Time) < time.Minute })
		}
	}
	if all := s.sent(); len(all) != sent {
		s.violatedf("in the outage was sent %q", all[sent:])
	}
	set(nil)
}

// finish lets all three go, whoever is asked first.
func (s siege) finish() {
	s.t.Helper()
	all := []string{"w-1", "cp-5", "cp-4"}
	for range 2 * maxPasses {
		for _, name := range all {
			if s.get(name) != nil {
				s.pass(name)
			}
		}
		if c := s.cordoned(); len(c) > 1 {
			s.violatedf("I3: more than one control plane is cordoned: %q", c)
		}
	}
	s.allRemoved(all...)
}

func managementDownInADrain(s siege) {
	end := s.drainsForLong()
	s.othersWait("while cp-4 is drained")
	s.down(true, outage)
	for range 3 { // The lock has expired, and a worker may go meanwhile; another control plane may not.
		s.pass("cp-5")
		s.pass("w-1")
	}
	s.untouched("cp-5")
	s.says("after ten minutes without the management cluster, before cp-4 is looked at", "cp-5", "w-1")
	s.pass("cp-4")
	s.says("then", "cp-4")
	end()
}

// managementDownInALeave: nobody can renew the lock, so the call is given up before another may take it. Whether the
// machine left all the same is for the others to say.
func managementDownInALeave(s siege, happens bool) {
	x := s.leavesForLong()
	x.leavesLate = happens
	s.othersWait("while cp-4 leaves etcd")
	s.down(true, deadline)
	s.quiet("cp-4", s.background) // Or this is a failure.
	if _, listed := s.members[x.member]; listed == happens {
		s.t.Fatalf("the leave has happened: %t", !listed)
	}
	x.leaving = nil
	s.down(true, outage-deadline)
	s.othersWait("after ten minutes without the management cluster, before cp-4 is looked at")
	s.pass("cp-4")
	s.says("then", "cp-4")
}

func kubernetesDownInADrain(s siege) {
	end := s.drainsForLong()
	s.othersWait("while cp-4 is drained")
	s.down(false, outage)
	s.says("after ten minutes without the cluster's Kubernetes API", "cp-4", "cp-5", "w-1")
	end()
}

func kubernetesDownInALeave(s siege) {
	x := s.leavesForLong()
	s.othersWait("while cp-4 leaves etcd")
	s.down(false, outage)
	s.says("after ten minutes without the cluster's Kubernetes API", "cp-4", "cp-5", "w-1")
	close(x.leaving)
	s.quiet("cp-4", s.background)
	x.leaving = nil
}

// lease of the cluster, to be created if it has no version yet.
func (s siege) lease() *coordinationv1.Lease {
	s.t.Helper()
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: clusterlock.LeaseName(clusterName)}}
	s.must(client.IgnoreNotFound(s.mgmt.Get(context.Background(), client.ObjectKeyFromObject(l), l)))
	return l
}

// steal writes another holder into the Lease, and nobody knows who that is. If it says that there is only forward, it keeps the
// lock for good.
func (s siege) steal(forGood bool) {
	s.t.Helper()
	ctx, l := context.Background(), s.lease()
	if l.ResourceVersion == "" {
		s.must(s.mgmt.Create(ctx, l))
	}
	l.Annotations, l.Spec.HolderIdentity = nil, ptr.To("somebody")
	if forGood {
		l.Annotations = map[string]string{"clusterlock.ichor.maesh.dev/irreversible": "true"}
	}
	s.must(s.mgmt.Update(ctx, l))
}

func stolenInADrain(s siege) {
	s.hold()
	s.steal(false)
	s.letGo()
	for range 4 {
		s.pass("cp-4")
	}
	s.othersWait("while somebody has the lock")
	s.says("and", "cp-4")
	if s.leaves("cp-4") > 0 {
		s.violatedf("I7: cp-4 was sent a leave without the lock")
	}
	s.clock.Step(outage)
}

// stolenInALeave: the call is given up at the next renewal, and nothing follows it.
func stolenInALeave(s siege) {
	x := s.leavesForLong()
	x.leavesLate = true
	s.steal(false)
	for range 6 { // A renewal is due each minute.
		s.pass("cp-4")
	}
	s.quiet("cp-4", s.background)
	x.leaving = nil
	s.othersWait("while somebody has the lock, and cp-4 has left etcd")
	sent := len(s.sent())
	for range 3 {
		s.pass("cp-4")
	}
	s.says("and", "cp-4")
	if all := s.sent(); len(all) != sent {
		s.violatedf("I7: without the lock was sent %q", all[sent:])
	}
	s.clock.Step(outage)
}

func deletedByHandAfterTheLeave(s siege) {
	s.remove("cp-4")
	s.passUntil("cp-4", func() bool { return count(s.sent(), "LeaveEtcd") > 0 })
	s.must(s.mgmt.DeleteAllOf(context.Background(), &coordinationv1.Lease{}, client.InNamespace(namespace)))
	s.remove("cp-5")
	for range 4 {
		s.pass("cp-5")
	}
	s.untouched("cp-5")
	s.says("the lock of a removal that is half done was deleted by hand", "cp-5")
	s.steal(false)
	s.pass("cp-4")
	s.says("and somebody takes it", "cp-4")
	s.remove("w-1")
	s.clock.Step(outage)
}

// lostBetweenLookAndCall: the lock is taken by somebody else while the survey is made.
func lostBetweenLookAndCall(s siege) {
	s.hold()
	s.letGo()
	s.remove("cp-5")
	s.remove("w-1")
	s.kube.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		s.steal(false)
		return false, nil, nil
	})
	s.pass("cp-4")
	s.kube.ReactionChain = slices.Delete(s.kube.ReactionChain, 0, 1)
	s.says("the lock is lost between look and call", "cp-4")
	if s.leaves("cp-4") > 0 {
		s.violatedf("I7: cp-4 was sent a leave without the lock")
	}
	s.pass("cp-4")
	s.says("and then", "cp-4")
	s.clock.Step(outage)
}

// stolenForGood: the thief says that there is only forward, so that the lock does not expire. A person does what is said.
func stolenForGood(s siege) {
	s.hold()
	s.steal(true)
	s.letGo()
	s.pass("cp-4")
	s.clock.Step(outage)
	s.pass("cp-4")
	s.othersWait("while somebody has the lock for good")
	s.says("and", "cp-4")
	s.loseLock()
}
