package etcdmember

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// The calls below answer as Talos does. etcd's own errors carry no gRPC status: they reach the caller as code Unknown with
// etcd's text. What ends with the caller's deadline is DeadlineExceeded.

// EtcdMemberList lists the members as any control plane tells them, or the local one alone if asked.
func (s *Service) EtcdMemberList(ctx context.Context, in *machine.EtcdMemberListRequest) (*machine.EtcdMemberListResponse, error) {
	dial := s.dialCluster
	if in.GetQueryLocal() {
		dial = s.dialLocal
	}
	cli, err := dial()
	if err != nil {
		return nil, err
	}
	defer cli.Close() //nolint:errcheck // it only reads
	list, err := cli.MemberList(clientv3.WithRequireLeader(ctx))
	if err != nil {
		return nil, err
	}
	out := &machine.EtcdMembers{}
	for _, m := range s.told(list.Members) {
		out.LegacyMembers = append(out.LegacyMembers, m.Name)
		out.Members = append(out.Members, &machine.EtcdMember{
			Id: m.ID, Hostname: m.Name, PeerUrls: m.PeerURLs, ClientUrls: m.ClientURLs, IsLearner: m.IsLearner,
		})
	}
	return &machine.EtcdMemberListResponse{Messages: []*machine.EtcdMembers{out}}, nil
}

// told is the list as this machine tells it.
func (s *Service) told(members []*etcdserverpb.Member) []*etcdserverpb.Member {
	if !s.o.Faults(FaultMembersDiffer) {
		return members
	}
	last := -1
	for i, m := range members {
		if m.Name != s.o.Hostname && (last < 0 || m.Name > members[last].Name) {
			last = i
		}
	}
	if last < 0 {
		return members
	}
	return slices.Delete(slices.Clone(members), last, last+1)
}

// EtcdStatus is the local member's own view; it needs no quorum.
func (s *Service) EtcdStatus(ctx context.Context, _ *emptypb.Empty) (*machine.EtcdStatusResponse, error) {
	cli, err := s.dialLocal()
	if err != nil {
		return nil, fmt.Errorf("failed to create etcd client: %w", err)
	}
	defer cli.Close() //nolint:errcheck // it only reads
	st, err := cli.Status(ctx, clientURL(s.o.Address))
	if err != nil {
		return nil, fmt.Errorf("failed to query etcd status: %w", err)
	}
	return &machine.EtcdStatusResponse{Messages: []*machine.EtcdStatus{{MemberStatus: &machine.EtcdMemberStatus{
		MemberId: st.Header.MemberId, ProtocolVersion: st.Version, StorageVersion: st.StorageVersion,
		DbSize: st.DbSize, DbSizeInUse: st.DbSizeInUse, Leader: st.Leader,
		RaftIndex: st.RaftIndex, RaftTerm: st.RaftTerm, RaftAppliedIndex: st.RaftAppliedIndex,
		Errors: st.Errors, IsLearner: st.IsLearner,
	}}}}, nil
}

// EtcdRemoveMemberByID takes any member out of the cluster. It stops nothing and wipes nothing.
func (s *Service) EtcdRemoveMemberByID(ctx context.Context, in *machine.EtcdRemoveMemberByIDRequest) (*machine.EtcdRemoveMemberByIDResponse, error) {
	cli, err := s.dialCluster()
	if err != nil {
		return nil, fmt.Errorf("failed to create etcd client: %w", err)
	}
	defer cli.Close() //nolint:errcheck // every write through it was answered
	if _, err := cli.MemberRemove(clientv3.WithRequireLeader(ctx), in.GetMemberId()); err != nil {
		err = fmt.Errorf("failed to remove member %d: %w", in.GetMemberId(), err)
		if errors.Is(err, rpctypes.ErrMemberNotFound) {
			return nil, status.Error(codes.NotFound, err.Error())
		}
		return nil, fmt.Errorf("failed to remove member: %w", err)
	}
	return &machine.EtcdRemoveMemberByIDResponse{Messages: []*machine.EtcdRemoveMemberByID{{}}}, nil
}

// EtcdForfeitLeadership hands leadership to the first other member, if the local one leads. The answer names the new leader,
// and nobody if the local member did not lead.
func (s *Service) EtcdForfeitLeadership(ctx context.Context, _ *machine.EtcdForfeitLeadershipRequest) (*machine.EtcdForfeitLeadershipResponse, error) {
	id, err := s.awaitMemberID(ctx)
	if err != nil {
		return nil, err
	}
	heir, err := s.forfeit(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("failed to forfeit leadership: %w", err)
	}
	return &machine.EtcdForfeitLeadershipResponse{Messages: []*machine.EtcdForfeitLeadership{{Member: heir}}}, nil
}

func (s *Service) forfeit(ctx context.Context, id uint64) (string, error) {
	cli, err := s.dialLocal() // only a leader moves leadership
	if err != nil {
		return "", err
	}
	defer cli.Close() //nolint:errcheck // every write through it was answered
	ctx = clientv3.WithRequireLeader(ctx)
	list, err := cli.MemberList(ctx)
	if err != nil {
		return "", fmt.Errorf("failed to list etcd members: %w", err)
	}
	if len(list.Members) == 1 {
		return "", errors.New("cannot forfeit leadership, only one member")
	}
	st, err := cli.Status(ctx, clientURL(s.o.Address))
	if err != nil {
		return "", err
	}
	if st.Leader != id {
		return "", nil
	}
	for _, m := range list.Members {
		if m.ID == id {
			continue
		}
		_, err := cli.MoveLeader(ctx, m.ID)
		if errors.Is(err, rpctypes.ErrNotLeader) {
			return "", nil
		}
		return m.Name, err
	}
	return "", nil
}

// EtcdAlarmList lists the alarms of all members.
func (s *Service) EtcdAlarmList(ctx context.Context, _ *emptypb.Empty) (*machine.EtcdAlarmListResponse, error) {
	cli, err := s.dialLocal()
	if err != nil {
		return nil, fmt.Errorf("failed to create etcd client: %w", err)
	}
	defer cli.Close() //nolint:errcheck // it only reads
	answer, err := cli.AlarmList(ctx)
	if err != nil {
		return nil, fmt.Errorf("failed to list etcd alarms: %w", err)
	}
	return &machine.EtcdAlarmListResponse{Messages: []*machine.EtcdAlarm{{MemberAlarms: alarms(answer)}}}, nil
}

// EtcdAlarmDisarm disarms all alarms of all members.
func (s *Service) EtcdAlarmDisarm(ctx context.Context, _ *emptypb.Empty) (*machine.EtcdAlarmDisarmResponse, error) {
	cli, err := s.dialLocal()
	if err != nil {
		return nil, fmt.Errorf("failed to create etcd client: %w", err)
	}
	defer cli.Close() //nolint:errcheck // every write through it was answered
	answer, err := cli.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	if err != nil {
		return nil, fmt.Errorf("failed to disarm etcd alarm: %w", err)
	}
	return &machine.EtcdAlarmDisarmResponse{Messages: []*machine.EtcdAlarmDisarm{{MemberAlarms: alarms(answer)}}}, nil
}

func alarms(answer *clientv3.AlarmResponse) []*machine.EtcdMemberAlarm {
	kinds := map[etcdserverpb.AlarmType]machine.EtcdMemberAlarm_AlarmType{
		etcdserverpb.AlarmType_NOSPACE: machine.EtcdMemberAlarm_NOSPACE,
		etcdserverpb.AlarmType_CORRUPT: machine.EtcdMemberAlarm_CORRUPT,
	}
	out := make([]*machine.EtcdMemberAlarm, 0, len(answer.Alarms))
	for _, a := range answer.Alarms {
		out = append(out, &machine.EtcdMemberAlarm{MemberId: a.MemberID, Alarm: kinds[a.Alarm]})
	}
	return out
}

// EtcdDefragment rewrites the local member's database.
func (s *Service) EtcdDefragment(ctx context.Context, _ *emptypb.Empty) (*machine.EtcdDefragmentResponse, error) {
	cli, err := s.dialLocal()
	if err != nil {
		return nil, fmt.Errorf("failed to create etcd client: %w", err)
	}
	defer cli.Close() //nolint:errcheck // every write through it was answered
	if _, err := cli.Defragment(ctx, clientURL(s.o.Address)); err != nil {
		return nil, fmt.Errorf("failed to defragment etcd: %w", err)
	}
	return &machine.EtcdDefragmentResponse{Messages: []*machine.EtcdDefragment{{}}}, nil
}
