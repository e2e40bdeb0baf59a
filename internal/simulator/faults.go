package simulator

import (
	"fmt"
	"slices"
	"sync"
)

// Names of the faults that a machine can be told to have. Faults describes each.
const (
	FaultResetLocked       = "reset-locked"
	FaultResetFatal        = "reset-fatal"
	FaultWipeFails         = "wipe-fails"
	FaultResetHangs        = "reset-hangs"
	FaultRebootHangs       = "reboot-hangs"
	FaultKubeletSlowStop   = "kubelet-slow-stop"
	FaultAPIBlackhole      = "api-blackhole"
	FaultAPIDown           = "api-down"
	FaultApplyFails        = "apply-fails"
	FaultDuplicateUUID     = "duplicate-uuid"
	FaultClockBehind       = "clock-behind"
	FaultClockFarBehind    = "clock-far-behind"
	FaultTimeUnsynced      = "time-unsynced"
	FaultFingerprintChange = "fingerprint-change"
	FaultPlatformConfig    = "platform-config"
	FaultNoBootMedia       = "no-boot-media"
	FaultUpgradeFails      = "upgrade-fails"
	FaultUpgradeRollsBack  = "upgrade-rolls-back"
	FaultProxyLag          = "proxy-lag"
	FaultBootHangs         = "boot-hangs"
	FaultOtherCluster      = "other-cluster"
	FaultDuplicateHostname = "duplicate-hostname"
	FaultKubernetesDown    = "kubernetes-down"

	FaultEtcdLeaveFails       = "etcd-leave-fails"
	FaultEtcdLeaveHangs       = "etcd-leave-hangs"
	FaultEtcdLeaveOKButError  = "etcd-leave-ok-but-error"
	FaultEtcdLeaveLate        = "etcd-leave-late"
	FaultEtcdNoPromote        = "etcd-no-promote"
	FaultEtcdSnapshotTruncate = "etcd-snapshot-truncated"
	FaultEtcdJoinInterrupted  = "etcd-join-interrupted"
	FaultEtcdBootstrapFails   = "etcd-bootstrap-fails"
	FaultEtcdStopped          = "etcd-stopped"
	FaultEtcdMembersDiffer    = "etcd-members-differ"
)

// A Fault is one way in which a machine can misbehave.
type Fault struct {
	// Name is what SetFault and the command line take.
	Name string `json:"name"`
	// Doc says in one sentence what the machine does while the fault is on.
	Doc string `json:"doc"`
}

var faults = []Fault{
	{FaultResetLocked, "Reset answers OK with an actor ID, but the sequence is refused as if another one ran (a LOCKED event without actor ID)."},
	{FaultResetFatal, "The reset sequence fails right before the services stop, so the machine reboots with its disks as they were."},
	{FaultWipeFails, "The wipe fails after the API has stopped, so the machine comes back with its disks as they were and nobody was told."},
	{FaultResetHangs, "The reset sequence hangs in its cleanup phase until a reboot takes it over or the power goes."},
	{FaultRebootHangs, "The reboot sequence hangs in its cleanup phase until another reboot takes it over or the power goes."},
	{FaultKubeletSlowStop, "Stopping the kubelet takes its worst case of 20 minutes (scaled) in reset, reboot, shutdown and upgrade."},
	{FaultAPIBlackhole, "The Talos API accepts TCP connections and never answers; connections that are open go silent."},
	{FaultAPIDown, "The Talos API refuses connections; connections that are open break."},
	{FaultApplyFails, "ApplyConfiguration validates the configuration and then fails to store it."},
	{FaultDuplicateUUID, "The machine reports the SMBIOS UUID of the fleet's first other machine as its own."},
	{FaultClockBehind, "The machine's clock is an hour behind, so it refuses client certificates that were issued within that hour."},
	{FaultClockFarBehind, "The machine's clock is two hours behind, so it also refuses client certificates that are made valid from an hour ago on."},
	{FaultTimeUnsynced, "Time never synchronises: Bootstrap is refused and MachineStatus is not ready."},
	{FaultFingerprintChange, "In maintenance mode every new connection meets a new certificate, so that a pinned fingerprint never matches."},
	{FaultPlatformConfig, "The platform supplies the machine's last configuration again after a wipe, so it never shows maintenance mode."},
	{FaultNoBootMedia, "There is nothing to boot from but the system disk: a machine whose whole disk was wiped stays dark."},
	{FaultUpgradeFails, "The installer exits with a non-zero code: LifecycleService.Upgrade still ends OK, the legacy sequence is fatal."},
	{FaultUpgradeRollsBack, "A newly installed version fails fatally in its first boot, so the machine reverts to the version before."},
	{FaultProxyLag, "Calls that other machines forward here fail as Unavailable for 15 seconds (scaled) after this machine's API came up."},
	{FaultBootHangs, "A machine that restarts hangs in its firmware and stays dark, until its power is cycled without this fault."},
	{FaultOtherCluster, "The Talos API of a configured machine shows the certificate of another cluster, and takes only clients of that."},
	{FaultDuplicateHostname, "The machine takes the hostname of the fleet's first other machine, whatever its configuration says."},
	{FaultKubernetesDown, "The Kubernetes API of the machine's cluster is down, as if the declared endpoint led to this machine."},

	{FaultEtcdLeaveFails, "Leaving etcd fails; a graceful reset then ends in a reboot of the un-wiped member."},
	{FaultEtcdLeaveHangs, "Leaving etcd never returns before the caller's deadline, and nothing is changed."},
	{FaultEtcdLeaveOKButError, "Leaving etcd succeeds, but an error is answered."},
	{FaultEtcdLeaveLate, "Leaving etcd succeeds, but only after the caller gave up."},
	{FaultEtcdNoPromote, "The learner is never promoted, so that it blocks every other join."},
	{FaultEtcdSnapshotTruncate, "A snapshot ends early, with OK."},
	{FaultEtcdJoinInterrupted, "The join dies between MemberAdd and the start of etcd, which leaves a member without a name."},
	{FaultEtcdBootstrapFails, "Bootstrap answers OK, and then the etcd service fails."},
	{FaultEtcdStopped, "The etcd process is stopped; the service says so, the member stays in the list."},
	{FaultEtcdMembersDiffer, "The list of members that the machine tells lacks the last one by name, besides its own."},
}

// Faults returns every fault there is, in the order of the documentation.
func Faults() []Fault {
	return slices.Clone(faults)
}

func isFault(name string) bool {
	return slices.ContainsFunc(faults, func(f Fault) bool { return f.Name == name })
}

// A faultSet holds the faults that are on, for one machine. Power and resets do not change it.
type faultSet struct {
	mu       sync.Mutex
	on       map[string]bool
	changed  chan struct{}
	onChange func(name string, on bool)
}

func newFaultSet(onChange func(name string, on bool)) *faultSet {
	return &faultSet{on: map[string]bool{}, changed: make(chan struct{}), onChange: onChange}
}

func (f *faultSet) set(name string, on bool) error {
	if !isFault(name) {
		return fmt.Errorf("cannot set fault %q: there is no such fault", name)
	}
	f.mu.Lock()
	same := f.on[name] == on
	if on {
		f.on[name] = true
	} else {
		delete(f.on, name)
	}
	if !same {
		close(f.changed)
		f.changed = make(chan struct{})
	}
	f.mu.Unlock()

	if !same && f.onChange != nil {
		f.onChange(name, on)
	}
	return nil
}

func (f *faultSet) has(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.on[name]
}

func (f *faultSet) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()

	out := make([]string, 0, len(f.on))
	for name := range f.on {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// wait returns a channel that is closed at the next change.
func (f *faultSet) wait() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.changed
}
