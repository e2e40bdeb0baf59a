package etcdmember

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"

	"github.com/siderolabs/crypto/x509"
)

// States of the service, as Talos names them.
const (
	StatePreparing = "Preparing" // waits to join or to be bootstrapped
	StateRunning   = "Running"   // etcd runs, healthy or not
	StateWaiting   = "Waiting"   // etcd exited and is about to be started again
	StateFinished  = "Finished"  // stopped, or left its cluster
	StateFailed    = "Failed"    // could not be prepared; only a reboot or Bootstrap gets it out of this
)

// Faults that the service asks for by name.
const (
	FaultLeaveFails        = "etcd-leave-fails"        // leaving is refused, nothing changes
	FaultLeaveHangs        = "etcd-leave-hangs"        // leaving never answers, nothing changes
	FaultLeaveOKButError   = "etcd-leave-ok-but-error" // the call leaves, and answers an error
	FaultLeaveLate         = "etcd-leave-late"         // the call leaves once its caller has given up
	FaultNoPromote         = "etcd-no-promote"         // a learner does not ask for its promotion
	FaultSnapshotTruncated = "etcd-snapshot-truncated" // a snapshot ends early, with OK
	FaultJoinInterrupted   = "etcd-join-interrupted"   // a join dies between MemberAdd and the start of etcd
	FaultBootstrapFails    = "etcd-bootstrap-fails"    // Bootstrap answers OK, and then the service fails
	FaultStopped           = "etcd-stopped"            // etcd does not run
	FaultMembersDiffer     = "etcd-members-differ"     // the list of members lacks the last other one by name
)

// Options of a Service.
type Options struct {
	// DataDir is /var/lib/etcd of the machine's EPHEMERAL.
	DataDir string
	// SnapshotPath is /var/lib/etcd.snapshot. Its directory exists as long as EPHEMERAL is mounted.
	SnapshotPath string
	// PKIDir is where the member's certificates lie while etcd runs. It belongs to this member alone.
	PKIDir string
	// Hostname is the name of the member.
	Hostname string
	// Address is where etcd listens: clients on 2379, peers on 2380.
	Address netip.Addr
	// CA is the etcd CA of the cluster's secrets bundle, with its key.
	CA *x509.PEMEncodedCertificateAndKey
	// Endpoints are the control planes that discovery knows, stale ones and this one included.
	Endpoints func() []netip.Addr
	// Scale divides Talos's waits; 1, which is also what zero means, is real time. Some waits have a floor, because etcd's own
	// timing does not scale.
	Scale float64
	// OnChange is called after each change of the status. Two calls may come in any order: what counts is what Service.Status
	// returns. It must not start, stop, bootstrap or leave, which wait for whoever calls it.
	OnChange func(Status)
	// Faults tells whether a fault is on.
	Faults func(name string) bool
	Log    *slog.Logger
}

// A Status is what the service says of itself.
type Status struct {
	State       string
	Known       bool // a health check ran
	Healthy     bool
	LastMessage string
	// MemberID is the local member as Talos's own resource tells it: zero unless the service is healthy.
	MemberID uint64
	// Learner says that the last health check met a member without a vote.
	Learner bool
}

// A Service is the etcd service of one machine for one boot: once stopped it does not start again.
type Service struct {
	o    Options
	pki  *pki
	life context.Context //nolint:containedctx // the boot that the service lives in; every call and run ends with it
	end  context.CancelFunc

	// turn is held by whoever starts or halts etcd or removes its data, so that these never overlap.
	turn sync.Mutex
	run  *run

	mu     sync.Mutex
	status Status
}

// New makes a service; nothing runs before Start. It fails if the CA cannot issue certificates.
func New(o Options) (*Service, error) {
	if o.Scale <= 0 {
		o.Scale = 1
	}
	if o.OnChange == nil {
		o.OnChange = func(Status) {}
	}
	if o.Faults == nil {
		o.Faults = func(string) bool { return false }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p, err := newPKI(o.CA, o.Hostname, o.Address)
	if err != nil {
		return nil, fmt.Errorf("cannot issue etcd certificates for %q: %w", o.Hostname, err)
	}
	life, end := context.WithCancel(context.Background())
	return &Service{o: o, pki: p, life: life, end: end}, nil
}

// Start runs the service in the background: with data it starts etcd, without it waits to join or to be bootstrapped. It is
// idempotent.
func (s *Service) Start() {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.run == nil && s.life.Err() == nil {
		s.run = s.begin(nil)
	}
}

// Stop ends etcd and everything that waits for it, and keeps the data, as a reboot does. When it returns the listeners and all
// connections are closed. It may be called at any time and any number of times.
func (s *Service) Stop() {
	s.end()
	s.turn.Lock()
	defer s.turn.Unlock()
	s.halt()
	s.set(func(st *Status) { *st = Status{State: StateFinished, LastMessage: "Service finished successfully"} })
}

// Status returns what the service says of itself now.
func (s *Service) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// halt ends the current run, if there is one, and waits for it. The caller has the turn.
func (s *Service) halt() {
	if s.run == nil {
		return
	}
	s.run.cancel()
	<-s.run.done
	s.run = nil
}

func (s *Service) set(change func(*Status)) {
	s.mu.Lock()
	before := s.status
	change(&s.status)
	after := s.status
	s.mu.Unlock()
	if before != after {
		s.o.OnChange(after)
	}
}
