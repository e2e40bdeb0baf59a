package simulator

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// Labels of the partitions that Talos keeps on its system disk.
const (
	labelEFI       = "EFI"
	labelBIOS      = "BIOS"
	labelBoot      = "BOOT"
	labelMeta      = "META"
	labelState     = "STATE"
	labelEphemeral = "EPHEMERAL"
)

// partitionOrder is the order on disk.
var partitionOrder = []string{labelEFI, labelBIOS, labelBoot, labelMeta, labelState, labelEphemeral}

const (
	mebibyte = 1 << 20
	gibibyte = 1 << 30
)

// partitionSizes are the sizes in bytes that Talos gives its partitions; EPHEMERAL takes the rest.
var partitionSizes = map[string]uint64{
	labelEFI: 100 * mebibyte, labelBIOS: mebibyte, labelBoot: 1000 * mebibyte, labelMeta: mebibyte, labelState: 100 * mebibyte,
}

// A Disk is one block device of a machine.
type Disk struct {
	// DevPath is the device, such as "/dev/sda".
	DevPath string
	// Size is in bytes.
	Size uint64
	// Model, Serial, WWID and BusPath identify the disk; empty ones are made up from the machine's name.
	Model, Serial, WWID, BusPath string
	// Transport is "sata", "nvme", "virtio" and so on.
	Transport string
	// Rotational, ReadOnly and CDROM say what kind of disk it is.
	Rotational, ReadOnly, CDROM bool
}

// A diskSet is everything of a machine that outlives a reboot: its disks and what lies on them. The content of the
// EPHEMERAL partition is a real directory, since etcd lives there; the other partitions are kept in memory.
type diskSet struct {
	mu         sync.Mutex
	disks      []Disk
	dir        string
	systemDisk string          // device that holds the partitions; empty: none is installed
	partitions map[string]bool // by label

	// META
	meta          map[uint8][]byte // by key
	stagedUpgrade string           // version to install at the next boot
	fallback      string           // version to go back to, until the running one has proved itself

	// BOOT: the default entry and the other one of the A/B pair.
	bootVersion, otherVersion string

	// STATE
	config []byte // nil: no config.yaml
	nodeID string // empty: made at the next boot that has STATE

	// EPHEMERAL, beside the directory
	images map[string]string // Talos version by instance and reference; empty if it is no installer

	wiped map[string]int // how often each user disk was wiped, by device
}

func newDiskSet(dir string, disks []Disk) *diskSet {
	return &diskSet{
		disks: disks, dir: dir, partitions: map[string]bool{}, images: map[string]string{}, wiped: map[string]int{},
		meta: map[uint8][]byte{},
	}
}

// install puts a Talos version on a disk, keeping what the partitions already hold.
func (s *diskSet) install(disk, version string) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.systemDisk != "" {
		disk = s.systemDisk
	}
	if !slices.ContainsFunc(s.disks, func(d Disk) bool { return d.DevPath == disk }) {
		return fmt.Errorf("cannot install on %q: there is no such disk", disk)
	}
	s.systemDisk = disk
	for _, label := range []string{labelEFI, labelBIOS, labelBoot, labelMeta} {
		s.partitions[label] = true
	}
	if s.bootVersion != version {
		s.otherVersion, s.bootVersion = s.bootVersion, version
	}
	return nil
}

// upgrade installs another version beside the running one and remembers the way back.
func (s *diskSet) upgrade(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.fallback = s.bootVersion
	s.otherVersion, s.bootVersion = s.bootVersion, version
}

// rollback makes the other boot entry the default; it reports false if there is none.
func (s *diskSet) rollback() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.otherVersion == "" {
		return false
	}
	s.bootVersion, s.otherVersion = s.otherVersion, s.bootVersion
	s.fallback = ""
	return true
}

// revert is what a fatal error does while the new version has not proved itself: back to the fallback.
func (s *diskSet) revert() (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.fallback == "" || s.fallback == s.bootVersion {
		return "", false
	}
	s.bootVersion, s.otherVersion, s.fallback = s.fallback, s.bootVersion, ""
	return s.bootVersion, true
}

// dropFallback is called once the running version has proved itself.
func (s *diskSet) dropFallback() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.fallback = ""
}

// unprovedUpgrade reports whether the default entry still waits to prove itself.
func (s *diskSet) unprovedUpgrade() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.fallback != ""
}

// installed is true if META exists, which is how Talos sees it.
func (s *diskSet) installed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.partitions[labelMeta]
}

// bootable is true if the system disk still has a boot loader.
func (s *diskSet) bootable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.partitions[labelBoot] && s.partitions[labelEFI]
}

// version is what the default boot entry holds; empty if there is none.
func (s *diskSet) version() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.bootVersion
}

func (s *diskSet) stageUpgrade(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.stagedUpgrade = version
}

// takeStagedUpgrade returns and clears the staged version; clearing first is why a failed staged upgrade is not retried.
func (s *diskSet) takeStagedUpgrade() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	v := s.stagedUpgrade
	s.stagedUpgrade = ""
	return v
}

// provision creates STATE and EPHEMERAL where they are missing, as a boot with a configuration does.
func (s *diskSet) provision() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.systemDisk == "" {
		return nil
	}
	s.partitions[labelState] = true
	s.partitions[labelEphemeral] = true
	if s.nodeID == "" {
		s.nodeID = newNodeID()
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("cannot provision EPHEMERAL: %w", err)
	}
	return nil
}

// nodeIdentity returns the identity on STATE, or, before STATE exists, one that lasts for this boot.
func (s *diskSet) nodeIdentity() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.nodeID == "" {
		s.nodeID = newNodeID()
	}
	return s.nodeID
}

func newNodeID() string {
	b := make([]byte, 22)
	_, _ = rand.Read(b) // never fails: it would end the process
	return hex.EncodeToString(b)
}

// writeConfig stores the configuration on STATE, creating it on an installed machine; on another one it is lost with the boot.
func (s *diskSet) writeConfig(data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.systemDisk == "" {
		return
	}
	s.partitions[labelState] = true
	s.config = slices.Clone(data)
}

// readConfig returns what STATE holds; nil if that is nothing.
func (s *diskSet) readConfig() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()

	if !s.partitions[labelState] {
		return nil
	}
	return slices.Clone(s.config)
}

// wipe deletes partitions by label and forgets what they held.
func (s *diskSet) wipe(labels ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, label := range labels {
		if err := s.wipeLocked(label); err != nil {
			return err
		}
	}
	return nil
}

// blank erases what a partition holds, and the partition itself if it is to be dropped.
func (s *diskSet) blank(label string, drop bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if err := s.wipeLocked(label); err != nil {
		return err
	}
	if !drop {
		s.partitions[label] = true
	}
	return nil
}

func (s *diskSet) wipeLocked(label string) error {
	delete(s.partitions, label)
	switch label {
	case labelMeta:
		s.stagedUpgrade, s.fallback = "", ""
		clear(s.meta)
	case labelBoot:
		s.bootVersion, s.otherVersion = "", ""
	case labelState:
		s.config, s.nodeID = nil, ""
		delete(s.meta, metaOfState)
	case labelEphemeral:
		s.images = map[string]string{}
		if err := os.RemoveAll(s.dir); err != nil {
			return fmt.Errorf("cannot wipe EPHEMERAL: %w", err)
		}
	}
	return nil
}

// wipeSystemDisk takes everything, the boot loader too.
func (s *diskSet) wipeSystemDisk() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, label := range partitionOrder {
		if err := s.wipeLocked(label); err != nil {
			return err
		}
	}
	s.systemDisk = ""
	return nil
}

func (s *diskSet) wipeUserDisk(dev string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.wiped[dev]++
}

// has reports whether a partition exists.
func (s *diskSet) has(label string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.partitions[label]
}

// system returns the device that holds the partitions, empty if there is none.
func (s *diskSet) system() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.systemDisk
}

func (s *diskSet) addImage(key, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.images[key] = version
}

// image returns the Talos version that an image holds, and whether it was pulled.
func (s *diskSet) image(key string) (version string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	version, ok = s.images[key]
	return version, ok
}

func (s *diskSet) imageRefs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()

	out := make([]string, 0, len(s.images))
	for ref := range s.images {
		out = append(out, ref)
	}
	slices.Sort(out)
	return out
}

// etcdDir and etcdSnapshot are where Talos keeps etcd's data and a snapshot to recover from, on EPHEMERAL.
func (s *diskSet) etcdDir() string      { return filepath.Join(s.dir, "lib", "etcd") }
func (s *diskSet) etcdSnapshot() string { return filepath.Join(s.dir, "lib", "etcd.snapshot") }
