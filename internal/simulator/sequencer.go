package simulator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/proto"
)

// A sequence is one of the long procedures of which a machine runs at most one at a time.
type sequence int

const (
	seqInitialize sequence = 1 + iota
	seqInstall
	seqBoot
	seqReboot
	seqShutdown
	seqReset
	seqUpgrade
	seqStageUpgrade
	seqMaintenanceUpgrade
)

var sequenceNames = map[sequence]string{
	seqInitialize: "initialize", seqInstall: "install", seqBoot: "boot", seqReboot: "reboot", seqShutdown: "shutdown",
	seqReset: "reset", seqUpgrade: "upgrade", seqStageUpgrade: "stageUpgrade", seqMaintenanceUpgrade: "maintenanceUpgrade",
}

func (s sequence) String() string { return sequenceNames[s] }

// takeovers says which running sequence (key) gives way to which requested ones. Note that a reboot cancels a reset.
var takeovers = map[sequence][]sequence{
	seqInitialize: {seqReboot, seqMaintenanceUpgrade},
	seqBoot:       {seqReboot, seqReset, seqUpgrade, seqStageUpgrade},
	seqReboot:     {seqReboot},
	seqReset:      {seqReboot},
}

// takeoverTimeout is how long a sequence that takes over waits for the other to stop.
const takeoverTimeout = time.Minute

var errSequenceLocked = errors.New("locked")

// A task is one step of a phase. An ignored failure is forgotten, as Talos does for most of a reset.
type task struct {
	name   string
	ignore bool
	run    func(context.Context) error
}

// A phase is a group of tasks that run one after the other; Talos runs some of them together, which no client can tell.
type phase struct {
	name  string
	tasks []task
}

func single(phaseName, taskName string, run func(context.Context) error) phase {
	return phase{phaseName, []task{{name: taskName, run: run}}}
}

func ignoring(p phase) phase {
	for i := range p.tasks {
		p.tasks[i].ignore = true
	}
	return p
}

// An endingError ends the sequence and the boot with it: the machine restarts or powers off.
type endingError struct{ ending ending }

func (e endingError) Error() string { return "unix.Reboot" }

// A sequencer runs sequences under one lock.
type sequencer struct {
	publish  func(actorID string, m proto.Message)
	onEnding func(ending)
	scaled   func(time.Duration) time.Duration

	takeover chan struct{} // holds one token while somebody tries to get in
	free     chan struct{} // holds one token while nothing runs

	mu      sync.Mutex
	running sequence
	cancel  context.CancelFunc
}

func newSequencer(publish func(string, proto.Message), onEnding func(ending), scaled func(time.Duration) time.Duration) *sequencer {
	q := &sequencer{publish: publish, onEnding: onEnding, scaled: scaled, takeover: make(chan struct{}, 1), free: make(chan struct{}, 1)}
	q.free <- struct{}{}
	return q
}

// lock waits until the sequence may run and returns the context that it runs in. Forced ones take anything over.
func (q *sequencer) lock(ctx context.Context, seq sequence, forced bool) (context.Context, error) {
	timer := time.NewTimer(q.scaled(takeoverTimeout))
	defer timer.Stop()

	select {
	case q.takeover <- struct{}{}:
	case <-timer.C:
		return nil, errors.New("failed to acquire lock: timeout")
	}
	defer func() { <-q.takeover }()

	q.mu.Lock()
	running, cancel := q.running, q.cancel
	q.mu.Unlock()

	if running != 0 && !forced && !mayTakeOver(seq, running) {
		return nil, errSequenceLocked
	}
	if cancel != nil {
		cancel()
	}
	select {
	case <-q.free:
	case <-timer.C:
		return nil, errors.New("failed to acquire lock: timeout")
	}
	ctx, cancel = context.WithCancel(ctx)
	q.mu.Lock()
	q.running, q.cancel = seq, cancel
	q.mu.Unlock()
	return ctx, nil
}

func mayTakeOver(requested, running sequence) bool {
	for _, seq := range takeovers[running] {
		if seq == requested {
			return true
		}
	}
	return false
}

func (q *sequencer) unlock() {
	q.mu.Lock()
	q.cancel()
	q.running, q.cancel = 0, nil
	q.mu.Unlock()
	q.free <- struct{}{}
}

// current returns the running sequence, zero if there is none.
func (q *sequencer) current() sequence {
	q.mu.Lock()
	defer q.mu.Unlock()

	return q.running
}

// run carries out a sequence. A refusal shows only as an event without actor ID, since the caller was answered before.
// A failure is fatal for the boot; a cancelled sequence was taken over and ends nothing.
func (q *sequencer) run(ctx context.Context, actorID string, seq sequence, phases []phase, forced bool) error {
	ctx, err := q.lock(ctx, seq, forced)
	if err != nil {
		if errors.Is(err, errSequenceLocked) {
			q.refused(seq)
		}
		return err
	}
	defer q.unlock()

	err = q.runPhases(ctx, actorID, seq, phases)
	var end endingError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &end):
		q.onEnding(end.ending)
		return nil
	}
	code := common.Code_FATAL
	if errors.Is(err, context.Canceled) {
		code = common.Code_CANCELED
	}
	err = fmt.Errorf("sequence failed: %w", err)
	q.publish(actorID, &machine.SequenceEvent{
		Sequence: seq.String(), Action: machine.SequenceEvent_NOOP, Error: &common.Error{Code: code, Message: err.Error()},
	})
	if code == common.Code_FATAL {
		q.onEnding(ending{kind: endFatal, during: seq, reason: err.Error()})
	}
	return err
}

// refused publishes that a sequence did not start. The missing actor ID is Talos's: a stream filtered by it never sees this.
func (q *sequencer) refused(seq sequence) {
	q.publish("", &machine.SequenceEvent{
		Sequence: seq.String(), Action: machine.SequenceEvent_NOOP,
		Error: &common.Error{Code: common.Code_LOCKED, Message: "sequence not started: locked"},
	})
}

func (q *sequencer) runPhases(ctx context.Context, actorID string, seq sequence, phases []phase) error {
	q.publish(actorID, &machine.SequenceEvent{Sequence: seq.String(), Action: machine.SequenceEvent_START})
	defer q.publish(actorID, &machine.SequenceEvent{Sequence: seq.String(), Action: machine.SequenceEvent_STOP})

	for i, p := range phases {
		if err := q.runPhase(ctx, actorID, p); err != nil {
			return fmt.Errorf("error running phase %d in %s sequence: %w", i+1, seq, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

func (q *sequencer) runPhase(ctx context.Context, actorID string, p phase) error {
	q.publish(actorID, &machine.PhaseEvent{Phase: p.name, Action: machine.PhaseEvent_START})
	defer q.publish(actorID, &machine.PhaseEvent{Phase: p.name, Action: machine.PhaseEvent_STOP})

	for i, t := range p.tasks {
		if err := q.runTask(ctx, actorID, t); err != nil {
			return fmt.Errorf("task %d/%d: failed, %w", i+1, len(p.tasks), err)
		}
	}
	return nil
}

func (q *sequencer) runTask(ctx context.Context, actorID string, t task) error {
	q.publish(actorID, &machine.TaskEvent{Task: t.name, Action: machine.TaskEvent_START})
	defer q.publish(actorID, &machine.TaskEvent{Task: t.name, Action: machine.TaskEvent_STOP})

	err := t.run(ctx)
	if err != nil && t.ignore && ctx.Err() == nil && !errors.As(err, new(endingError)) {
		return nil
	}
	return err
}
