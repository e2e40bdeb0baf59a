package simulator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/protobuf/proto"
)

func (s *system) currentStage() runtime.MachineStage {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.stage
}

func (s *system) unmetConditions() []runtime.UnmetCondition {
	s.mu.Lock()
	defer s.mu.Unlock()

	return slices.Clone(s.unmet)
}

// followStage derives the stage from the events, as Talos does. That is why a boot which fails shows as running for a moment.
func (s *system) followStage(payload proto.Message) {
	s.mu.Lock()
	was := s.stage
	switch e := payload.(type) {
	case *machine.SequenceEvent:
		s.followSequence(e)
	case *machine.PhaseEvent:
		if e.GetAction() == machine.PhaseEvent_START {
			s.followPhase(e.GetPhase())
		}
	case *machine.TaskEvent:
		if e.GetTask() != "runningMaintenance" {
			break
		}
		switch e.GetAction() {
		case machine.TaskEvent_START:
			s.stage = runtime.MachineStageMaintenance
		case machine.TaskEvent_STOP:
			s.stage = runtime.MachineStageBooting
		}
	}
	changed := s.stage != was
	s.mu.Unlock()
	if changed {
		s.refreshStatus()
		s.m.notify()
	}
}

func (s *system) followSequence(e *machine.SequenceEvent) {
	switch e.GetAction() {
	case machine.SequenceEvent_START:
		s.sequence = e.GetSequence()
		switch e.GetSequence() {
		case seqInitialize.String(), seqBoot.String():
			s.stage = runtime.MachineStageBooting
		case seqShutdown.String():
			s.stage = runtime.MachineStageShuttingDown
		case seqUpgrade.String(), seqStageUpgrade.String(), seqMaintenanceUpgrade.String():
			s.stage = runtime.MachineStageUpgrading
		case seqReset.String():
			s.stage = runtime.MachineStageResetting
		case seqReboot.String():
			s.stage = runtime.MachineStageRebooting
		}
	case machine.SequenceEvent_NOOP:
		if e.GetError().GetCode() == common.Code_FATAL && e.GetSequence() != seqShutdown.String() {
			s.stage = runtime.MachineStageRebooting
		}
	case machine.SequenceEvent_STOP:
		if e.GetSequence() == seqBoot.String() {
			s.stage = runtime.MachineStageRunning
		}
		s.sequence = ""
	}
}

func (s *system) followPhase(name string) {
	switch {
	case name == "install" && s.sequence == seqInstall.String():
		s.stage = runtime.MachineStageInstalling
	case name == "kexec" && slices.Contains([]string{
		seqInstall.String(), seqUpgrade.String(), seqStageUpgrade.String(), seqMaintenanceUpgrade.String(),
	}, s.sequence):
		s.stage = runtime.MachineStageRebooting
	}
}

// refreshStatus evaluates the conditions and publishes MachineStatus, as resource and as event.
func (s *system) refreshStatus() {
	stage := s.currentStage()
	var unmet []runtime.UnmetCondition
	if stage == runtime.MachineStageBooting || stage == runtime.MachineStageRunning {
		unmet = s.checkConditions() // in every other stage the machine counts as ready
	}
	s.put(func(ctx context.Context) error {
		return safe.StateModify(ctx, s.cosi, runtime.NewMachineStatus(), func(r *runtime.MachineStatus) error {
			r.TypedSpec().Stage = stage
			r.TypedSpec().Status = runtime.MachineStatusStatus{Ready: len(unmet) == 0, UnmetConditions: unmet}
			return nil
		})
	})
	e := statusEvent(stage, unmet)
	s.mu.Lock()
	s.unmet = unmet
	changed := !proto.Equal(e, s.published)
	s.published = e
	s.mu.Unlock()
	if changed {
		s.events.publish("", e)
		s.m.notify()
	}
	if stage == runtime.MachineStageRunning && len(unmet) == 0 {
		s.m.disks.dropFallback()
	}
}

func statusEvent(stage runtime.MachineStage, unmet []runtime.UnmetCondition) *machine.MachineStatusEvent {
	e := &machine.MachineStatusEvent{
		Stage:  machine.MachineStatusEvent_MachineStage(stage),
		Status: &machine.MachineStatusEvent_MachineStatus{Ready: len(unmet) == 0},
	}
	for _, c := range unmet {
		e.Status.UnmetConditions = append(e.Status.UnmetConditions,
			&machine.MachineStatusEvent_MachineStatus_UnmetCondition{Name: c.Name, Reason: c.Reason})
	}
	return e
}

func (s *system) checkConditions() []runtime.UnmetCondition {
	unmet := []runtime.UnmetCondition{}
	if s.m.faults.has(FaultTimeUnsynced) {
		unmet = append(unmet, runtime.UnmetCondition{Name: "time", Reason: "time is not synced"})
	}
	if problems := s.serviceProblems(); len(problems) > 0 {
		unmet = append(unmet, runtime.UnmetCondition{Name: "services", Reason: strings.Join(problems, ", ")})
	}
	if reason := s.nodeProblem(); reason != "" {
		unmet = append(unmet, runtime.UnmetCondition{Name: "nodeReady", Reason: reason})
	}
	return unmet
}

func (s *system) serviceProblems() []string {
	required := []string{"apid", "machined", "kubelet"}
	if cfg := s.activeConfig(); cfg != nil && cfg.CompleteForBoot() && cfg.Machine().Type().IsControlPlane() {
		required = append(required, "etcd", "trustd")
	}
	problems := []string{}
	running := map[string]bool{}
	for _, svc := range s.services.snapshot() {
		if svc.state != svcRunning {
			continue
		}
		running[svc.id] = true
		if svc.known && !svc.healthy {
			problems = append(problems, svc.id+" not healthy")
		}
	}
	for _, id := range required {
		if !running[id] {
			problems = append(problems, id+" not running")
		}
	}
	return problems
}

func (s *system) nodeProblem() string {
	if !s.configured() {
		return ""
	}
	ready, known := s.nodeReady()
	switch {
	case !known:
		return fmt.Sprintf("node %q status is not available yet", s.hostname())
	case !ready:
		return fmt.Sprintf("node %q is not ready", s.hostname())
	default:
		return ""
	}
}
