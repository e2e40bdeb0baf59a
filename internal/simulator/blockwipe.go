package simulator

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// BlockDeviceWipe wipes whole disks or single partitions, by names such as "sda" and "sda5". Nothing is wiped unless every one
// of them may be; what a volume lies on may only be wiped by a caller who says so. In maintenance mode everybody may call it.
func (v *storageServer) BlockDeviceWipe(ctx context.Context, in *storage.BlockDeviceWipeRequest) (*storage.BlockDeviceWipeResponse, error) {
	if v.s.configured() && !rolesOf(ctx).Includes(role.Admin) {
		return nil, errNotAuthorized
	}
	targets := make([]blockDevice, 0, len(in.GetDevices()))
	for _, d := range in.GetDevices() {
		target, err := v.s.blockDevice(d.GetDevice())
		if err != nil {
			return nil, err
		}
		if err := v.s.wipeable(target, d.GetSkipVolumeCheck()); err != nil {
			return nil, err
		}
		targets = append(targets, target)
	}
	for i, d := range in.GetDevices() {
		switch d.GetMethod() {
		case storage.BlockDeviceWipeDescriptor_FAST, storage.BlockDeviceWipeDescriptor_ZEROES:
		default:
			return nil, status.Errorf(codes.InvalidArgument, "unsupported wipe method %s", d.GetMethod())
		}
		if err := v.s.wipeDevice(targets[i], d.GetDropPartition()); err != nil {
			return nil, status.Errorf(codes.Internal, "failed to wipe block device %q: %v", targets[i].name, err)
		}
	}
	v.s.refresh()
	return &storage.BlockDeviceWipeResponse{Messages: []*storage.BlockDeviceWipe{{}}}, nil
}

// A blockDevice is a disk, or a partition of the system disk.
type blockDevice struct {
	name  string
	disk  Disk
	label string // of the partition; empty for a whole disk
}

// blockDevice finds a device by its name without "/dev/".
func (s *system) blockDevice(name string) (blockDevice, error) {
	system := s.m.disks.system()
	for _, d := range s.m.spec.Disks {
		base := filepath.Base(d.DevPath)
		if base == name {
			return blockDevice{name: name, disk: d}, nil
		}
		for i, label := range partitionOrder {
			if d.DevPath == system && fmt.Sprintf("%s%d", base, i+1) == name && s.m.disks.has(label) {
				return blockDevice{name: name, disk: d, label: label}, nil
			}
		}
	}
	return blockDevice{}, status.Errorf(codes.NotFound, "blockdevice %q not found", name)
}

// wipeable says why a device cannot be wiped, in Talos's order.
func (s *system) wipeable(b blockDevice, skipVolumeCheck bool) error {
	switch {
	case b.disk.ReadOnly:
		return status.Errorf(codes.FailedPrecondition, "blockdevice %q is read-only", b.name)
	case b.disk.CDROM:
		return status.Errorf(codes.FailedPrecondition, "blockdevice %q is a CD-ROM", b.name)
	case skipVolumeCheck || b.disk.DevPath != s.m.disks.system():
		return nil
	}
	// Volumes are looked at in the order of their names.
	for _, label := range slices.Sorted(slices.Values(partitionOrder)) {
		if s.m.disks.has(label) && (b.label == "" || b.label == label) {
			return status.Errorf(codes.FailedPrecondition, "blockdevice %q is in use by volume %q", b.name, label)
		}
	}
	return nil
}

func (s *system) wipeDevice(b blockDevice, dropPartition bool) error {
	switch {
	case b.label != "":
		return s.m.disks.blank(b.label, dropPartition)
	case b.disk.DevPath == s.m.disks.system():
		return s.m.disks.wipeSystemDisk()
	default:
		s.m.disks.wipeUserDisk(b.disk.DevPath)
		return nil
	}
}
