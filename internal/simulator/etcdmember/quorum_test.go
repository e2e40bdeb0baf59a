package etcdmember

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/types/known/emptypb"
)

func TestStrictReconfiguration(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.bootstrapped("a")
	b := l.joined("b")
	c := l.joined("c")
	idB, idC := b.Status().MemberID, c.Status().MemberID

	// Three voters, one of them down: only that one may go.
	c.fault(FaultStopped, true)
	stopped := Status{State: StateRunning, Known: true, LastMessage: "Health check failed: context deadline exceeded"}
	l.await("c says that it does not run", func() bool { return c.Status() == stopped })
	wantError(t, "remove a live voter", a.remove(idB), "Unknown",
		fmt.Sprintf("failed to remove member: failed to remove member %d: etcdserver: unhealthy cluster", idB))
	_, err := b.EtcdLeaveCluster(l.within(2*time.Second), &machine.EtcdLeaveClusterRequest{})
	wantError(t, "leave of a live voter", err, "Unknown", "etcdserver: unhealthy cluster")
	a.mustRemove(idC)

	// Two voters, one of them down: there is no quorum, and nothing can be changed any more.
	b.fault(FaultStopped, true)
	l.await("a has lost its quorum", func() bool { st := a.Status(); return st.Known && !st.Healthy })
	if st := a.Status(); st.State != StateRunning || st.MemberID != 0 {
		t.Errorf("status without quorum: %+v", st)
	}
	_, err = a.EtcdMemberList(l.within(patience), &machine.EtcdMemberListRequest{})
	wantError(t, "list without quorum", err, "Unknown", "etcdserver: no leader")
	wantError(t, "removal without quorum", a.remove(idB), "Unknown", "etcdserver: no leader")
	st, err := a.EtcdStatus(l.within(patience), &emptypb.Empty{})
	if err != nil {
		t.Fatalf("status without quorum: %v", err)
	}
	if m := st.GetMessages()[0].GetMemberStatus(); m.GetLeader() != 0 || len(m.GetErrors()) != 1 || m.GetErrors()[0] != "etcdserver: no leader" {
		t.Errorf("status without quorum: %v", m)
	}
	if data, err := a.snapshot(l.within(patience)); err != nil || !complete(data) {
		t.Errorf("snapshot without quorum: %d bytes, %v", len(data), err)
	}
	_, err = a.EtcdLeaveCluster(l.within(patience), &machine.EtcdLeaveClusterRequest{})
	wantError(t, "leave without quorum", err, "DeadlineExceeded",
		"failed to leave cluster: failed to get local etcd member ID: context deadline exceeded")

	// Bringing the other one back is what helps.
	b.fault(FaultStopped, false)
	a.awaitVoter()
	b.awaitVoter()

	// Two voters, both live: either may go, the leader too.
	leader, other := a, b
	if b.leads() {
		leader, other = b, a
	}
	if err := leader.Leave(l.within(patience)); err != nil {
		t.Fatalf("the leader of two cannot leave: %v", err)
	}
	if got := other.names(); got != other.hostname {
		t.Errorf("members: %q", got)
	}
	l.await("the last voter leads", other.leads)
}

func TestRestartKeepsTheMember(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.bootstrapped("a")
	id := a.Status().MemberID
	if _, err := a.client().Put(l.within(patience), "key", "value"); err != nil {
		t.Fatal(err)
	}
	// An API server's watch must not keep the ports.
	watch := a.client().Watch(l.within(patience), "key")
	if _, err := a.client().Put(l.within(patience), "key", "seen"); err != nil {
		t.Fatal(err)
	}
	<-watch

	begun := time.Now()
	a.Stop()
	if took := time.Since(begun); took > 4*time.Second {
		t.Errorf("stopping took %s", took)
	}
	if st := a.Status(); st.State != StateFinished || st.MemberID != 0 {
		t.Errorf("status after stopping: %+v", st)
	}
	a.portsAreFree()
	a.Start()
	if a.run != nil {
		t.Errorf("a stopped service started again")
	}

	a.boot()
	a.Start()
	a.Start()
	a.awaitVoter()
	if got := a.Status().MemberID; got != id {
		t.Errorf("member %x after a reboot, want %x", got, id)
	}
	got, err := a.client().Get(l.within(patience), "key")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "seen" {
		t.Errorf("read %v, %v", got, err)
	}
}

// portsAreFree binds what the stopped service had bound.
func (n *node) portsAreFree() {
	n.lab.t.Helper()
	for _, port := range []string{clientPort, peerPort} {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", n.address.String()+":"+port)
		if err != nil {
			n.lab.t.Errorf("port is taken after Stop: %v", err)
			continue
		}
		_ = l.Close()
	}
}

func TestStopAtAnyStage(t *testing.T) {
	t.Parallel()
	stages := map[string]func(l *lab) *node{
		"never started": func(l *lab) *node { return l.add("a") },
		"just started": func(l *lab) *node {
			n := l.add("a")
			n.Start()
			return n
		},
		"waiting for a cluster that does not answer": func(l *lab) *node {
			l.add("other")
			n := l.add("a")
			n.Start()
			n.awaitState(StatePreparing)
			return n
		},
		"just bootstrapped": func(l *lab) *node {
			n := l.add("a")
			n.Start()
			if err := n.Bootstrap(false, false); err != nil {
				l.t.Fatal(err)
			}
			return n
		},
		"etcd just running": func(l *lab) *node {
			n := l.add("a")
			n.Start()
			if err := n.Bootstrap(false, false); err != nil {
				l.t.Fatal(err)
			}
			n.awaitState(StateRunning)
			return n
		},
		"rebooted without quorum": func(l *lab) *node {
			n := l.bootstrapped("a")
			other := l.joined("b")
			n.Stop()
			other.Stop()
			n.boot()
			n.Start()
			l.await("a knows that it is unhealthy", func() bool { st := n.Status(); return st.Known && !st.Healthy })
			return n
		},
		"failed": func(l *lab) *node {
			n := l.add("a")
			n.fault(FaultBootstrapFails, true)
			if err := n.Bootstrap(false, false); err != nil {
				l.t.Fatal(err)
			}
			n.awaitState(StateFailed)
			return n
		},
	}
	for stage, reach := range stages {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			n := reach(newLab(t))
			begun := time.Now()
			n.Stop()
			n.Stop()
			if took := time.Since(begun); took > 8*time.Second {
				t.Errorf("stopping took %s", took)
			}
			n.portsAreFree()
			if err := n.Bootstrap(false, false); err == nil {
				t.Errorf("a stopped service bootstraps")
			}
		})
	}
}
