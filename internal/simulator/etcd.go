package simulator

import (
	"context"
	"errors"
	"os"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// An etcdState is what an etcd service says of itself.
type etcdState struct {
	State       string
	Known       bool // a health check ran
	Healthy     bool
	LastMessage string
	MemberID    uint64 // zero unless healthy
	Learner     bool
}

// An etcdService is the etcd of one machine for one boot, with the part of the Talos API that speaks of it.
type etcdService interface {
	Start()
	Stop()
	Bootstrap(recoverEtcd, skipHashCheck bool) error
	Leave(ctx context.Context) error
	state() etcdState

	EtcdMemberList(ctx context.Context, in *machine.EtcdMemberListRequest) (*machine.EtcdMemberListResponse, error)
	EtcdStatus(ctx context.Context, in *emptypb.Empty) (*machine.EtcdStatusResponse, error)
	EtcdLeaveCluster(ctx context.Context, in *machine.EtcdLeaveClusterRequest) (*machine.EtcdLeaveClusterResponse, error)
	EtcdRemoveMemberByID(ctx context.Context, in *machine.EtcdRemoveMemberByIDRequest) (*machine.EtcdRemoveMemberByIDResponse, error)
	EtcdForfeitLeadership(ctx context.Context, in *machine.EtcdForfeitLeadershipRequest) (*machine.EtcdForfeitLeadershipResponse, error)
	EtcdAlarmList(ctx context.Context, in *emptypb.Empty) (*machine.EtcdAlarmListResponse, error)
	EtcdAlarmDisarm(ctx context.Context, in *emptypb.Empty) (*machine.EtcdAlarmDisarmResponse, error)
	EtcdDefragment(ctx context.Context, in *emptypb.Empty) (*machine.EtcdDefragmentResponse, error)
	EtcdDowngradeValidate(ctx context.Context, in *machine.EtcdDowngradeValidateRequest) (*machine.EtcdDowngradeValidateResponse, error)
	EtcdDowngradeEnable(ctx context.Context, in *machine.EtcdDowngradeEnableRequest) (*machine.EtcdDowngradeEnableResponse, error)
	EtcdDowngradeCancel(ctx context.Context, in *emptypb.Empty) (*machine.EtcdDowngradeCancelResponse, error)
	EtcdSnapshot(in *machine.EtcdSnapshotRequest, stream machine.MachineService_EtcdSnapshotServer) error
	EtcdRecover(stream machine.MachineService_EtcdRecoverServer) error
}

// errNoEtcdPKI is what a control plane answers before its etcd service is configured.
var errNoEtcdPKI = errors.New("error building etcd client TLS config: etcd PKI is not ready")

// startEtcd makes the etcd service of this boot and starts it: with data it just runs, without it waits or joins.
func (s *system) startEtcd() error {
	etcd, err := s.m.fleet.newEtcd(s)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.etcd = etcd
	s.mu.Unlock()
	etcd.Start()
	s.kick()
	return nil
}

func (s *system) etcdState() (etcdState, bool) {
	s.mu.Lock()
	etcd := s.etcd
	s.mu.Unlock()
	if etcd == nil {
		return etcdState{}, false
	}
	return etcd.state(), true
}

// followEtcd copies the etcd service's state into the list of services.
func (s *system) followEtcd() {
	st, ok := s.etcdState()
	if !ok || st.State == "" {
		return
	}
	if svc, exists := s.services.get("etcd"); !exists || svc.state != st.State || (st.State != svcRunning && svc.message != st.LastMessage) {
		s.services.set("etcd", st.State, st.LastMessage)
	}
	if st.State == svcRunning {
		s.services.health("etcd", st.Known, st.Healthy, st.LastMessage)
	}
	s.m.fleet.etcdChanged(s)
}

// controlPlane refuses what only control planes answer.
func (s *system) controlPlane(name string) error {
	cfg := s.activeConfig()
	if cfg == nil || !cfg.CompleteForBoot() || cfg.Machine().Type() == machinetype.TypeUnknown {
		return status.Errorf(codes.Unimplemented, "machine type is not set, cannot use %s API", name)
	}
	if !cfg.Machine().Type().IsControlPlane() {
		return status.Errorf(codes.Unimplemented, "%s is only available on control plane nodes", name)
	}
	return nil
}

// withEtcd answers a call with the etcd service, or says why there is none.
func withEtcd[In, Out any](ctx context.Context, s *system, name string, in In, call func(etcdService, context.Context, In) (Out, error)) (Out, error) {
	var none Out
	if err := s.controlPlane(name); err != nil {
		return none, err
	}
	s.mu.Lock()
	etcd := s.etcd
	s.mu.Unlock()
	if etcd == nil {
		return none, errNoEtcdPKI
	}
	return call(etcd, ctx, in)
}

// Bootstrap starts a new etcd cluster on this machine. It knows nothing of any other machine: a second one splits the brain.
func (s *system) Bootstrap(_ context.Context, in *machine.BootstrapRequest) (*machine.BootstrapResponse, error) {
	if svc, ok := s.services.get("cri"); !ok || !svc.up() {
		return nil, status.Error(codes.FailedPrecondition, "bootstrap is not available yet")
	}
	if err := s.controlPlane("bootstrap"); err != nil {
		if s.is112() && s.configured() {
			return nil, status.Error(codes.FailedPrecondition, "bootstrap can only be performed on a control plane node")
		}
		return nil, err
	}
	if s.m.faults.has(FaultTimeUnsynced) {
		return nil, status.Error(codes.FailedPrecondition, "time is not in sync yet")
	}
	if entries, err := os.ReadDir(s.m.disks.etcdDir()); err == nil && len(entries) > 0 {
		return nil, status.Error(codes.AlreadyExists, "etcd data directory is not empty")
	}
	s.mu.Lock()
	etcd := s.etcd
	s.mu.Unlock()
	if etcd == nil {
		return nil, status.Error(codes.FailedPrecondition, "bootstrap is not available yet")
	}
	if err := etcd.Bootstrap(in.GetRecoverEtcd(), in.GetRecoverSkipHashCheck()); err != nil {
		return nil, err
	}
	return &machine.BootstrapResponse{Messages: []*machine.Bootstrap{{}}}, nil
}

// EtcdRecover stores a snapshot on EPHEMERAL, whatever it holds and whatever etcd does.
func (s *system) EtcdRecover(stream grpc.ClientStreamingServer[common.Data, machine.EtcdRecoverResponse]) error {
	s.mu.Lock()
	etcd, mounted := s.etcd, s.ephemeral
	s.mu.Unlock()
	if !mounted {
		return status.Error(codes.FailedPrecondition, "etcd service is not ready for recovery yet")
	}
	if err := s.controlPlane("etcd recover"); err != nil {
		return err
	}
	if etcd == nil {
		return status.Error(codes.FailedPrecondition, "etcd service is not ready for recovery yet")
	}
	return etcd.EtcdRecover(stream)
}

// EtcdSnapshot streams the local member's database. A stream that breaks off still ends with OK.
func (s *system) EtcdSnapshot(in *machine.EtcdSnapshotRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	if err := s.controlPlane("etcd snapshot"); err != nil {
		return err
	}
	s.mu.Lock()
	etcd := s.etcd
	s.mu.Unlock()
	if etcd == nil {
		return errNoEtcdPKI
	}
	return etcd.EtcdSnapshot(in, stream)
}
