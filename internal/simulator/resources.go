package simulator

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/cosi-project/runtime/pkg/controller/generic"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	timeres "github.com/siderolabs/talos/pkg/machinery/resources/time"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
)

const linkName = "eth0"

// modify writes one resource.
func modify[T resource.Resource](s *system, r T, change func(T)) {
	s.put(func(ctx context.Context) error {
		return safe.StateModify(ctx, s.cosi, r, func(r T) error {
			change(r)
			return nil
		})
	})
}

// remove takes one resource away, if it is there.
func remove(s *system, ptr resource.Pointer) {
	s.put(func(ctx context.Context) error {
		if err := s.cosi.Destroy(ctx, ptr); err != nil && !state.IsNotFoundError(err) {
			return err
		}
		return nil
	})
}

// removeOthers takes away every resource of a type whose ID is not wanted.
func removeOthers[T generic.ResourceWithRD](s *system, wanted []resource.ID) {
	list, err := safe.StateListAll[T](context.Background(), s.cosi)
	if err != nil {
		s.log.Debug("cannot list resources", "error", err)
		return
	}
	for r := range list.All() {
		if !slices.Contains(wanted, r.Metadata().ID()) {
			remove(s, r.Metadata())
		}
	}
}

// publishHardware writes what does not change during a boot.
func (s *system) publishHardware() {
	for _, d := range s.m.spec.Disks {
		modify(s, block.NewDisk(block.NamespaceName, filepath.Base(d.DevPath)), func(r *block.Disk) {
			spec := r.TypedSpec()
			spec.DevPath, spec.Model, spec.Serial, spec.WWID = d.DevPath, d.Model, d.Serial, d.WWID
			spec.BusPath, spec.SubSystem, spec.Transport = d.BusPath, "/sys/class/block", d.Transport
			spec.Rotational, spec.Readonly, spec.CDROM = d.Rotational, d.ReadOnly, d.CDROM
			spec.IOSize, spec.SectorSize = 512, 512
			spec.SetSize(d.Size)
		})
	}
	modify(s, hardware.NewProcessorInfo("CPU-0"), func(r *hardware.Processor) {
		r.TypedSpec().Socket, r.TypedSpec().Manufacturer, r.TypedSpec().ProductName = "CPU 0", "Simulated", "Simulated CPU"
		r.TypedSpec().CoreCount, r.TypedSpec().CoreEnabled, r.TypedSpec().ThreadCount = 2, 2, 2
	})
	modify(s, runtime.NewSecurityStateSpec(runtime.NamespaceName), func(r *runtime.SecurityState) {
		r.TypedSpec().SELinuxState = runtime.SELinuxStatePermissive
	})
	modify(s, runtime.NewPlatformMetadataSpec(runtime.NamespaceName, runtime.PlatformMetadataID), func(r *runtime.PlatformMetadata) {
		r.TypedSpec().Platform = "metal"
	})
	modify(s, runtime.NewVersion(), func(r *runtime.Version) {
		r.TypedSpec().Name, r.TypedSpec().Version = "Talos", s.version
	})
	s.publishLink()
}

// publishLink writes the one network interface and its address.
func (s *system) publishLink() {
	mac := s.hardwareAddr()
	modify(s, network.NewLinkStatus(network.NamespaceName, linkName), func(r *network.LinkStatus) {
		spec := r.TypedSpec()
		spec.Index, spec.LinkIndex, spec.Type, spec.MTU = 2, 2, nethelpers.LinkEther, 1500
		spec.HardwareAddr, spec.PermanentAddr = mac, mac
		spec.OperationalState, spec.LinkState = nethelpers.OperStateUp, true
		spec.Driver, spec.BusPath = "virtio_net", "0000:00:02.0"
	})
	prefix := netip.PrefixFrom(s.m.spec.Address, 24)
	modify(s, network.NewAddressStatus(network.NamespaceName, linkName+"/"+prefix.String()), func(r *network.AddressStatus) {
		spec := r.TypedSpec()
		spec.Address, spec.Local, spec.LinkName, spec.LinkIndex = prefix, s.m.spec.Address, linkName, 2
		spec.Family, spec.Scope = nethelpers.FamilyInet4, nethelpers.ScopeGlobal
	})
	for _, id := range []resource.ID{
		network.NodeAddressDefaultID, network.NodeAddressCurrentID, network.NodeAddressRoutedID, network.NodeAddressAccumulativeID,
	} {
		modify(s, network.NewNodeAddress(network.NamespaceName, id), func(r *network.NodeAddress) {
			r.TypedSpec().Addresses = []netip.Prefix{prefix}
		})
	}
}

// hardwareAddr is made from the UUID: it stays the same over resets.
func (s *system) hardwareAddr() nethelpers.HardwareAddr {
	sum := sha256.Sum256([]byte(s.m.spec.UUID))
	mac := append(nethelpers.HardwareAddr{}, sum[:6]...)
	mac[0] = mac[0]&^1 | 2 // locally administered, unicast
	return mac
}

// publishNetwork writes what depends on configuration and faults.
func (s *system) publishNetwork() {
	modify(s, hardware.NewSystemInformation(hardware.SystemInformationID), func(r *hardware.SystemInformation) {
		r.TypedSpec().Manufacturer, r.TypedSpec().ProductName, r.TypedSpec().Version = "Simulated", "talossim", "1"
		r.TypedSpec().SerialNumber, r.TypedSpec().UUID = s.m.spec.Name, s.m.reportedUUID()
	})
	modify(s, network.NewHostnameStatus(network.NamespaceName, network.HostnameID), func(r *network.HostnameStatus) {
		r.TypedSpec().Hostname = s.hostname()
	})
	modify(s, network.NewStatus(network.NamespaceName, network.StatusID), func(r *network.Status) {
		*r.TypedSpec() = network.StatusSpec{AddressReady: true, ConnectivityReady: true, HostnameReady: true, EtcFilesReady: true}
	})
	modify(s, timeres.NewStatus(), func(r *timeres.Status) {
		r.TypedSpec().Synced = !s.m.faults.has(FaultTimeUnsynced)
	})
}

// publishVolumes writes the system disk, and each partition as a volume: there, or missing.
func (s *system) publishVolumes() {
	disk := s.m.disks.system()
	if disk == "" {
		remove(s, block.NewSystemDisk(block.NamespaceName, block.SystemDiskID).Metadata())
	} else {
		modify(s, block.NewSystemDisk(block.NamespaceName, block.SystemDiskID), func(r *block.SystemDisk) {
			r.TypedSpec().DevPath, r.TypedSpec().DiskID = disk, filepath.Base(disk)
		})
	}
	discovered := []resource.ID{}
	for i, label := range partitionOrder {
		there := s.m.disks.has(label)
		location := fmt.Sprintf("%s%d", disk, i+1)
		modify(s, block.NewVolumeStatus(block.NamespaceName, label), func(r *block.VolumeStatus) {
			spec := r.TypedSpec()
			spec.Type, spec.Phase = block.VolumeTypePartition, block.VolumePhaseMissing
			spec.Location, spec.ParentLocation, spec.PartitionIndex = "", "", 0
			if there {
				spec.Phase, spec.Location, spec.ParentLocation, spec.PartitionIndex = block.VolumePhaseReady, location, disk, i+1
				spec.SetSize(s.partitionSize(label))
			}
		})
		if !there {
			continue
		}
		discovered = append(discovered, filepath.Base(location))
		modify(s, block.NewDiscoveredVolume(block.NamespaceName, filepath.Base(location)), func(r *block.DiscoveredVolume) {
			spec := r.TypedSpec()
			spec.DevPath, spec.Type, spec.Parent, spec.ParentDevPath = location, "partition", filepath.Base(disk), disk
			spec.PartitionLabel, spec.PartitionIndex = label, uint(i+1) // at most six
			spec.SetSize(s.partitionSize(label))
		})
	}
	removeOthers[*block.DiscoveredVolume](s, discovered)
}

func (s *system) partitionSize(label string) uint64 {
	if size, ok := partitionSizes[label]; ok {
		return size
	}
	disk := s.m.disks.system()
	for _, d := range s.m.spec.Disks {
		if d.DevPath == disk {
			return d.Size - 2*gibibyte
		}
	}
	return 0
}

// publishServices writes the services that run; those that do not have no resource.
func (s *system) publishServices() {
	running := []resource.ID{}
	for _, svc := range s.services.snapshot() {
		if svc.state != svcRunning {
			continue
		}
		running = append(running, svc.id)
		modify(s, v1alpha1.NewService(svc.id), func(r *v1alpha1.Service) {
			*r.TypedSpec() = v1alpha1.ServiceSpec{Running: true, Healthy: svc.healthy, Unknown: !svc.known}
		})
	}
	removeOthers[*v1alpha1.Service](s, running)
}

func addressList(addrs ...netip.Addr) []netip.Addr { return addrs }
