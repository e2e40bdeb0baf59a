package simulator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"golang.org/x/mod/semver"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// upgradeTime is how long an installer takes beside a running system.
	upgradeTime = 20 * time.Second
	// pullTime is how long pulling an image takes.
	pullTime = 5 * time.Second
)

// imageVersion is the version that an installer image holds: its tag, if that is one.
func imageVersion(image, fallback string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndex(image, ":"); i >= 0 && semver.IsValid(image[i+1:]) {
		return image[i+1:]
	}
	return fallback
}

// validImage refuses what no registry would serve: an image whose tag is not a version.
func validImage(image string) error {
	if imageVersion(image, "") == "" {
		return fmt.Errorf("%s: not found", image)
	}
	return nil
}

// installVersion is what an installer run does to an installed machine.
func (s *system) installVersion(version string) error {
	if s.m.faults.has(FaultUpgradeFails) {
		return errors.New("task failed: exit code 1")
	}
	s.m.disks.upgrade(version)
	return nil
}

// Upgrade is the legacy call: it checks, answers, and then runs a sequence that drains, installs and reboots.
func (s *system) Upgrade(ctx context.Context, in *machine.UpgradeRequest) (*machine.UpgradeResponse, error) {
	if !s.m.disks.installed() {
		return nil, status.Error(codes.FailedPrecondition, "Talos is not installed")
	}
	if err := validImage(in.GetImage()); err != nil {
		return nil, fmt.Errorf("error validating installer image %q: %w", in.GetImage(), err)
	}
	version := imageVersion(in.GetImage(), "")
	cfg := s.activeConfig()
	if s.configured() && cfg.Machine().Type().IsControlPlane() && !in.GetForce() && !in.GetPreserve() { // a deprecated field, but it still skips the checks
		if err := s.checkEtcdForUpgrade(ctx); err != nil {
			return nil, err
		}
	}
	actor := uuid.NewString()
	switch {
	case !s.configured():
		s.start(actor, seqMaintenanceUpgrade, s.maintenanceUpgradePhases(version), false)
	case in.GetStage():
		s.m.disks.stageUpgrade(version)
		s.start(actor, seqStageUpgrade, s.stageUpgradePhases(), false)
	default:
		s.start(actor, seqUpgrade, s.upgradePhases(version), false)
	}
	return &machine.UpgradeResponse{Messages: []*machine.Upgrade{{Ack: "Upgrade request received", ActorId: actor}}}, nil
}

// checkEtcdForUpgrade refuses with two members, and while one is not started or not healthy.
func (s *system) checkEtcdForUpgrade(ctx context.Context) error {
	release, ok := s.m.fleet.lockUpgrade(s.clusterID())
	if !ok {
		return errors.New("failed to acquire upgrade mutex: error trying to lock etcd upgrade mutex: mutex: Locked by another session")
	}
	defer release()

	list, err := withEtcd(ctx, s, "upgrade", &machine.EtcdMemberListRequest{}, etcdService.EtcdMemberList)
	if err != nil {
		return fmt.Errorf("error validating etcd for upgrade: %w", err)
	}
	members := list.GetMessages()[0].GetMembers()
	if len(members) == 2 {
		return errors.New("error validating etcd for upgrade: etcd member count(2) is insufficient to maintain quorum if upgrade commences")
	}
	for _, m := range members {
		if m.GetHostname() == "" {
			return fmt.Errorf("error validating etcd for upgrade: etcd member %016x is not started, all members must be running to perform an upgrade", m.GetId())
		}
		if !s.m.fleet.memberHealthy(s.clusterID(), m.GetHostname()) {
			return fmt.Errorf("error validating etcd for upgrade: etcd member %016x is not healthy; all members must be healthy to perform an upgrade: context deadline exceeded", m.GetId())
		}
	}
	return nil
}

func (s *system) installer(version string) phase {
	return single("upgrade", "upgrade", func(ctx context.Context) error {
		if err := sleep(ctx, s.scaled(upgradeTime)); err != nil {
			return err
		}
		return s.installVersion(version)
	})
}

func (s *system) upgradePhases(version string) []phase {
	return []phase{
		single("drain", "cordonAndDrainNode", s.drain), // its failure is fatal here
		s.cleanup("stopAllPods", ""),
		single("dbus", "stopDBus", nothing),
		single("stopServices", "stopServicesForUpgrade", s.stopServices),
		single("unmount", "unmountPodMounts", nothing),
		single("unmountBind", "unmountSystemDiskBindMounts", nothing),
		single("unmountSystem", "unmountEphemeralPartition", s.unmountEphemeral),
		single("volumeFinalize", "teardownLifecycle", nothing),
		s.installer(version),
		single("meta", "reloadMeta", nothing),
		single("kexec", "kexecPrepare", nothing),
		s.stopEverything(),
		single("reboot", "reboot", s.endWith(endReboot)),
	}
}

func (s *system) stageUpgradePhases() []phase {
	phases := []phase{s.cleanup("stopAllPods", ""), single("dbus", "stopDBus", nothing)}
	phases = append(phases, s.stopAll(true)...)
	return append(phases, single("reboot", "reboot", s.endWith(endReboot)))
}

func (s *system) maintenanceUpgradePhases(version string) []phase {
	return []phase{
		s.installer(version),
		single("meta", "reloadMeta", nothing),
		single("kexec", "kexecPrepare", nothing),
		s.stopEverything(),
		single("reboot", "reboot", s.endWith(endReboot)),
	}
}

type lifecycleServer struct {
	machine.UnimplementedLifecycleServiceServer
	s *system
}

// Upgrade installs another version beside the running one, and does nothing else: no drain, no reboot, no stage. An installer
// that fails still ends the stream with OK; only the exit code tells.
func (v *lifecycleServer) Upgrade(in *machine.LifecycleServiceUpgradeRequest, stream grpc.ServerStreamingServer[machine.LifecycleServiceUpgradeResponse]) error {
	if !v.s.lifecycle.TryLock() {
		return status.Error(codes.FailedPrecondition, "another installation/upgrade is already in progress")
	}
	defer v.s.lifecycle.Unlock()

	if !v.s.m.disks.installed() {
		return status.Error(codes.FailedPrecondition, "machine is not installed")
	}
	image := in.GetSource().GetImageName()
	if image == "" {
		return status.Error(codes.InvalidArgument, "installer image name is required")
	}
	if v.s.m.disks.system() == "" {
		return status.Error(codes.Internal, "system disk not found")
	}
	version, err := v.s.pulled(in.GetContainerd(), image)
	if err != nil {
		return status.Errorf(codes.Internal, "upgrade failed: %v", err)
	}
	code, err := v.s.runInstaller(stream.Context(), version, func(p *machine.LifecycleServiceInstallProgress) error {
		return stream.Send(&machine.LifecycleServiceUpgradeResponse{Progress: p})
	}, func() error { return v.s.installVersion(version) })
	if err != nil {
		return status.Errorf(codes.Internal, "upgrade failed: %v", err)
	}
	return stream.Send(&machine.LifecycleServiceUpgradeResponse{Progress: exitCode(code)})
}

// Install puts Talos on a disk of a machine that runs from its boot media. It reboots nothing.
func (v *lifecycleServer) Install(in *machine.LifecycleServiceInstallRequest, stream grpc.ServerStreamingServer[machine.LifecycleServiceInstallResponse]) error {
	if !v.s.lifecycle.TryLock() {
		return status.Error(codes.FailedPrecondition, "another installation/upgrade is already in progress")
	}
	defer v.s.lifecycle.Unlock()

	if v.s.m.disks.installed() {
		return status.Error(codes.AlreadyExists, "machine is already installed")
	}
	image, disk := in.GetSource().GetImageName(), in.GetDestination().GetDisk()
	if image == "" {
		return status.Error(codes.InvalidArgument, "installer image name is required")
	}
	if disk == "" {
		return status.Error(codes.InvalidArgument, "destination disk is required")
	}
	version, err := v.s.pulled(in.GetContainerd(), image)
	if err != nil {
		return status.Errorf(codes.Internal, "installation failed: %v", err)
	}
	code, err := v.s.runInstaller(stream.Context(), version, func(p *machine.LifecycleServiceInstallProgress) error {
		return stream.Send(&machine.LifecycleServiceInstallResponse{Progress: p})
	}, func() error { return v.s.m.disks.install(disk, version) })
	if err != nil {
		return status.Errorf(codes.Internal, "installation failed: %v", err)
	}
	return stream.Send(&machine.LifecycleServiceInstallResponse{Progress: exitCode(code)})
}

// runInstaller runs to its end even if the caller goes away, as the real container does.
func (s *system) runInstaller(
	ctx context.Context, version string, send func(*machine.LifecycleServiceInstallProgress) error, install func() error,
) (int32, error) {
	say := func(text string) error {
		return send(&machine.LifecycleServiceInstallProgress{
			Response: &machine.LifecycleServiceInstallProgress_Message{Message: text},
		})
	}
	_ = say("running Talos installer " + version + "\n") // a caller who left misses it
	if err := sleep(s.ctx, s.scaled(upgradeTime)); err != nil {
		return 0, err
	}
	if err := install(); err != nil {
		_ = say("error: " + err.Error() + "\n")
		return 1, ctx.Err()
	}
	_ = say("installation of " + version + " complete\n")
	return 0, ctx.Err()
}

func exitCode(code int32) *machine.LifecycleServiceInstallProgress {
	return &machine.LifecycleServiceInstallProgress{Response: &machine.LifecycleServiceInstallProgress_ExitCode{ExitCode: code}}
}

// namespaceOf checks the container runtime that a request names.
func namespaceOf(in *common.ContainerdInstance) error {
	switch in.GetNamespace() {
	case common.ContainerdNamespace_NS_SYSTEM, common.ContainerdNamespace_NS_CRI:
		return nil
	case common.ContainerdNamespace_NS_UNKNOWN:
	}
	return fmt.Errorf("invalid containerd namespace %s", in.GetNamespace())
}

func imageKey(in *common.ContainerdInstance, ref string) string {
	return in.GetDriver().String() + "/" + in.GetNamespace().String() + "/" + ref
}

// pulled returns the Talos version of an image that must be in the very instance that the request names.
func (s *system) pulled(in *common.ContainerdInstance, image string) (string, error) {
	if err := namespaceOf(in); err != nil {
		return "", err
	}
	version, ok := s.m.disks.image(imageKey(in, image))
	if !ok {
		return "", fmt.Errorf("installer image %q not found in containerd store: image %q: not found", image, image)
	}
	return version, nil
}

type imageServer struct {
	machine.UnimplementedImageServiceServer
	s *system
}

// Pull fetches an image: everything whose tag is a version exists.
func (v *imageServer) Pull(in *machine.ImageServicePullRequest, stream grpc.ServerStreamingServer[machine.ImageServicePullResponse]) error {
	if err := namespaceOf(in.GetContainerd()); err != nil {
		return err
	}
	if err := validImage(in.GetImageRef()); err != nil {
		return status.Errorf(codes.NotFound, "error pulling image: %s", err)
	}
	layer := &machine.ImageServicePullProgress{LayerId: "sha256:simulated", Progress: &machine.ImageServicePullLayerProgress{}}
	if err := stream.Send(&machine.ImageServicePullResponse{Response: &machine.ImageServicePullResponse_PullProgress{PullProgress: layer}}); err != nil {
		return err
	}
	if err := sleep(stream.Context(), v.s.scaled(pullTime)); err != nil {
		return err
	}
	name := digestOf(in.GetImageRef())
	version := imageVersion(in.GetImageRef(), "")
	v.s.m.disks.addImage(imageKey(in.GetContainerd(), in.GetImageRef()), version)
	v.s.m.disks.addImage(imageKey(in.GetContainerd(), name), version)
	return stream.Send(&machine.ImageServicePullResponse{Response: &machine.ImageServicePullResponse_Name{Name: name}})
}

// digestOf pins a reference: the digest takes the place of the tag.
func digestOf(ref string) string {
	ref, _, _ = strings.Cut(ref, "@")
	sum := sha256.Sum256([]byte(ref))
	if i := strings.LastIndex(ref, ":"); i > strings.LastIndex(ref, "/") {
		ref = ref[:i]
	}
	return ref + "@sha256:" + hex.EncodeToString(sum[:])
}

// List lists the images that were pulled.
func (v *imageServer) List(in *machine.ImageServiceListRequest, stream grpc.ServerStreamingServer[machine.ImageServiceListResponse]) error {
	if err := namespaceOf(in.GetContainerd()); err != nil {
		return err
	}
	prefix := imageKey(in.GetContainerd(), "")
	for _, key := range v.s.m.disks.imageRefs() {
		ref, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		if err := stream.Send(&machine.ImageServiceListResponse{Name: ref, Digest: digestOf(ref)}); err != nil {
			return err
		}
	}
	return nil
}
