package talos

import (
	"context"
	"net/url"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/types/known/emptypb"
)

// EtcdStatus is what the etcd member of one machine says of itself.
type EtcdStatus struct {
	// Member is its ID. Leader is the ID of the leader that it follows; zero if it has none.
	Member, Leader uint64
	// Term is the raft term that it is in. AppliedIndex trails RaftIndex by what it has still to apply.
	Term, RaftIndex, AppliedIndex uint64
	// Learner is true while it has no vote.
	Learner bool
	// Errors that it reports, such as "etcdserver: no leader" or an alarm.
	Errors []string
}

// A Member is one entry of etcd's member list.
type Member struct {
	ID uint64
	// Name is empty while the member was added but never started.
	Name string
	// Learner is true while it has no vote.
	Learner bool
	// PeerHosts are the hosts of its peer URLs, in etcd's order.
	PeerHosts []string
}

// An Alarm is raised by etcd for one member.
type Alarm struct {
	Member uint64
	// Name is NOSPACE or CORRUPT.
	Name string
}

// EtcdStatus reads the status of the machine's own member. It answers without quorum and on learners too.
func (c *Client) EtcdStatus(ctx context.Context) (EtcdStatus, error) {
	var out EtcdStatus
	err := c.read(ctx, "read the etcd status", func(ctx context.Context, n *conn) error {
		m, err := only(n.machine.EtcdStatus(ctx, &emptypb.Empty{}))
		if err != nil {
			return err
		}
		s := m.GetMemberStatus()
		if s.GetMemberId() == 0 {
			return answer(Other, "the machine gave no etcd member ID")
		}
		out = EtcdStatus{
			Member: s.GetMemberId(), Leader: s.GetLeader(),
			Term: s.GetRaftTerm(), RaftIndex: s.GetRaftIndex(), AppliedIndex: s.GetRaftAppliedIndex(),
			Learner: s.GetIsLearner(), Errors: s.GetErrors(),
		}
		return nil
	})
	return out, err
}

// EtcdMembers reads the member list from the machine's own member and from no other. Only a member with a vote and a
// leader gives it; the others answer with the classes IsLearner, NoLeader or Timeout.
func (c *Client) EtcdMembers(ctx context.Context) ([]Member, error) {
	var out []Member
	err := c.read(ctx, "list the etcd members", func(ctx context.Context, n *conn) error {
		m, err := only(n.machine.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{QueryLocal: true}))
		if err != nil {
			return err
		}
		for _, e := range m.GetMembers() {
			out = append(out, Member{ID: e.GetId(), Name: e.GetHostname(), Learner: e.GetIsLearner(), PeerHosts: hosts(e.GetPeerUrls())})
		}
		if len(out) == 0 {
			return answer(Other, "the machine gave an empty list of etcd members")
		}
		return nil
	})
	return out, err
}

// EtcdAlarms reads the alarms that are raised for any member.
func (c *Client) EtcdAlarms(ctx context.Context) ([]Alarm, error) {
	var out []Alarm
	err := c.read(ctx, "list the etcd alarms", func(ctx context.Context, n *conn) error {
		r, err := n.machine.EtcdAlarmList(ctx, &emptypb.Empty{})
		if err != nil {
			return err
		}
		for _, m := range r.GetMessages() {
			for _, a := range m.GetMemberAlarms() {
				if a.GetAlarm() != machineapi.EtcdMemberAlarm_NONE {
					out = append(out, Alarm{Member: a.GetMemberId(), Name: a.GetAlarm().String()})
				}
			}
		}
		return nil
	})
	return out, err
}

// hosts are the hosts of URLs. One that does not parse is kept whole: it is shown, and it matches no machine.
func hosts(urls []string) []string {
	var out []string
	for _, raw := range urls {
		if u, err := url.Parse(raw); err == nil && u.Hostname() != "" {
			out = append(out, u.Hostname())
			continue
		}
		out = append(out, raw)
	}
	return out
}
