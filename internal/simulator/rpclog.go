package simulator

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
)

// rpcLogLimit bounds the memory of a long run; the oldest calls go first.
const rpcLogLimit = 200_000

// An RPC is one call that reached a machine's API, whether it was allowed or not. A forwarded call shows twice: at the
// machine that forwarded it and at the one that answered it.
type RPC struct {
	// Seq counts calls of the whole fleet, from 1, in the order of their arrival.
	Seq uint64 `json:"seq"`
	// Time is when the call arrived.
	Time time.Time `json:"time"`
	// Machine is the name of the machine that was called.
	Machine string `json:"machine"`
	// Method is the full gRPC name, such as "/machine.MachineService/Reset".
	Method string `json:"method"`
	// Peer is the caller's address and port.
	Peer string `json:"peer"`
	// Roles are the caller's roles, as the certificate (or maintenance mode) gave them.
	Roles []string `json:"roles"`
	// Mutating says that the method may change the machine or the cluster; a dry run counts, since it cancels a try.
	Mutating bool `json:"mutating"`
	// Detail tells calls of one method apart: the COSI resource, the mode of an apply, the wiped labels of a reset.
	Detail string `json:"detail,omitempty"`
	// Forwarded holds the nodes that the caller asked this machine to pass the call on to.
	Forwarded []string `json:"forwarded,omitempty"`
	// Done is false while the call runs; Code and Message mean nothing until then.
	Done bool `json:"done"`
	// Code is the result.
	Code codes.Code `json:"code"`
	// Message is the error's text, empty for OK.
	Message string `json:"message,omitempty"`
}

// RPCLog holds every call that reached any machine of a fleet. Tests prove with it what was sent, and what was not.
type RPCLog struct {
	mu      sync.Mutex
	seq     uint64
	rpcs    []*RPC
	changed chan struct{}
}

func newRPCLog() *RPCLog {
	return &RPCLog{changed: make(chan struct{})}
}

// Snapshot returns a copy of all calls so far, oldest first.
func (l *RPCLog) Snapshot() []RPC {
	return l.Since(0)
}

// Since returns a copy of the calls with a sequence number above seq, oldest first.
func (l *RPCLog) Since(seq uint64) []RPC {
	l.mu.Lock()
	defer l.mu.Unlock()

	from, _ := slices.BinarySearchFunc(l.rpcs, seq+1, func(r *RPC, want uint64) int {
		switch {
		case r.Seq < want:
			return -1
		case r.Seq > want:
			return 1
		default:
			return 0
		}
	})
	out := make([]RPC, 0, len(l.rpcs)-from)
	for _, r := range l.rpcs[from:] {
		c := *r
		c.Roles = slices.Clone(r.Roles)
		c.Forwarded = slices.Clone(r.Forwarded)
		out = append(out, c)
	}
	return out
}

// Wait blocks until the predicate holds for the calls so far, and returns ctx's error if that comes first.
func (l *RPCLog) Wait(ctx context.Context, predicate func([]RPC) bool) error {
	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()

		if predicate(l.Snapshot()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// begin records the arrival of a call.
func (l *RPCLog) begin(r RPC) *RPC {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.seq++
	r.Seq = l.seq
	if len(l.rpcs) >= rpcLogLimit {
		l.rpcs = slices.Delete(l.rpcs, 0, rpcLogLimit/10)
	}
	rec := &r
	l.rpcs = append(l.rpcs, rec)
	l.wake()
	return rec
}

// amend changes a recorded call under the log's lock: its details once they are known, its result at the end.
func (l *RPCLog) amend(r *RPC, change func(*RPC)) {
	l.mu.Lock()
	defer l.mu.Unlock()

	change(r)
	l.wake()
}

func (l *RPCLog) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}
