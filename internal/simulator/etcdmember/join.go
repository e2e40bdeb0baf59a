package etcdmember

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

// joinAttempt is Talos's own number, and not subject to Options.Scale: an attempt that is cut off between adding the member and
// the answer leaves a member that nobody starts, and no other can join. On a busy computer that must not be for our haste.
const joinAttempt = 30 * time.Second

// Talos's own numbers, all subject to Options.Scale.
const (
	joinTimeout      = 30 * time.Minute
	joinPause        = 3 * time.Second
	promotionTimeout = 10 * time.Minute
	promotionAttempt = 30 * time.Second
	promotionPause   = 15 * time.Second
)

// Floors under the scaled numbers: a leader is elected, and a learner catches up, at etcd's own pace.
const (
	joinTimeoutFloor      = 2 * time.Minute
	joinPauseFloor        = 200 * time.Millisecond
	promotionTimeoutFloor = time.Minute
	promotionAttemptFloor = 5 * time.Second
	promotionPauseFloor   = 300 * time.Millisecond
)

// join adds this machine as a learner to the cluster that discovery knows, however long it takes to find one.
func (s *Service) join(ctx context.Context) (startup, error) {
	ctx, cancel := context.WithTimeout(ctx, s.scaled(joinTimeout, joinTimeoutFloor))
	defer cancel()
	for {
		how, err := s.joinOnce(ctx)
		if err == nil {
			return how, nil
		}
		s.o.Log.Debug("cannot join etcd yet", "member", s.o.Hostname, "error", err)
		pause(ctx, s.scaled(joinPause, joinPauseFloor))
		if ctx.Err() != nil {
			return startup{}, fmt.Errorf("failed to build initial etcd cluster: failed to build cluster arguments: %w", err)
		}
	}
}

func (s *Service) joinOnce(ctx context.Context) (startup, error) {
	ctx, cancel := context.WithTimeout(ctx, joinAttempt)
	defer cancel()
	ctx = clientv3.WithRequireLeader(ctx)
	cli, err := s.dialOthers()
	if err != nil {
		return startup{}, err
	}
	defer cli.Close() //nolint:errcheck // every write through it was answered
	list, err := cli.MemberList(ctx)
	if err != nil {
		return startup{}, fmt.Errorf("error getting etcd member list: %w", err)
	}
	// A machine without data takes a member of its own name for its former self. Two machines of one hostname remove each
	// other this way.
	for _, m := range list.Members {
		if m.Name != s.o.Hostname {
			continue
		}
		if _, err := cli.MemberRemove(ctx, m.ID); err != nil {
			return startup{}, fmt.Errorf("error removing self from the member list: %w", err)
		}
	}
	added, err := cli.MemberAddAsLearner(ctx, []string{peerURL(s.o.Address)})
	if err != nil {
		return startup{}, fmt.Errorf("error adding member: %w", err)
	}
	if s.o.Faults(FaultJoinInterrupted) {
		return startup{}, errors.New("interrupted between adding the member and starting etcd")
	}
	return startup{
		cluster: initialCluster(added.Members, added.Member.ID, s.o.Hostname),
		state:   embed.ClusterStateFlagExisting,
		learner: added.Member.ID,
	}, nil
}

// initialCluster lists all members as etcd wants them from one that joins; that one does not have its name yet.
func initialCluster(members []*etcdserverpb.Member, self uint64, hostname string) string {
	var out []string
	for _, m := range members {
		name := m.Name
		if m.ID == self {
			name = hostname
		}
		for _, u := range m.PeerURLs {
			out = append(out, name+"="+u)
		}
	}
	return strings.Join(out, ",")
}

// promote asks the other members to give this one a vote, until one does. Once it gives up nothing in Talos tries again, not
// even after a reboot.
func (s *Service) promote(ctx context.Context, id uint64) {
	ctx, cancel := context.WithTimeout(ctx, s.scaled(promotionTimeout, promotionTimeoutFloor))
	defer cancel()
	err := errors.New("never asked")
	for {
		pause(ctx, s.scaled(promotionPause, promotionPauseFloor))
		if ctx.Err() != nil {
			break
		}
		if s.o.Faults(FaultNoPromote) {
			continue
		}
		if err = s.promoteOnce(ctx, id); err == nil {
			return
		}
	}
	s.o.Log.Info("failed promoting member", "member", s.o.Hostname, "error", err)
}

func (s *Service) promoteOnce(ctx context.Context, id uint64) error {
	ctx, cancel := context.WithTimeout(ctx, s.scaled(promotionAttempt, promotionAttemptFloor))
	defer cancel()
	cli, err := s.dialOthers()
	if err != nil {
		return err
	}
	defer cli.Close() //nolint:errcheck // every write through it was answered
	_, err = cli.MemberPromote(ctx, id)
	if errors.Is(err, rpctypes.ErrMemberNotLearner) {
		return nil // an attempt before this one worked, though its answer was lost
	}
	return err
}
