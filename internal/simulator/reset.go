package simulator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
)

// wipeTime is how long a fast wipe takes.
const wipeTime = 3 * time.Second

// A wipePlan is what a Reset request comes down to.
type wipePlan struct {
	labels     []string // partitions to delete
	wholeDisk  bool     // the entire system disk, boot loader and all
	userDisks  []string
	wantLabels bool // labels were given, even if all of them say "do not wipe"
}

// Reset wipes the machine, and powers it off or reboots it. The answer proves nothing: what it starts may be refused, fail,
// or reboot the machine as it was.
func (s *system) Reset(ctx context.Context, in *machine.ResetRequest) (*machine.ResetResponse, error) {
	plan, err := s.planWipe(ctx, in)
	if err != nil {
		return nil, err
	}
	actor := uuid.NewString()
	if s.m.faults.has(FaultResetLocked) {
		s.seq.refused(seqReset)
	} else {
		s.start(actor, seqReset, s.resetPhases(in, plan), false)
	}
	return &machine.ResetResponse{Messages: []*machine.Reset{{ActorId: actor}}}, nil
}

// planWipe checks a request in Talos's order, with Talos's texts.
func (s *system) planWipe(ctx context.Context, in *machine.ResetRequest) (wipePlan, error) {
	plan := wipePlan{userDisks: in.GetUserDisksToWipe(), wantLabels: len(in.GetSystemPartitionsToWipe()) > 0}
	if len(plan.userDisks) > 0 {
		if in.GetMode() == machine.ResetRequest_SYSTEM_DISK {
			return plan, errors.New("reset failed: invalid input, wipe mode SYSTEM_DISK doesn't support UserDisksToWipe parameter")
		}
		if err := s.checkUserDisks(plan.userDisks); err != nil {
			return plan, err
		}
	}
	if plan.wantLabels && in.GetMode() == machine.ResetRequest_USER_DISKS {
		return plan, errors.New("reset failed: invalid input, wipe mode USER_DISKS doesn't support SystemPartitionsToWipe parameter")
	}
	for _, p := range in.GetSystemPartitionsToWipe() {
		volume, err := safe.ReaderGetByID[*block.VolumeStatus](ctx, s.cosi, p.GetLabel())
		if err != nil {
			return plan, fmt.Errorf("failed to get volume status with label %q: %w", p.GetLabel(), err)
		}
		if volume.TypedSpec().Location == "" {
			return plan, fmt.Errorf("failed to reset: volume %q is not located", p.GetLabel())
		}
		if p.GetWipe() {
			plan.labels = append(plan.labels, p.GetLabel())
		}
	}
	plan.wholeDisk = in.GetMode() != machine.ResetRequest_USER_DISKS && !plan.wantLabels
	if in.GetMode() == machine.ResetRequest_SYSTEM_DISK {
		plan.userDisks = nil
	}
	return plan, nil
}

func (s *system) checkUserDisks(devices []string) error {
	for _, dev := range devices {
		i := slices.IndexFunc(s.m.spec.Disks, func(d Disk) bool { return d.DevPath == dev })
		switch {
		case i < 0:
			return fmt.Errorf("reset user disk failed: device %s wasn't found", dev)
		case s.m.spec.Disks[i].ReadOnly:
			return fmt.Errorf("reset user disk failed: device %s is readonly", dev)
		case dev == s.m.disks.system():
			return fmt.Errorf("reset user disk failed: device %s is the system disk", dev)
		}
	}
	return nil
}

// resetPhases are Talos's: the services and the API stop before the wipe, whose outcome nobody can be told, and most failures
// on the way are ignored, but not that of leaving etcd.
func (s *system) resetPhases(in *machine.ResetRequest, plan wipePlan) []phase {
	phases := []phase{}
	if in.GetGraceful() {
		phases = append(phases, ignoring(single("drain", "cordonAndDrainNode", s.drain)), s.cleanup("removeAllPods", FaultResetHangs))
	} else {
		phases = append(phases, s.cleanup("stopAllPods", FaultResetHangs))
	}
	phases = append(phases, single("dbus", "stopDBus", nothing))
	if cfg := s.activeConfig(); in.GetGraceful() && cfg != nil && cfg.Machine().Type().IsControlPlane() {
		phases = append(phases, single("leave", "leaveEtcd", s.leaveEtcd))
	}
	phases = append(phases, single("preReset", "sendResetSignal", s.sendResetSignal))
	kexec := len(plan.labels) > 0 && !slices.Contains(plan.labels, labelBoot)
	for _, p := range s.stopAll(kexec) {
		phases = append(phases, ignoring(p))
	}
	phases = append(phases, single("forceCleanup", "forceCleanup", nothing))
	phases = append(phases, s.wipePhases(plan)...)
	if in.GetReboot() {
		return append(phases, single("reboot", "reboot", s.endWith(endReboot)))
	}
	return append(phases, single("shutdown", "shutdown", s.endWith(endPowerOff)))
}

func (s *system) wipePhases(plan wipePlan) []phase {
	wipe := func(do func() error) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := sleep(ctx, s.scaled(wipeTime)); err != nil {
				return err
			}
			if s.m.faults.has(FaultWipeFails) {
				return errors.New("failed to wipe: simulated failure")
			}
			return do()
		}
	}
	phases := []phase{}
	switch {
	case plan.wholeDisk:
		phases = append(phases, single("reset", "resetSystemDisk", wipe(func() error {
			s.dropUnwritten()
			return s.m.disks.wipeSystemDisk()
		})))
	case len(plan.labels) > 0:
		phases = append(phases, single("resetSpec", "resetSystemDiskSpec", wipe(func() error {
			if slices.Contains(plan.labels, labelState) {
				s.dropUnwritten()
			}
			return s.m.disks.wipe(plan.labels...)
		})))
	case plan.wantLabels:
		phases = append(phases, single("reset", "resetSystemDisk", nothing))
	}
	if len(plan.userDisks) > 0 {
		phases = append(phases, single("resetUserDisks", "resetUserDisks", wipe(func() error {
			for _, dev := range plan.userDisks {
				s.m.disks.wipeUserDisk(dev)
			}
			return nil
		})))
	}
	return phases
}

// leaveEtcd leaves the cluster if this machine can still be one of its members. Its failure is fatal for the reset.
func (s *system) leaveEtcd(ctx context.Context) error {
	s.mu.Lock()
	etcd := s.etcd
	s.mu.Unlock()
	if etcd == nil {
		return nil
	}
	if err := etcd.Leave(ctx); err != nil {
		return fmt.Errorf("failed to leave etcd: %w", err)
	}
	return nil
}

// sendResetSignal takes the machine out of discovery at once.
func (s *system) sendResetSignal(context.Context) error {
	if s.m.faults.has(FaultResetFatal) {
		return errors.New("simulated failure before the wipe")
	}
	s.m.fleet.discovery.remove(s.clusterID(), s.m.disks.nodeIdentity())
	s.mu.Lock()
	s.gone = true // and never publish again
	s.mu.Unlock()
	return nil
}
