package etcdmember

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// wantError checks an error as a caller of the Talos API sees it.
func wantError(t *testing.T, what string, err error, code, text string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, want %s %q", what, code, text)
		return
	}
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err) // as a gRPC server does
	}
	if got := st.Code().String(); got != code || !strings.Contains(st.Message(), text) {
		t.Errorf("%s: %s %q, want %s %q", what, got, st.Message(), code, text)
	}
}

func TestOnlyMemberCannotLeaveOrForfeit(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.bootstrapped("a")
	before := a.Status()

	_, err := a.EtcdLeaveCluster(l.within(patience), &machine.EtcdLeaveClusterRequest{})
	wantError(t, "leave", err, "Unknown", "failed to leave cluster: failed to remove member ")
	wantError(t, "leave", err, "Unknown", ": etcdserver: re-configuration failed due to not enough started members")
	wantError(t, "leave of a reset", a.Leave(l.within(patience)), "Unknown", "not enough started members")
	_, err = a.EtcdForfeitLeadership(l.within(patience), &machine.EtcdForfeitLeadershipRequest{})
	wantError(t, "forfeit", err, "Unknown", "failed to forfeit leadership: cannot forfeit leadership, only one member")
	wantError(t, "remove unknown member", a.remove(42), "NotFound", "failed to remove member 42: etcdserver: member not found")
	if after := a.Status(); after != before {
		t.Errorf("status changed from %+v to %+v", before, after)
	}
}

func TestForfeitLeadershipNamesTheHeir(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.bootstrapped("a")
	b := l.joined("b")
	leader, follower := a, b
	if b.leads() {
		leader, follower = b, a
	}
	got, err := follower.EtcdForfeitLeadership(l.within(patience), &machine.EtcdForfeitLeadershipRequest{})
	if err != nil || got.GetMessages()[0].GetMember() != "" {
		t.Errorf("a follower forfeits to %v, %v", got, err)
	}
	got, err = leader.EtcdForfeitLeadership(l.within(patience), &machine.EtcdForfeitLeadershipRequest{})
	if err != nil || got.GetMessages()[0].GetMember() != follower.hostname {
		t.Errorf("the leader forfeits to %v, %v; want %s", got, err, follower.hostname)
	}
	l.await("the other member leads", follower.leads)
}

func TestMaintenanceCalls(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.bootstrapped("a")
	ctx := l.within(patience)

	st, err := a.EtcdStatus(ctx, &emptypb.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	m := st.GetMessages()[0].GetMemberStatus()
	if m.GetMemberId() != a.Status().MemberID || m.GetLeader() != m.GetMemberId() || m.GetIsLearner() || m.GetDbSize() == 0 ||
		!strings.HasPrefix(m.GetProtocolVersion(), "3.6.") || m.GetStorageVersion() != "3.6.0" || m.GetRaftIndex() == 0 || m.GetRaftTerm() == 0 {
		t.Errorf("status: %v", m)
	}
	list, err := a.EtcdAlarmList(ctx, &emptypb.Empty{})
	if err != nil || len(list.GetMessages()[0].GetMemberAlarms()) != 0 {
		t.Errorf("alarms: %v, %v", list, err)
	}
	if _, err := a.EtcdAlarmDisarm(ctx, &emptypb.Empty{}); err != nil {
		t.Errorf("disarm: %v", err)
	}
	if _, err := a.EtcdDefragment(ctx, &emptypb.Empty{}); err != nil {
		t.Errorf("defragment: %v", err)
	}
	down, err := a.EtcdDowngradeValidate(ctx, &machine.EtcdDowngradeValidateRequest{Version: "3.5"})
	if err != nil || !strings.HasPrefix(down.GetMessages()[0].GetClusterDowngrade().GetClusterVersion(), "3.6") {
		t.Errorf("validate downgrade: %v, %v", down, err)
	}
	_, err = a.EtcdDowngradeEnable(ctx, &machine.EtcdDowngradeEnableRequest{Version: "3.7"})
	wantError(t, "downgrade to a newer version", err, "Unknown", "failed to query etcd status: etcdserver: invalid downgrade target version")
	if _, err := a.EtcdDowngradeCancel(ctx, &emptypb.Empty{}); err != nil {
		t.Errorf("cancel downgrade: %v", err)
	}
}

func TestDowngradeVersions(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.add("a") // never started: versions are checked before etcd is asked
	for version, want := range map[string]string{
		"":      "version is required for etcd downgrade",
		"3":     "version should be in MAJOR.MINOR format",
		"3.5.1": "version should be in MAJOR.MINOR format",
		"x.5":   "major version should be a number",
		"3.x":   "minor version should be a number",
		"3.4":   "etcd downgrade is only supported to 3.5 and later versions",
		"2.9":   "etcd downgrade is only supported to 3.5 and later versions",
	} {
		_, err := a.EtcdDowngradeValidate(l.within(patience), &machine.EtcdDowngradeValidateRequest{Version: version})
		wantError(t, "version "+version, err, "InvalidArgument", want)
	}
}

func TestCallsHangUntilTheDeadlineWithoutEtcd(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.add("a")
	a.Start()
	calls := map[string]func(context.Context) error{
		"list":   func(ctx context.Context) error { _, err := a.EtcdMemberList(ctx, nil); return err },
		"status": func(ctx context.Context) error { _, err := a.EtcdStatus(ctx, nil); return err },
		"alarms": func(ctx context.Context) error { _, err := a.EtcdAlarmList(ctx, nil); return err },
		"remove": func(ctx context.Context) error {
			_, err := a.EtcdRemoveMemberByID(ctx, &machine.EtcdRemoveMemberByIDRequest{MemberId: 1})
			return err
		},
	}
	for name, call := range calls {
		begun := time.Now()
		wantError(t, name, call(l.within(300*time.Millisecond)), "DeadlineExceeded", "context deadline exceeded")
		if took := time.Since(begun); took < 300*time.Millisecond {
			t.Errorf("%s answered after %s, before its deadline", name, took)
		}
	}
}

func TestEtcdWantsClientCertificates(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.bootstrapped("a")
	for _, port := range []string{clientPort, peerPort} {
		config := a.pki.client.Clone()
		if err := handshake(l.within(patience), a.address.String()+":"+port, config); err != nil {
			t.Errorf("port %s with a certificate of the CA: %v", port, err)
		}
		config.Certificates = nil
		if err := handshake(l.within(patience), a.address.String()+":"+port, config); err == nil {
			t.Errorf("port %s takes a client without certificate", port)
		}
		other := newLab(t).add("a")
		config.Certificates = other.pki.client.Certificates
		if err := handshake(l.within(patience), a.address.String()+":"+port, config); err == nil {
			t.Errorf("port %s takes a certificate of another CA", port)
		}
	}
}

// handshake connects and waits for the server's verdict, which in TLS 1.3 comes only with the first byte.
func handshake(ctx context.Context, address string, config *tls.Config) error {
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close() // only the handshake counts
	if _, err := conn.Write([]byte("GET /version HTTP/1.1\r\nHost: etcd\r\n\r\n")); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}
