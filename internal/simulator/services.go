package simulator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// States of a service, by the names that ServiceList gives them.
const (
	svcStarting  = "Starting"
	svcWaiting   = "Waiting"
	svcPreparing = "Preparing"
	svcRunning   = "Running"
	svcStopping  = "Stopping"
	svcFinished  = "Finished"
	svcFailed    = "Failed"
)

// serviceHistory is how many events Talos keeps for each service.
const serviceHistory = 64

// A service is one entry of ServiceList.
type service struct {
	id         string
	state      string
	message    string
	known      bool // it has a health check that ran
	healthy    bool
	lastHealth string
	changed    time.Time
	history    []*machine.ServiceEvent
}

// services are the services of one boot.
type services struct {
	mu      sync.Mutex
	list    map[string]*service
	publish func(*machine.ServiceStateEvent)
	changed chan struct{}
}

func newServices(publish func(*machine.ServiceStateEvent)) *services {
	return &services{list: map[string]*service{}, publish: publish, changed: make(chan struct{})}
}

// set changes a service's state. The same state with the same message changes nothing.
func (v *services) set(id, state, message string) {
	v.mu.Lock()
	svc := v.ensure(id)
	if svc.state == state && svc.message == message {
		v.mu.Unlock()
		return
	}
	svc.state, svc.message = state, message
	if state != svcRunning {
		svc.known, svc.healthy = false, false
	}
	svc.history = append(svc.history, &machine.ServiceEvent{Msg: message, State: state, Ts: timestamppb.Now()})
	if len(svc.history) > serviceHistory {
		svc.history = slices.Delete(svc.history, 0, 1)
	}
	e := svc.event()
	v.wake()
	v.mu.Unlock()
	v.publish(e)
}

// health reports what a service's health check says.
func (v *services) health(id string, known, healthy bool, message string) {
	v.mu.Lock()
	svc := v.ensure(id)
	if svc.known == known && svc.healthy == healthy && svc.lastHealth == message {
		v.mu.Unlock()
		return
	}
	changed := svc.known != known || svc.healthy != healthy
	svc.known, svc.healthy, svc.lastHealth, svc.changed = known, healthy, message, time.Now()
	e := svc.event()
	v.wake()
	v.mu.Unlock()
	if changed {
		v.publish(e)
	}
}

// run marks services as running and healthy.
func (v *services) run(ids ...string) {
	for _, id := range ids {
		v.set(id, svcRunning, "Started task "+id)
		v.health(id, true, true, "")
	}
}

// finish marks services as stopped in order.
func (v *services) finish(ids ...string) {
	for _, id := range ids {
		if _, ok := v.get(id); ok {
			v.set(id, svcFinished, "Service finished successfully")
		}
	}
}

func (v *services) ensure(id string) *service {
	svc, ok := v.list[id]
	if !ok {
		svc = &service{id: id, changed: time.Now()}
		v.list[id] = svc
	}
	return svc
}

func (v *services) wake() {
	close(v.changed)
	v.changed = make(chan struct{})
}

// get returns a copy of a service.
func (v *services) get(id string) (service, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()

	svc, ok := v.list[id]
	if !ok {
		return service{}, false
	}
	return *svc, true
}

// snapshot returns copies of all services by name.
func (v *services) snapshot() []service {
	v.mu.Lock()
	defer v.mu.Unlock()

	out := make([]service, 0, len(v.list))
	for _, svc := range v.list {
		c := *svc
		c.history = slices.Clone(svc.history)
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b service) int { return strings.Compare(a.id, b.id) })
	return out
}

// up reports whether a service runs and, if it has a health check, passes it.
func (s *service) up() bool {
	return s.state == svcRunning && (!s.known || s.healthy)
}

// awaitUp waits until all services are up.
func (v *services) awaitUp(ctx context.Context, ids ...string) error {
	for {
		v.mu.Lock()
		changed := v.changed
		v.mu.Unlock()

		waiting := slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
			svc, ok := v.get(id)
			// etcd counts as up only after its first good health check; the others pass theirs as they start.
			return ok && svc.up() && (id != "etcd" || svc.healthy)
		})
		if len(waiting) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", strings.Join(waiting, ", "), ctx.Err())
		}
	}
}

func (s *service) event() *machine.ServiceStateEvent {
	return &machine.ServiceStateEvent{
		Service: s.id,
		Action:  machine.ServiceStateEvent_Action(machine.ServiceStateEvent_Action_value[strings.ToUpper(s.state)]),
		Message: s.message,
		Health:  s.proto().GetHealth(),
	}
}

func (s *service) proto() *machine.ServiceInfo {
	return &machine.ServiceInfo{
		Id:     s.id,
		State:  s.state,
		Events: &machine.ServiceEvents{Events: s.history},
		Health: &machine.ServiceHealth{
			Unknown: !s.known, Healthy: s.healthy, LastMessage: s.lastHealth, LastChange: timestamppb.New(s.changed),
		},
	}
}

// ServiceList lists the services.
func (s *system) ServiceList(context.Context, *emptypb.Empty) (*machine.ServiceListResponse, error) {
	list := &machine.ServiceList{}
	for _, svc := range s.services.snapshot() {
		list.Services = append(list.Services, svc.proto())
	}
	return &machine.ServiceListResponse{Messages: []*machine.ServiceList{list}}, nil
}

// ServiceStart starts a service; only the kubelet can be started so.
func (s *system) ServiceStart(_ context.Context, in *machine.ServiceStartRequest) (*machine.ServiceStartResponse, error) {
	if err := s.operable(in.GetId(), "start"); err != nil {
		return nil, err
	}
	return &machine.ServiceStartResponse{Messages: []*machine.ServiceStart{{Resp: fmt.Sprintf("Service %q started", in.GetId())}}}, nil
}

// ServiceStop always refuses: no service of Talos itself can be stopped so.
func (s *system) ServiceStop(_ context.Context, in *machine.ServiceStopRequest) (*machine.ServiceStopResponse, error) {
	if _, ok := s.services.get(in.GetId()); !ok {
		return nil, fmt.Errorf("service %q not defined", in.GetId())
	}
	return nil, fmt.Errorf("service %q doesn't support stop operation via API", in.GetId())
}

// ServiceRestart restarts a service; only the kubelet can be restarted so.
func (s *system) ServiceRestart(_ context.Context, in *machine.ServiceRestartRequest) (*machine.ServiceRestartResponse, error) {
	if err := s.operable(in.GetId(), "restart"); err != nil {
		return nil, err
	}
	s.services.set("kubelet", svcStopping, "Service is being restarted")
	s.services.run("kubelet")
	return &machine.ServiceRestartResponse{Messages: []*machine.ServiceRestart{{Resp: fmt.Sprintf("Service %q restarted", in.GetId())}}}, nil
}

func (s *system) operable(id, operation string) error {
	if _, ok := s.services.get(id); !ok {
		return fmt.Errorf("service %q not defined", id)
	}
	if id != "kubelet" {
		return fmt.Errorf("service %q doesn't support %s operation via API", id, operation)
	}
	return nil
}
