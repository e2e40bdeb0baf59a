package etcdmember

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Talos's own numbers, all subject to Options.Scale.
const (
	restartPause = 5 * time.Second

	healthDelay   = 5 * time.Second
	healthPeriod  = 20 * time.Second
	healthTimeout = 15 * time.Second
)

// Floors under the scaled numbers: what a busy machine needs so that a healthy member is not called ill.
const (
	restartFloor       = 300 * time.Millisecond
	healthDelayFloor   = 100 * time.Millisecond
	healthPeriodFloor  = 300 * time.Millisecond
	healthTimeoutFloor = 4 * time.Second
)

// faultPoll is how often a running etcd asks whether it was told to stop.
const faultPoll = 100 * time.Millisecond

// A run is the service from one start to its end: one preparation, and then one etcd after another.
type run struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// begin starts a run. The caller has the turn.
func (s *Service) begin(boot *bootstrap) *run {
	ctx, cancel := context.WithCancel(s.life)
	r := &run{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		s.live(ctx, boot)
	}()
	return r
}

// live prepares etcd once and then keeps it running. Only the end of ctx ends it, or a preparation that fails.
func (s *Service) live(ctx context.Context, boot *bootstrap) {
	s.set(func(st *Status) { *st = Status{State: StatePreparing, LastMessage: "Running pre state"} })
	how, err := s.prepare(ctx, boot)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		s.set(func(st *Status) {
			*st = Status{State: StateFailed, LastMessage: "Failed to run pre stage: " + err.Error()}
		})
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	if how.learner != 0 {
		wg.Go(func() { s.promote(ctx, how.learner) })
	}
	for ctx.Err() == nil {
		if s.o.Faults(FaultStopped) {
			s.set(func(st *Status) {
				*st = Status{State: StateRunning, Known: true, LastMessage: "Health check failed: context deadline exceeded"}
			})
			pause(ctx, faultPoll)
			continue
		}
		// etcd ignores how it was first started once it has data, so that every later start goes on from there.
		err := s.serve(ctx, how)
		if ctx.Err() != nil {
			return
		}
		s.o.Log.Debug("etcd exited", "member", s.o.Hostname, "error", err)
		s.set(func(st *Status) { *st = Status{State: StateWaiting, Known: true, LastMessage: exitMessage(err)} })
		pause(ctx, s.scaled(restartPause, restartFloor))
	}
}

func exitMessage(err error) string {
	if err == nil {
		return "Runner Containerd(etcd) exited without error, going to restart it"
	}
	return "Error running Containerd(etcd), going to restart forever: " + err.Error()
}

// prepare is Talos's pre stage: it decides how etcd starts, and waits until it can.
func (s *Service) prepare(ctx context.Context, boot *bootstrap) (startup, error) {
	switch {
	case boot != nil:
		return s.prepareBootstrap(*boot)
	case s.hasData():
		return startup{}, nil
	default:
		return s.join(ctx)
	}
}

// serve runs etcd once, with its health checks, until it exits by itself or ctx ends.
func (s *Service) serve(ctx context.Context, how startup) error {
	m, err := startMember(s.o, s.pki, how)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer func() {
		cancel()
		m.close()
		wg.Wait()
	}()
	s.set(func(st *Status) { *st = Status{State: StateRunning, LastMessage: "Started task etcd"} })
	wg.Go(func() { s.checkHealth(ctx, m) })

	ticker := time.NewTicker(faultPoll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.stopped():
			return nil
		case <-ticker.C:
			if s.o.Faults(FaultStopped) {
				return errors.New("stopped by a fault")
			}
		}
	}
}

// checkHealth is Talos's health check: a linearizable read through the local member, which learners and members without
// quorum fail. Only a healthy member has a local member resource.
func (s *Service) checkHealth(ctx context.Context, m *member) {
	cli, err := s.dialLocal()
	if err != nil {
		s.o.Log.Error("cannot check etcd's health", "member", s.o.Hostname, "error", err)
		return
	}
	defer cli.Close() //nolint:errcheck // it only reads
	pause(ctx, s.scaled(healthDelay, healthDelayFloor))
	for ctx.Err() == nil {
		err := s.ask(ctx, cli)
		if ctx.Err() != nil {
			return
		}
		learner := m.isLearner()
		s.set(func(st *Status) {
			st.Known, st.Healthy, st.Learner = true, err == nil, learner
			st.MemberID, st.LastMessage = m.id(), "Health check successful"
			if err != nil {
				st.MemberID, st.LastMessage = 0, "Health check failed: "+err.Error()
			}
		})
		pause(ctx, s.scaled(healthPeriod, healthPeriodFloor))
	}
}

func (s *Service) ask(ctx context.Context, cli *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, s.scaled(healthTimeout, healthTimeoutFloor))
	defer cancel()
	_, err := cli.Get(ctx, "health")
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		return nil // an answer that took a quorum
	}
	return err
}

func (s *Service) hasData() bool {
	entries, err := os.ReadDir(s.o.DataDir)
	return err == nil && len(entries) > 0
}

// scaled divides one of Talos's waits by the clock factor, but not below a floor.
func (s *Service) scaled(d, floor time.Duration) time.Duration {
	return max(time.Duration(float64(d)/s.o.Scale), floor)
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
