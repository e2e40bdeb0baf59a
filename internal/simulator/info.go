package simulator

import (
	"context"
	"path/filepath"
	"runtime"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	timeapi "github.com/siderolabs/talos/pkg/machinery/api/time"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Version tells what runs. rbac is always on once there is a configuration.
func (s *system) Version(context.Context, *emptypb.Empty) (*machine.VersionResponse, error) {
	v := &machine.Version{
		Version:  &machine.VersionInfo{Tag: s.version, Sha: "simulated", Built: "", GoVersion: runtime.Version(), Os: "linux", Arch: "amd64"},
		Platform: &machine.PlatformInfo{Name: "metal", Mode: "metal"},
	}
	if s.configured() {
		v.Features = &machine.FeaturesInfo{Rbac: true}
	}
	return &machine.VersionResponse{Messages: []*machine.Version{v}}, nil
}

// Hostname tells the hostname.
func (s *system) Hostname(context.Context, *emptypb.Empty) (*machine.HostnameResponse, error) {
	return &machine.HostnameResponse{Messages: []*machine.Hostname{{Hostname: s.hostname()}}}, nil
}

// SystemStat tells the time of boot, and nothing of what else the kernel counts.
func (s *system) SystemStat(context.Context, *emptypb.Empty) (*machine.SystemStatResponse, error) {
	boot := uint64(s.bootTime.Unix()) // after 1970
	return &machine.SystemStatResponse{Messages: []*machine.SystemStat{{BootTime: boot, CpuTotal: &machine.CPUStat{}, SoftIrq: &machine.SoftIRQStat{}}}}, nil
}

type storageServer struct {
	storage.UnimplementedStorageServiceServer
	s *system
}

// Disks lists the block devices.
func (v *storageServer) Disks(context.Context, *emptypb.Empty) (*storage.DisksResponse, error) {
	out := &storage.Disks{}
	for _, d := range v.s.m.spec.Disks {
		kind := storage.Disk_SSD
		if d.Rotational {
			kind = storage.Disk_HDD
		}
		out.Disks = append(out.Disks, &storage.Disk{
			Size: d.Size, Model: d.Model, DeviceName: d.DevPath, Name: filepath.Base(d.DevPath), Serial: d.Serial, Wwid: d.WWID,
			Type: kind, BusPath: d.BusPath, SystemDisk: d.DevPath == v.s.m.disks.system(), Subsystem: "/sys/class/block", Readonly: d.ReadOnly,
		})
	}
	return &storage.DisksResponse{Messages: []*storage.Disks{out}}, nil
}

type timeServer struct {
	timeapi.UnimplementedTimeServiceServer
	s *system
}

// Time compares the machine's clock with its (simulated, exact) time server.
func (v *timeServer) Time(context.Context, *emptypb.Empty) (*timeapi.TimeResponse, error) {
	return v.answer("time.cloudflare.com")
}

// TimeCheck is the same for a server that the caller names.
func (v *timeServer) TimeCheck(_ context.Context, in *timeapi.TimeRequest) (*timeapi.TimeResponse, error) {
	if in.GetServer() == "" {
		return nil, status.Error(codes.InvalidArgument, "server is required")
	}
	return v.answer(in.GetServer())
}

func (v *timeServer) answer(server string) (*timeapi.TimeResponse, error) {
	return &timeapi.TimeResponse{Messages: []*timeapi.Time{{
		Server: server, Localtime: timestamppb.New(v.s.now()), Remotetime: timestamppb.Now(),
	}}}, nil
}
