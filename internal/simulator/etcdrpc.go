package simulator

import (
	"context"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/types/known/emptypb"
)

// The etcd calls of the Talos API: each is for control planes only and is answered by the machine's etcd service.

// EtcdMemberList lists the members as the whole cluster knows them, or, if asked, as the local member does.
func (s *system) EtcdMemberList(ctx context.Context, in *machine.EtcdMemberListRequest) (*machine.EtcdMemberListResponse, error) {
	return withEtcd(ctx, s, "member list", in, etcdService.EtcdMemberList)
}

// EtcdStatus is the local member's own view; it needs no quorum.
func (s *system) EtcdStatus(ctx context.Context, in *emptypb.Empty) (*machine.EtcdStatusResponse, error) {
	return withEtcd(ctx, s, "etcd status", in, etcdService.EtcdStatus)
}

// EtcdLeaveCluster takes the local member out of the cluster, stops it and removes its data. It is not idempotent.
func (s *system) EtcdLeaveCluster(ctx context.Context, in *machine.EtcdLeaveClusterRequest) (*machine.EtcdLeaveClusterResponse, error) {
	return withEtcd(ctx, s, "etcd leave", in, etcdService.EtcdLeaveCluster)
}

// EtcdRemoveMemberByID takes any member out of the cluster and stops nothing.
func (s *system) EtcdRemoveMemberByID(ctx context.Context, in *machine.EtcdRemoveMemberByIDRequest) (*machine.EtcdRemoveMemberByIDResponse, error) {
	return withEtcd(ctx, s, "etcd remove member", in, etcdService.EtcdRemoveMemberByID)
}

// EtcdForfeitLeadership hands leadership to the first other member.
func (s *system) EtcdForfeitLeadership(ctx context.Context, in *machine.EtcdForfeitLeadershipRequest) (*machine.EtcdForfeitLeadershipResponse, error) {
	return withEtcd(ctx, s, "etcd forfeit leadership", in, etcdService.EtcdForfeitLeadership)
}

// EtcdAlarmList lists the alarms.
func (s *system) EtcdAlarmList(ctx context.Context, in *emptypb.Empty) (*machine.EtcdAlarmListResponse, error) {
	return withEtcd(ctx, s, "etcd alarm list", in, etcdService.EtcdAlarmList)
}

// EtcdAlarmDisarm disarms all alarms of all members.
func (s *system) EtcdAlarmDisarm(ctx context.Context, in *emptypb.Empty) (*machine.EtcdAlarmDisarmResponse, error) {
	return withEtcd(ctx, s, "etcd alarm disarm", in, etcdService.EtcdAlarmDisarm)
}

// EtcdDefragment rewrites the local member's database.
func (s *system) EtcdDefragment(ctx context.Context, in *emptypb.Empty) (*machine.EtcdDefragmentResponse, error) {
	return withEtcd(ctx, s, "etcd defragment", in, etcdService.EtcdDefragment)
}

// EtcdDowngradeValidate asks whether a downgrade were possible.
func (s *system) EtcdDowngradeValidate(ctx context.Context, in *machine.EtcdDowngradeValidateRequest) (*machine.EtcdDowngradeValidateResponse, error) {
	return withEtcd(ctx, s, "etcd downgrade validate", in, etcdService.EtcdDowngradeValidate)
}

// EtcdDowngradeEnable begins a downgrade.
func (s *system) EtcdDowngradeEnable(ctx context.Context, in *machine.EtcdDowngradeEnableRequest) (*machine.EtcdDowngradeEnableResponse, error) {
	return withEtcd(ctx, s, "etcd downgrade enable", in, etcdService.EtcdDowngradeEnable)
}

// EtcdDowngradeCancel ends a downgrade that was begun.
func (s *system) EtcdDowngradeCancel(ctx context.Context, in *emptypb.Empty) (*machine.EtcdDowngradeCancelResponse, error) {
	return withEtcd(ctx, s, "etcd downgrade cancel", in, etcdService.EtcdDowngradeCancel)
}
