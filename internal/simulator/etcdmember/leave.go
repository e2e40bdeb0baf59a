package etcdmember

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Talos's own numbers, all subject to Options.Scale: how long a leave waits to learn its own member ID, and for how long and
// how often it then tries.
const (
	leaveIdentityTimeout = 3 * time.Minute
	leaveRemoveTimeout   = 5 * time.Minute
	leaveRemovePause     = 10 * time.Second
)

// Floors under the scaled numbers. etcd calls a peer connected, and so allows a removal, only after five seconds.
const (
	leaveIdentityFloor    = 2 * time.Second
	leaveRemoveFloor      = 15 * time.Second
	leaveRemovePauseFloor = 500 * time.Millisecond
)

// identityPoll is how often the local member is looked for by those that wait for it.
const identityPoll = 50 * time.Millisecond

// EtcdLeaveCluster takes the local member out of the cluster, stops etcd and removes its data. It is not idempotent: once the
// member has left, nothing tells its ID any more, and a second call waits for it in vain.
func (s *Service) EtcdLeaveCluster(ctx context.Context, _ *machine.EtcdLeaveClusterRequest) (*machine.EtcdLeaveClusterResponse, error) {
	if s.o.Faults(FaultLeaveLate) {
		select {
		case <-ctx.Done():
			ctx = context.WithoutCancel(ctx)
		case <-s.life.Done():
		}
	}
	if err := s.leave(ctx); err != nil {
		return nil, fmt.Errorf("failed to leave cluster: %w", err)
	}
	if s.o.Faults(FaultLeaveOKButError) {
		return nil, status.Error(codes.Unavailable, "error reading from server: EOF")
	}
	return &machine.EtcdLeaveClusterResponse{Messages: []*machine.EtcdLeaveCluster{{}}}, nil
}

// Leave is the leave of a graceful reset. It passes over machines without a member, and those whose etcd is not running,
// though a join may already have added them: they leave a stale member behind.
func (s *Service) Leave(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(s.o.DataDir, "member")); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if st := s.Status().State; st != StateRunning && st != StateFailed {
		return nil
	}
	return s.leave(ctx)
}

func (s *Service) leave(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	switch {
	case s.o.Faults(FaultLeaveHangs):
		<-ctx.Done()
		return ctx.Err()
	case s.o.Faults(FaultLeaveFails):
		return fmt.Errorf("failed to remove member: %w", rpctypes.ErrUnhealthy)
	}
	id, err := s.awaitMemberID(ctx)
	if err != nil {
		return err
	}
	if err := s.removeSelf(ctx, id); err != nil {
		return err
	}
	return s.discard()
}

// discard stops etcd for good and removes its data. If the machine stops first the data stays, of a member that is none.
func (s *Service) discard() error {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.life.Err() != nil {
		return fmt.Errorf("failed to stop etcd: %w", s.life.Err())
	}
	s.halt()
	if err := os.RemoveAll(s.o.DataDir); err != nil {
		return fmt.Errorf("failed to remove %s: %w", s.o.DataDir, err)
	}
	s.set(func(st *Status) { *st = Status{State: StateFinished, LastMessage: "Service finished successfully"} })
	return nil
}

// awaitMemberID waits for the local member resource, which exists only while etcd is healthy.
func (s *Service) awaitMemberID(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.scaled(leaveIdentityTimeout, leaveIdentityFloor))
	defer cancel()
	for {
		if id := s.Status().MemberID; id != 0 {
			return id, nil
		}
		pause(ctx, identityPoll)
		if ctx.Err() != nil {
			return 0, fmt.Errorf("failed to get local etcd member ID: %w", ctx.Err())
		}
	}
}

// removeSelf retries only what passes by itself: peers that etcd does not call connected yet, and members that just stop.
func (s *Service) removeSelf(ctx context.Context, id uint64) error {
	ctx, cancel := context.WithTimeout(ctx, s.scaled(leaveRemoveTimeout, leaveRemoveFloor))
	defer cancel()
	ctx = clientv3.WithRequireLeader(ctx)
	cli, err := s.dialCluster()
	if err != nil {
		return err
	}
	defer cli.Close() //nolint:errcheck // every write through it was answered
	for {
		_, err := cli.MemberRemove(ctx, id)
		switch {
		case err == nil, errors.Is(err, rpctypes.ErrMemberNotFound):
			return nil
		case errors.Is(err, rpctypes.ErrUnhealthy), errors.Is(err, rpctypes.ErrStopped):
		default:
			return fmt.Errorf("failed to remove member %d: %w", id, err)
		}
		pause(ctx, s.scaled(leaveRemovePause, leaveRemovePauseFloor))
		if ctx.Err() != nil {
			return fmt.Errorf("failed to remove member %d: %w", id, err)
		}
	}
}
