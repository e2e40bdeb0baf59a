package accidents

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// fourth is a control plane beyond those that are declared, which may go.
const fourth = "cp-4"

// unreachableMachine: a control plane dies. Its object says so; it is deleted, and waits; its member is taken out of etcd
// once somebody decides so, and the object stays. Its machine comes back with the old data, and is reset before the object goes.
func (w *world) unreachableMachine(s *transcript) {
	m, voters := w.fourthControlPlane(), w.members("m1")
	s.describes("Ready", fourth)
	w.fleet.Machine("m5").PowerOff()
	o := w.watch()
	w.awaitMessage(m, ns, fourth, v1alpha1.TypeReachable, "connection refused")
	w.await("its member is known to be down", func() error {
		if w.find(m, ns, fourth); m.Status.AtProvider.Etcd.Healthy != "unknown" {
			return fmt.Errorf("it is %+v", m.Status.AtProvider.Etcd)
		}
		return nil
	})
	s.describes("Its machine is dead", fourth)

	w.removeDead(m)
	w.awaitReason(m, ns, fourth, v1alpha1.TypeRemoval, v1alpha1.ReasonMachineUnreachable)
	w.unharmed(o, voters)
	s.describes("Deleted, with the policy Wait", fourth)

	w.outOfTheCluster(m, o)
	s.describes("Deleted, with the policy RemoveMember", fourth)

	w.fleet.Machine("m5").PowerOn() // With its configuration and the data of a member that is gone.
	w.awaitGone(m, ns, fourth)
	o.expect("m1 EtcdRemoveMemberByID", "m5 Reset")
	if b := w.fleet.Machine("m5"); b.Stage() != "maintenance" || b.HasPartition("STATE") || b.HasPartition("EPHEMERAL") {
		w.t.Errorf("the object is gone, and its machine is in stage %q with its disk not wiped", b.Stage())
	}
}

// diskThatIsNotWiped: the same, and the machine never comes back while its object is there. A person accepts in writing that
// its disk was not wiped: of another machine first, which changes nothing. What comes back then is nobody's machine: it is
// declared again, and not adopted.
func (w *world) diskThatIsNotWiped(s *transcript) {
	m := w.fourthControlPlane()
	w.fleet.Machine("m5").PowerOff()
	w.awaitMessage(m, ns, fourth, v1alpha1.TypeReachable, "connection refused")
	o := w.watch()
	w.removeDead(m)
	w.outOfTheCluster(m, o)
	w.accept(m, uuid(1))
	o.nothingBut("m1", "m1 EtcdRemoveMemberByID")
	w.find(m, ns, fourth)
	w.keepsFinalizer(m)
	s.describes("Accepted for another machine", fourth)
	w.accept(m, uuid(5))
	w.awaitGone(m, ns, fourth)
	left := w.members("m1")

	w.fleet.Machine("m5").PowerOn()
	w.apply(machineManifest(ns, cluster, fourth, "controlplane", 5))
	// Its boot waits for its etcd, and etcd wants it no more.
	w.awaitReason(m, ns, fourth, v1alpha1.TypeReachable, v1alpha1.ReasonAnswering)
	w.awaitReason(m, ns, fourth, xpv2.TypeReady, v1alpha1.ReasonBooting)
	w.clock.step(6 * time.Minute) // It may have waited for something else until then.
	w.awaitMessage(m, ns, fourth, xpv2.TypeReady, "data of a member that was removed")
	w.unharmed(w.watch(), left)
	o.expect("m1 EtcdRemoveMemberByID")
	s.condition("TalosMachine cp-4, declared anew, with old data", m, xpv2.TypeReady)
	s.condition("TalosMachine cp-4, declared anew, with old data", m, v1alpha1.TypeRemovable)
	w.removeDead(m)
	w.awaitGone(m, ns, fourth)
	o.expect("m1 EtcdRemoveMemberByID", "m5 Reset")
}

// fourthControlPlane declares it, and waits until it votes and that is known.
func (w *world) fourthControlPlane() *v1alpha1.TalosMachine {
	w.t.Helper()
	w.apply(machineManifest(ns, cluster, fourth, "controlplane", 5))
	m := &v1alpha1.TalosMachine{}
	w.await(fourth+" votes", func() error {
		if !w.find(m, ns, fourth) || m.GetCondition(xpv2.TypeReady).Reason != xpv2.ReasonAvailable {
			return errors.New(conditionsOf(m))
		}
		if e := m.Status.AtProvider.Etcd; e == nil || e.State != "voter" || e.Healthy != "yes" {
			return fmt.Errorf("etcd of it is %+v", e)
		}
		return nil
	})
	return m
}

func (w *world) removeDead(m *v1alpha1.TalosMachine) {
	w.t.Helper()
	w.change(m, ns, fourth, func() { meta.AddAnnotations(m, map[string]string{v1alpha1.AnnotationAllowDelete: "true"}) })
	w.must(w.Delete(w.ctx, m))
}

// outOfTheCluster has the member removed through a peer, and waits until all is done that can be done without the machine.
func (w *world) outOfTheCluster(m *v1alpha1.TalosMachine, o observer) {
	w.t.Helper()
	before := len(w.members("m1"))
	w.change(m, ns, fourth, func() { m.Spec.ForProvider.Unreachable.Policy = v1alpha1.UnreachableRemoveMember })
	w.awaitReason(m, ns, fourth, v1alpha1.TypeRemoval, v1alpha1.ReasonDiskNotWiped)
	if n := len(w.members("m1")); n != before-1 {
		w.t.Errorf("etcd had %d members and has %d", before, n)
	}
	if _, err := w.kubernetes().CoreV1().Nodes().Get(w.ctx, m.Status.AtProvider.NodeName, metav1.GetOptions{}); !kerrors.IsNotFound(err) {
		w.t.Errorf("the Node is not gone: %v", err)
	}
	w.keepsFinalizer(m)
	o.expect("m1 EtcdRemoveMemberByID")
}

func (w *world) accept(m *v1alpha1.TalosMachine, of string) {
	w.t.Helper()
	w.change(m, ns, fourth, func() { meta.AddAnnotations(m, map[string]string{v1alpha1.AnnotationAcceptUnwipedDisk: of}) })
}

// own are what kubectl describe shows that differs from run to run, or that only the machinery reads.
var own = []struct {
	re *regexp.Regexp
	by string
}{
	{regexp.MustCompile(`(?m)^ *(UID|Resource Version|Generation|Observed Generation|Last Transition Time|Creation Timestamp|Deletion Timestamp|Deletion Grace Period Seconds|Since|Boot Id|crossplane\.io/external-create-[a-z]+):.*\n`), ""},
	{regexp.MustCompile(`\b[0-9a-f]{13,16}\b`), "<member>"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "<hash>"},
	{regexp.MustCompile(`"bootID":"[^"]*"`), `"bootID":"<boot>"`},
}

// describes notes what kubectl describe shows of a machine, but for Events: how many of those there are is a matter of time.
func (t *transcript) describes(when, name string) {
	w := t.w
	w.t.Helper()
	out, err := w.kubectl("", "describe", "talosmachine", name, "-n", ns)
	if err != nil {
		w.t.Fatal(out)
	}
	out, _, _ = strings.Cut(out, "\nEvents:")
	for _, o := range own {
		out = o.re.ReplaceAllString(out, o.by)
	}
	t.says(when, out)
}
