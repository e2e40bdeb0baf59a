package simulator

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Values of RestartEvent.cmd: Linux's reboot commands.
const (
	cmdRestart  = 0x1234567
	cmdPowerOff = 0x4321fedc
)

const (
	// kubeletStop is how long pods and kubelet usually take to stop.
	kubeletStop = 10 * time.Second
	// kubeletSlowStop is Talos's worst case: 40 attempts of 30 seconds.
	kubeletSlowStop = 20 * time.Minute
	// apiNotice is the time between the event that says that all services stop and the end of the API.
	apiNotice = 2 * time.Second
	// apiNoticeMin keeps that event deliverable at high scales.
	apiNoticeMin = 50 * time.Millisecond
)

// start runs a sequence in the background; the caller is answered at once, whatever becomes of it.
func (s *system) start(actorID string, seq sequence, phases []phase, forced bool) {
	s.workers.Go(func() {
		if err := s.seq.run(s.ctx, actorID, seq, phases, forced); err != nil {
			s.log.Info("sequence did not finish", "sequence", seq.String(), "error", err)
		}
	})
}

// endWith is the task that ends the boot.
func (s *system) endWith(kind endKind) func(context.Context) error {
	return func(context.Context) error {
		cmd := int64(cmdRestart)
		if kind == endPowerOff {
			cmd = cmdPowerOff
		}
		s.publish("", &machine.RestartEvent{Cmd: cmd})
		return endingError{ending{kind: kind, during: s.seq.current()}}
	}
}

// cleanup stops the pods. Failures are ignored, but it can take very long.
func (s *system) cleanup(taskName, hangFault string) phase {
	return ignoring(single("cleanup", taskName, func(ctx context.Context) error {
		if hangFault != "" && s.m.faults.has(hangFault) {
			<-ctx.Done()
			return ctx.Err()
		}
		if s.m.faults.has(FaultKubeletSlowStop) {
			return sleep(ctx, s.scaled(kubeletSlowStop))
		}
		return sleep(ctx, s.scaled(kubeletStop))
	}))
}

// stopAll is the tail that reset, reboot and shutdown share: services, mounts, and at last the API itself.
func (s *system) stopAll(kexec bool) []phase {
	phases := []phase{
		single("stopServices", "stopServicesForUpgrade", s.stopServices),
		single("umount", "unmountPodMounts", nothing),
		single("unmountBind", "unmountSystemDiskBindMounts", nothing),
		single("unmountSystem", "unmountEphemeralPartition", s.unmountEphemeral),
		single("volumeFinalize", "teardownLifecycle", nothing),
	}
	if kexec {
		phases = append(phases, single("kexec", "kexecPrepare", nothing))
	}
	return append(phases, s.stopEverything())
}

// stopServices stops what hangs on the container runtime: kubelet, etcd and trustd.
func (s *system) stopServices(context.Context) error {
	s.stopKubelet()
	s.mu.Lock()
	etcd := s.etcd
	s.mu.Unlock()
	if etcd != nil {
		etcd.Stop()
		s.m.fleet.etcdChanged(s)
	}
	s.services.finish("kubelet", "etcd", "trustd", "cri")
	return nil
}

func (s *system) unmountEphemeral(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.ephemeral = false
	return nil
}

// stopEverything ends the API. From here on no client can be told anything, the outcome of a wipe least of all.
func (s *system) stopEverything() phase {
	return single("stopEverything", "stopAllServices", func(ctx context.Context) error {
		if err := sleep(ctx, max(s.scaled(apiNotice), apiNoticeMin)); err != nil {
			return err
		}
		s.flushConfig()
		s.stopAPI(false)
		s.services.finish("apid", "machined", "containerd", "auditd", "syslogd", "udevd", "dashboard")
		return nil
	})
}

func (s *system) rebootPhases(mode machine.RebootRequest_Mode) []phase {
	reboot := single("reboot", "reboot", s.endWith(endReboot))
	if mode == machine.RebootRequest_FORCE {
		return []phase{reboot}
	}
	phases := []phase{s.cleanup("stopAllPods", FaultRebootHangs), single("dbus", "stopDBus", nothing)}
	phases = append(phases, s.stopAll(mode == machine.RebootRequest_DEFAULT)...)
	return append(phases, reboot)
}

// Reboot starts a reboot. It takes over a running boot, reboot or reset, and nothing else.
func (s *system) Reboot(_ context.Context, in *machine.RebootRequest) (*machine.RebootResponse, error) {
	actor := uuid.NewString()
	s.start(actor, seqReboot, s.rebootPhases(in.GetMode()), false)
	return &machine.RebootResponse{Messages: []*machine.Reboot{{ActorId: actor}}}, nil
}

// Shutdown powers the machine off. It takes over anything; without force, a drain that fails is fatal, which ends in a
// power-off all the same.
func (s *system) Shutdown(_ context.Context, in *machine.ShutdownRequest) (*machine.ShutdownResponse, error) {
	actor := uuid.NewString()
	phases := []phase{single("storeShutdown", "storeShutdownEmergency", nothing)}
	if !in.GetForce() {
		phases = append(phases, single("drain", "cordonAndDrainNode", s.drain))
	}
	phases = append(phases, s.cleanup("stopAllPods", ""), single("dbus", "stopDBus", nothing))
	phases = append(phases, s.stopAll(false)...)
	phases = append(phases, single("shutdown", "shutdown", s.endWith(endPowerOff)))
	s.start(actor, seqShutdown, phases, true)
	return &machine.ShutdownResponse{Messages: []*machine.Shutdown{{ActorId: actor}}}, nil
}

// Rollback makes the other boot entry the default and reboots, taking over anything. There is no actor ID in the reply.
func (s *system) Rollback(context.Context, *machine.RollbackRequest) (*machine.RollbackResponse, error) {
	if s.m.disks.system() == "" {
		return nil, status.Error(codes.FailedPrecondition, "system disk not found")
	}
	if !s.m.disks.rollback() {
		return nil, errors.New("cannot revert: there is no other boot entry")
	}
	s.start("", seqReboot, s.rebootPhases(machine.RebootRequest_DEFAULT), true)
	return &machine.RollbackResponse{Messages: []*machine.Rollback{{}}}, nil
}
