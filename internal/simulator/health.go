package simulator

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc"
)

// healthPoll is the time between two looks at a check that has not passed yet.
const healthPoll = 5 * time.Second

type clusterServer struct {
	clusterapi.UnimplementedClusterServiceServer
	s *system
}

// A healthTarget is one machine that a health check asks, by the address that it asks.
type healthTarget struct {
	address      string
	controlPlane bool
	sys          *system // nil if no Talos runs there
}

// healthChecks are asked one after the other, each until it passes. They say what is wrong, or "" if nothing is.
var healthChecks = []struct {
	what string
	ask  func(healthTarget) string
}{
	{"apid to be ready", func(t healthTarget) string {
		if t.sys == nil || !t.sys.m.APIUp() {
			return "no answer"
		}
		return ""
	}},
	{"etcd to be healthy", func(t healthTarget) string {
		if !t.controlPlane {
			return ""
		}
		return serviceHealth(t, "etcd")
	}},
	{"kubelet to be healthy", func(t healthTarget) string { return serviceHealth(t, "kubelet") }},
	{"all nodes to finish boot sequence", func(t healthTarget) string {
		if t.sys == nil || t.sys.currentStage() != runtime.MachineStageRunning {
			return "expected stage \"running\""
		}
		return ""
	}},
	{"all k8s nodes to report ready", func(t healthTarget) string {
		if t.sys == nil {
			return "no answer"
		}
		return t.sys.nodeProblem()
	}},
}

func serviceHealth(t healthTarget, id string) string {
	if t.sys == nil {
		return "no answer"
	}
	svc, ok := t.sys.services.get(id)
	switch {
	case !ok:
		return fmt.Sprintf("service %q not found", id)
	case svc.state != svcRunning:
		return fmt.Sprintf("service %q not in expected state \"Running\": current state [%s] %s", id, svc.state, svc.message)
	case svc.known && !svc.healthy:
		return fmt.Sprintf("service is not healthy: %s", id)
	default:
		return ""
	}
}

// HealthCheck reports how the checks of a cluster go, until all of them have passed or the caller's time is up. The nodes are
// those that the caller names, else those that the machine sees.
func (v *clusterServer) HealthCheck(in *clusterapi.HealthCheckRequest, stream grpc.ServerStreamingServer[clusterapi.HealthCheckProgress]) error {
	ctx, cancel := context.WithTimeout(stream.Context(), in.GetWaitTimeout().AsDuration())
	defer cancel()
	controlPlanes, workers := in.GetClusterInfo().GetControlPlaneNodes(), in.GetClusterInfo().GetWorkerNodes()
	if len(controlPlanes)+len(workers) == 0 {
		if controlPlanes, workers = v.s.clusterNodes(); len(controlPlanes) == 0 {
			return fmt.Errorf("error discovering nodes: no control plane is known")
		}
	}
	say := func(format string, a ...any) error {
		return stream.Send(&clusterapi.HealthCheckProgress{Message: fmt.Sprintf(format, a...)})
	}
	if err := say("discovered nodes: control plane: %q, worker: %q", controlPlanes, workers); err != nil {
		return err
	}
	for _, check := range healthChecks {
		for last := ""; ; {
			problem := v.s.healthProblem(controlPlanes, workers, check.ask)
			line := fmt.Sprintf("waiting for %s: %s", check.what, problem)
			if problem == "" {
				line = fmt.Sprintf("waiting for %s: OK", check.what)
			}
			if line != last {
				if err := say("%s", line); err != nil {
					return err
				}
			}
			if last = line; problem == "" {
				break
			}
			if err := sleep(ctx, v.s.scaled(healthPoll)); err != nil {
				return err
			}
		}
	}
	return nil
}

// clusterNodes are the addresses of the machines that this one sees in its cluster.
func (s *system) clusterNodes() (controlPlanes, workers []string) {
	for _, a := range s.m.fleet.discovery.list(s.clusterID()) {
		address := firstAddress(a.spec.Addresses)
		if a.spec.MachineType == machinetype.TypeWorker {
			workers = append(workers, address)
		} else {
			controlPlanes = append(controlPlanes, address)
		}
	}
	return controlPlanes, workers
}

func firstAddress(addresses []netip.Addr) string {
	if len(addresses) == 0 {
		return ""
	}
	return addresses[0].String()
}

// healthProblem asks every node, and says of each that has a problem what it is.
func (s *system) healthProblem(controlPlanes, workers []string, ask func(healthTarget) string) string {
	problems := []string{}
	for i, address := range append(append([]string{}, controlPlanes...), workers...) {
		t := healthTarget{address: address, controlPlane: i < len(controlPlanes)}
		if m := s.m.fleet.byAddress(address); m != nil {
			t.sys = m.system()
		}
		if problem := ask(t); problem != "" {
			problems = append(problems, address+": "+problem)
		}
	}
	return strings.Join(problems, "; ")
}
