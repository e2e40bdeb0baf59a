package etcdmember

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// EtcdDowngradeValidate asks whether a downgrade were possible.
func (s *Service) EtcdDowngradeValidate(ctx context.Context, in *machine.EtcdDowngradeValidateRequest) (*machine.EtcdDowngradeValidateResponse, error) {
	d, err := s.downgradeTo(ctx, clientv3.DowngradeValidate, in.GetVersion())
	if err != nil {
		return nil, err
	}
	return &machine.EtcdDowngradeValidateResponse{Messages: []*machine.EtcdDowngradeValidate{{ClusterDowngrade: d}}}, nil
}

// EtcdDowngradeEnable begins a downgrade.
func (s *Service) EtcdDowngradeEnable(ctx context.Context, in *machine.EtcdDowngradeEnableRequest) (*machine.EtcdDowngradeEnableResponse, error) {
	d, err := s.downgradeTo(ctx, clientv3.DowngradeEnable, in.GetVersion())
	if err != nil {
		return nil, err
	}
	return &machine.EtcdDowngradeEnableResponse{Messages: []*machine.EtcdDowngradeEnable{{ClusterDowngrade: d}}}, nil
}

// EtcdDowngradeCancel ends a downgrade that was begun.
func (s *Service) EtcdDowngradeCancel(ctx context.Context, _ *emptypb.Empty) (*machine.EtcdDowngradeCancelResponse, error) {
	d, err := s.downgrade(ctx, clientv3.DowngradeCancel, "")
	if err != nil {
		return nil, err
	}
	return &machine.EtcdDowngradeCancelResponse{Messages: []*machine.EtcdDowngradeCancel{{ClusterDowngrade: d}}}, nil
}

func (s *Service) downgradeTo(ctx context.Context, action clientv3.DowngradeAction, version string) (*machine.EtcdClusterDowngrade, error) {
	if err := checkDowngradeVersion(version); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return s.downgrade(ctx, action, version)
}

func (s *Service) downgrade(ctx context.Context, action clientv3.DowngradeAction, version string) (*machine.EtcdClusterDowngrade, error) {
	cli, err := s.dialLocal()
	if err != nil {
		return nil, fmt.Errorf("failed to create etcd client: %w", err)
	}
	defer cli.Close() //nolint:errcheck // every write through it was answered
	answer, err := cli.Downgrade(ctx, action, version)
	if err != nil {
		return nil, fmt.Errorf("failed to query etcd status: %w", err)
	}
	return &machine.EtcdClusterDowngrade{ClusterVersion: answer.Version}, nil
}

func checkDowngradeVersion(version string) error {
	if version == "" {
		return errors.New("version is required for etcd downgrade")
	}
	left, right, found := strings.Cut(version, ".")
	if !found || strings.Contains(right, ".") {
		return errors.New("version should be in MAJOR.MINOR format")
	}
	major, err := strconv.Atoi(left)
	if err != nil {
		return errors.New("major version should be a number")
	}
	minor, err := strconv.Atoi(right)
	if err != nil {
		return errors.New("minor version should be a number")
	}
	if major < 3 || (major == 3 && minor < 5) {
		return errors.New("etcd downgrade is only supported to 3.5 and later versions")
	}
	return nil
}
