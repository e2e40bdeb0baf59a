package simulator

import (
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cosi-project/runtime/pkg/state"
	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"golang.org/x/mod/semver"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// An endKind says how a boot ended.
type endKind int

const (
	endReboot endKind = 1 + iota
	endPowerOff
	endPowerCut
	endFatal
)

func (k endKind) String() string {
	return map[endKind]string{endReboot: "reboot", endPowerOff: "power off", endPowerCut: "power cut", endFatal: "fatal error"}[k]
}

// An ending is how and why a boot ended.
type ending struct {
	kind   endKind
	during sequence
	reason string
}

// fatalCountdown is how long a machine waits between a fatal error and the reboot that follows.
const fatalCountdown = 10 * time.Second

// A system is Talos from one boot to the next. Everything in it is lost when it ends; what lasts is the machine's storage.
type system struct {
	machine.UnimplementedMachineServiceServer

	m        *Machine
	log      *slog.Logger
	defs     *definitionSet
	bootID   string
	bootTime time.Time
	version  string

	ctx    context.Context //nolint:containedctx // the life of the boot
	cancel context.CancelFunc

	cosi     state.State
	events   *eventRing
	journal  *journal
	seq      *sequencer
	services *services
	backends backends
	endings  chan ending
	dirty    chan struct{}
	closing  sync.Once
	workers  sync.WaitGroup // background writers, waited for at the end

	applying  sync.Mutex // held while an ApplyConfiguration runs
	lifecycle sync.Mutex // held while an installation or upgrade runs

	mu         sync.Mutex
	stage      runtime.MachineStage
	sequence   string // the one that the last event spoke of
	unmet      []runtime.UnmetCondition
	published  *machine.MachineStatusEvent
	active     config.Provider
	persistent config.Provider
	unwritten  []byte // accepted, not yet on disk
	complete   chan struct{}
	rollback   *time.Timer
	rebooting  bool // a configuration was applied that waits for the reboot
	api        *api
	apiUp      time.Time
	serverCert *issued
	etcd       etcdService
	kubeNode   string // node name registered with the cluster's Kubernetes
	ephemeral  bool   // EPHEMERAL is mounted
	gone       bool   // a reset took the machine out of discovery
}

func newSystem(ctx context.Context, m *Machine) *system {
	s := &system{
		m: m, log: m.log, defs: m.fleet.defs, bootID: uuid.NewString(), bootTime: time.Now(), version: m.bootVersion(),
		cosi: newResources(m.fleet.defs), events: newEventRing(), journal: newJournal(), endings: make(chan ending, 1), dirty: make(chan struct{}, 1),
		complete: make(chan struct{}), backends: backends{conns: map[string]*grpc.ClientConn{}},
	}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.seq = newSequencer(s.publish, s.end, s.scaled)
	s.services = newServices(func(e *machine.ServiceStateEvent) {
		s.publish("", e)
	})
	return s
}

// live runs the boot to its end and says how it ended.
func (s *system) live() ending {
	s.log.Info("booting", "boot", s.bootID, "version", s.version)
	s.consolef("booting Talos %s", s.version)
	s.workers.Go(s.observe)
	s.workers.Go(s.boot)

	var end ending
	select {
	case end = <-s.endings:
	case <-s.ctx.Done():
		s.close(true)
		return ending{kind: endPowerCut}
	}
	if end.kind == endFatal {
		if sleep(s.ctx, s.scaled(fatalCountdown)) != nil {
			s.close(true)
			return ending{kind: endPowerCut}
		}
		if end.during == seqShutdown {
			end.kind = endPowerOff
		}
		if version, ok := s.m.disks.revert(); ok {
			s.log.Info("reverting to the previous version", "version", version)
		}
	}
	s.flushConfig()
	s.close(false)
	return end
}

// end notes how the boot is to end; the first one counts.
func (s *system) end(e ending) {
	select {
	case s.endings <- e:
	default:
	}
}

// close stops everything that still runs. A power cut does not wait for anybody.
func (s *system) close(cut bool) {
	s.closing.Do(func() {
		s.stopAPI(cut)
		s.cancel()
		s.mu.Lock()
		if s.rollback != nil {
			s.rollback.Stop()
		}
		etcd := s.etcd
		s.mu.Unlock()
		s.stopKubelet()
		if etcd != nil {
			etcd.Stop()
		}
		s.m.fleet.etcdChanged(s)
		s.m.fleet.discovery.orphan(s, s.scaled(discoveryTTL))
		s.backends.close()
		s.workers.Wait()
	})
}

func (s *system) scaled(d time.Duration) time.Duration { return s.m.fleet.scaled(d) }

// now is the machine's clock.
func (s *system) now() time.Time {
	switch {
	case s.m.faults.has(FaultClockFarBehind):
		return time.Now().Add(-2 * clockBehind)
	case s.m.faults.has(FaultClockBehind):
		return time.Now().Add(-clockBehind)
	}
	return time.Now()
}

// is112 is true on Talos 1.12, whose maintenance mode is a server of its own.
func (s *system) is112() bool {
	return semver.Compare(s.version, "v1.13.0-alpha.0") < 0
}

// publish adds an event and lets it have its effect on the stage.
func (s *system) publish(actorID string, payload proto.Message) {
	s.narrate(payload)
	s.events.publish(actorID, payload)
	s.followStage(payload)
	s.kick()
}

// kick asks for the resources to be brought up to date.
func (s *system) kick() {
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}

// setAPI replaces the running API with one in another mode.
func (s *system) setAPI(mode apiMode) error {
	s.mu.Lock()
	same := s.api != nil && s.api.mode == mode
	s.mu.Unlock()
	if same {
		return nil
	}
	s.stopAPI(false)
	a, err := s.startAPI(mode)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		a.kill()
		return s.ctx.Err()
	}
	s.api, s.apiUp = a, a.since
	s.mu.Unlock()
	s.kick() // from now on the others may know of this machine
	s.m.notify()
	return nil
}

func (s *system) stopAPI(cut bool) {
	s.mu.Lock()
	a := s.api
	s.api, s.apiUp = nil, time.Time{}
	s.mu.Unlock()
	switch {
	case a == nil:
		return
	case cut:
		a.kill()
	default:
		a.stop()
	}
	s.m.notify()
}

func (s *system) refuseConnections() {
	s.mu.Lock()
	a := s.api
	s.mu.Unlock()
	if a != nil {
		a.gate.refuse()
	}
}

func (s *system) dropConnections() {
	s.mu.Lock()
	a := s.api
	s.mu.Unlock()
	if a != nil {
		a.gate.dropConnections()
	}
}

// apiOpen reports whether the API's port takes connections.
func (s *system) apiOpen() bool {
	s.mu.Lock()
	a := s.api
	s.mu.Unlock()
	return a != nil && a.gate.listening()
}

func (s *system) apiSince() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.apiUp
}

// An issued certificate remembers what it was issued for.
type issued struct {
	cert     *tls.Certificate
	config   config.Provider
	hostname string
	at       time.Time
}

func (s *system) tlsConfig(mode apiMode) (*tls.Config, error) {
	if mode == apiMaintenance {
		return maintenanceTLS(s.m.spec.Address, func() bool { return s.m.faults.has(FaultFingerprintChange) })
	}
	pool := func() *stdx509.CertPool {
		if s.m.faults.has(FaultOtherCluster) {
			return s.m.fleet.otherCluster.pool
		}
		if cfg := s.activeConfig(); cfg != nil && cfg.Machine() != nil {
			return acceptedCAs(cfg)
		}
		return stdx509.NewCertPool()
	}
	cert := func() (*tls.Certificate, error) {
		if s.m.faults.has(FaultOtherCluster) {
			return s.m.fleet.otherCluster.serverCertificate(s.m.spec.Address, s.hostname())
		}
		return s.certificate()
	}
	return runningTLS(pool, cert, s.now), nil
}

// certificate returns the server certificate of a configured machine, a new one when the configuration, the hostname or half
// of its life went by. Control planes issue it to themselves; workers need a control plane of their cluster.
func (s *system) certificate() (*tls.Certificate, error) {
	cfg, hostname := s.activeConfig(), s.hostname()
	s.mu.Lock()
	have := s.serverCert
	s.mu.Unlock()
	if have != nil && have.config == cfg && have.hostname == hostname && time.Since(have.at) < certificateRenewal {
		return have.cert, nil
	}
	if cfg == nil || cfg.Machine() == nil {
		return nil, errors.New("no machine configuration")
	}
	ca := cfg.Machine().Security().IssuingCA()
	if !cfg.Machine().Type().IsControlPlane() {
		if ca = s.m.fleet.trustd(cfg); ca == nil {
			if have != nil {
				return have.cert, nil
			}
			return nil, errors.New("no control plane issues a certificate")
		}
	}
	cert, err := serverCertificate(ca, s.m.spec.Address, hostname, cfg.Machine().Security().CertSANs(), s.now())
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.serverCert = &issued{cert: cert, config: cfg, hostname: hostname, at: time.Now()}
	s.mu.Unlock()
	return cert, nil
}
