package etcdmember

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/types/known/emptypb"
)

func TestMembershipGrowsAndShrinks(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.bootstrapped("a")
	b := l.joined("b")
	c := l.joined("c")
	if got := a.names(); len(strings.Fields(got)) != 3 {
		t.Fatalf("members after two joins: %q", got)
	}
	d := l.joined("d")
	for _, n := range []*node{a, b, c, d} {
		for _, m := range n.members() {
			if m.GetIsLearner() || m.GetHostname() == "" || len(m.GetClientUrls()) != 1 {
				t.Errorf("%s tells of a member that is no started voter: %v", n.hostname, m)
			}
		}
		if got := len(n.members()); got != 4 {
			t.Errorf("%s tells of %d members, want 4", n.hostname, got)
		}
	}
	if _, err := d.EtcdLeaveCluster(l.within(patience), &machine.EtcdLeaveClusterRequest{}); err != nil {
		t.Fatalf("cannot leave: %v", err)
	}
	if got := strings.Fields(a.names()); len(got) != 3 || strings.Contains(a.names(), "d") {
		t.Errorf("members after d left: %q", got)
	}
	if got, want := d.Status(), (Status{State: StateFinished, LastMessage: "Service finished successfully"}); got != want {
		t.Errorf("status after leaving: %+v, want %+v", got, want)
	}
	if _, err := os.Stat(d.data()); !os.IsNotExist(err) {
		t.Errorf("data after leaving: %v, want none", err)
	}

	// A plain reboot makes it join again, as a new member.
	d.Stop()
	d.boot()
	d.Start()
	d.awaitVoter()
	if got := len(a.members()); got != 4 {
		t.Errorf("members after d rejoined: %d, want 4", got)
	}
}

func TestBootstrapNeedsEmptyData(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.bootstrapped("a")
	if err := a.Bootstrap(false, false); err == nil || err.Error() != "etcd data directory is not empty" {
		t.Errorf("second bootstrap: %v", err)
	}
}

func TestBootstrapOfTwoMachinesSplitsTheBrain(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	// Both wait for a cluster before either has one: that is when nothing guards against it.
	a, b := l.add("a"), l.add("b")
	a.fault(FaultJoinInterrupted, true)
	for _, n := range []*node{a, b} {
		n.Start()
		n.awaitState(StatePreparing)
	}
	for _, n := range []*node{a, b} {
		if err := n.Bootstrap(false, false); err != nil {
			t.Fatal(err)
		}
	}
	a.awaitVoter()
	b.awaitVoter()
	if a.names() != "a" || b.names() != "b" {
		t.Errorf("members: a tells %q, b tells %q", a.names(), b.names())
	}
	clusters := map[uint64]bool{}
	for _, n := range []*node{a, b} {
		st, err := n.client().Status(l.within(patience), clientURL(n.address))
		if err != nil {
			t.Fatal(err)
		}
		clusters[st.Header.ClusterId] = true
	}
	if len(clusters) != 2 {
		t.Errorf("both machines are of the same cluster")
	}
}

func TestBootstrapFailsAfterItsAnswer(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.add("a")
	a.fault(FaultBootstrapFails, true)
	a.Start()
	if err := a.Bootstrap(false, false); err != nil {
		t.Fatalf("bootstrap answers %v, want OK", err)
	}
	a.awaitState(StateFailed)
	if got := a.Status().LastMessage; !strings.HasPrefix(got, "Failed to run pre stage: ") {
		t.Errorf("message: %q", got)
	}
	a.fault(FaultBootstrapFails, false)
	if err := a.Bootstrap(false, false); err != nil {
		t.Fatal(err)
	}
	a.awaitVoter()
}

func TestStuckLearnerBlocksEveryOtherJoin(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.bootstrapped("a")
	b := l.add("b")
	b.fault(FaultNoPromote, true)
	b.Start()
	l.await("b is a running learner", func() bool { st := b.Status(); return st.State == StateRunning && st.Learner })
	st := b.Status()
	if st.Healthy || st.MemberID != 0 || st.LastMessage != "Health check failed: etcdserver: rpc not supported for learner" {
		t.Errorf("status of a learner: %+v", st)
	}
	_, err := b.EtcdMemberList(l.within(patience), &machine.EtcdMemberListRequest{QueryLocal: true})
	wantError(t, "local member list of a learner", err, "Unknown", "etcdserver: rpc not supported for learner")

	c := l.add("c")
	c.Start()
	l.await("c is refused as a second learner", func() bool { return c.saw("etcdserver: too many learner members in cluster") >= 2 })
	if got := c.Status().State; got != StatePreparing {
		t.Errorf("state of c: %s", got)
	}

	// A reboot does not promote it either: its data directory is not empty.
	b.Stop()
	b.fault(FaultNoPromote, false)
	b.boot()
	b.Start()
	l.await("b runs again as a learner", func() bool { st := b.Status(); return st.State == StateRunning && st.Learner })

	// Removing the learner is always allowed. It lets c in, and b keeps exiting and being started.
	for _, m := range a.members() {
		if m.GetIsLearner() {
			a.mustRemove(m.GetId())
		}
	}
	c.awaitVoter()
	b.awaitFlapping()
}

// awaitFlapping waits until etcd has exited and was started again at least twice.
func (n *node) awaitFlapping() {
	n.lab.t.Helper()
	for range 2 {
		n.awaitState(StateWaiting)
		n.awaitState(StateRunning)
		if st := n.Status(); st.Healthy || st.MemberID != 0 {
			n.lab.t.Errorf("a removed member calls itself healthy: %+v", st)
		}
	}
}

func TestRemovedMemberFlapsOverReboots(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.bootstrapped("a")
	b := l.joined("b")
	// Whoever asks the member while it is removed gets an error, and no panic of etcd's ends the process.
	asking, enough := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for asking.Err() == nil {
			_, _ = b.EtcdStatus(l.within(time.Second), &emptypb.Empty{})
		}
	})
	a.mustRemove(b.Status().MemberID)
	b.awaitFlapping()
	enough()
	wg.Wait()
	b.Stop()
	b.boot()
	b.Start()
	b.awaitFlapping()
	if got := a.names(); got != "a" {
		t.Errorf("members: %q", got)
	}

	// Only the loss of its data makes it a member again.
	b.Stop()
	if err := os.RemoveAll(b.data()); err != nil {
		t.Fatal(err)
	}
	b.boot()
	b.Start()
	b.awaitVoter()
}

func TestInterruptedJoinLeavesNamelessMember(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.bootstrapped("a")
	b := l.add("b")
	b.fault(FaultJoinInterrupted, true)
	b.Start()
	l.await("b has added itself", func() bool { return len(a.members()) == 2 })
	b.fault(FaultJoinInterrupted, false)
	l.await("b meets its own leftover again and again", func() bool { return b.saw("etcdserver: Peer URLs already exists") >= 3 })
	if st := b.Status(); st.State != StatePreparing {
		t.Errorf("status of b: %+v", st)
	}
	var nameless uint64
	for _, m := range a.members() {
		if m.GetHostname() == "" && len(m.GetClientUrls()) == 0 && m.GetIsLearner() {
			nameless = m.GetId()
		}
	}
	if nameless == 0 {
		t.Fatalf("no member without a name: %v", a.members())
	}
	a.mustRemove(nameless)
	b.awaitVoter()
}

func TestJoinRemovesMemberOfTheSameName(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.bootstrapped("a")
	b := l.joined("b")
	twin := l.joined("b")
	if got := a.members(); len(got) != 2 {
		t.Errorf("members: %v", got)
	}
	for _, m := range a.members() {
		if m.GetHostname() == "b" && m.GetId() != twin.Status().MemberID {
			t.Errorf("the first b is still a member")
		}
	}
	b.awaitFlapping()
}
