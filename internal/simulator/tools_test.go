package simulator

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	"github.com/siderolabs/talos/pkg/machinery/client"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/meta"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
)

// unpack reads a tar.gz: names and contents, directories with a slash at the end.
func unpack(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for archive := tar.NewReader(zip); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = string(content)
	}
}

func TestCopy(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	c := newTestCluster(t, endpointOf(f))
	m := configured(t, f, c, "cp", machinetype.TypeControlPlane)
	big := strings.Repeat("0123456789abcdef", copyChunk/8) // of more than one message
	db := filepath.Join(m.disks.etcdDir(), "member", "snap", "db")
	if err := os.MkdirAll(filepath.Dir(db), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(db, []byte(big), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		path string
		want map[string]string
	}{
		{"/etc/hostname", map[string]string{"hostname": m.Hostname() + "\n"}},
		{"/var/lib/etcd/member/snap/db", map[string]string{"db": big}},
		{"/var/lib/etcd/member", map[string]string{"./": "", "snap/": "", "snap/db": big}},
	} {
		t.Run(tc.path, func(t *testing.T) {
			r, err := c.client(t, m).Copy(testContext(t), tc.path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, unpack(t, r)); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
	drain := func(ctx context.Context, c *client.Client, path string) error {
		r, err := c.Copy(ctx, path)
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		return err
	}
	checkCalls(t, c.client(t, m), []call{
		{"a path that is relative", func(ctx context.Context, c *client.Client) error { return drain(ctx, c, "var") }, codes.Unknown, "path is not absolute var"},
		{"nothing there", func(ctx context.Context, c *client.Client) error { return drain(ctx, c, "/var/nope") }, codes.Unknown, "lstat /var/nope: no such file or directory"},
		{"out of EPHEMERAL", func(ctx context.Context, c *client.Client) error { return drain(ctx, c, "/var/../root") }, codes.Unknown, "lstat /root: no such file or directory"},
	})
	checkCalls(t, c.client(t, m, role.Reader), []call{
		{"a reader", func(ctx context.Context, c *client.Client) error { return drain(ctx, c, "/etc/hostname") }, codes.PermissionDenied, "not authorized"},
	})
}

// lines reads a stream of data to its end, or until a line holds what is wanted.
func lines(t *testing.T, stream interface{ Recv() (*common.Data, error) }, until string) []string {
	t.Helper()
	var out []string
	for {
		d, err := stream.Recv()
		if errors.Is(err, io.EOF) && until == "" {
			return out
		}
		if err != nil {
			t.Fatalf("%v, after %q", err, out)
		}
		out = append(out, string(d.GetBytes()))
		if until != "" && strings.Contains(out[len(out)-1], until) {
			return out
		}
	}
}

func TestLogs(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	c := newTestCluster(t, endpointOf(f))
	m := configured(t, f, c, "cp", machinetype.TypeControlPlane)
	ctx, cl := testContext(t), c.client(t, m)
	logs := func(id string, follow bool, tail int32) machine.MachineService_LogsClient {
		stream, err := cl.Logs(ctx, constants.SystemContainerdNamespace, common.ContainerDriver_CONTAINERD, id, follow, tail)
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	if got := lines(t, logs("kubelet", false, -1), ""); !slices.Equal(got, []string{"Started task kubelet\n", "Health check successful\n"}) {
		t.Errorf("the kubelet's log is %q", got)
	}
	if got := lines(t, logs("machined", false, 2), ""); len(got) != 2 {
		t.Errorf("a tail of two lines is %q", got)
	}

	following := logs("machined", true, -1) // from the beginning: the call may reach the machine after the next one

	if err := m.SetFault(FaultResetLocked, true); err != nil {
		t.Fatal(err)
	}
	if err := cl.ResetGeneric(ctx, wipe(labelState, labelEphemeral)); err != nil {
		t.Fatal(err)
	}
	// Only the log tells that the reset was refused: the call was answered with OK.
	lines(t, following, "reset failed: locked")

	all, err := cl.Dmesg(ctx, false, false)
	if err != nil {
		t.Fatal(err)
	}
	got := lines(t, all, "")
	if first, last := got[0], got[len(got)-1]; !strings.HasPrefix(first, "user: warning: [") || !strings.HasSuffix(first, "[talos] booting Talos v1.13.9\n") ||
		!strings.HasSuffix(last, "[talos] reset failed: locked\n") {
		t.Errorf("dmesg begins with %q and ends with %q", first, last)
	}

	containers, err := cl.LogsContainers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if ids := containers.GetMessages()[0].GetIds(); !slices.Contains(ids, "etcd") || !slices.Contains(ids, "kernel") {
		t.Errorf("the logs are %q", ids)
	}
	checkCalls(t, cl, []call{
		{"no such service", func(ctx context.Context, c *client.Client) error {
			stream, err := c.Logs(ctx, constants.SystemContainerdNamespace, common.ContainerDriver_CONTAINERD, "nope", false, -1)
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}, codes.Unknown, `log "nope" was not registered`},
		{"no such container", func(ctx context.Context, c *client.Client) error {
			stream, err := c.Logs(ctx, constants.K8sContainerdNamespace, common.ContainerDriver_CRI, "nope", false, -1)
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}, codes.Unknown, `container "nope" not found`},
	})
}

func TestJournalKeepsTheLastLines(t *testing.T) {
	j := newJournal()
	for range journalLines + 1 {
		j.write("x", "old")
	}
	j.write("x", "new")
	pos, known := j.tail("x", -1)
	got, next, err := j.read(t.Context(), "x", pos-2, false) // from before what is left
	if !known || err != nil || len(got) != journalLines || got[len(got)-1].text != "new" || next != journalLines+2 {
		t.Errorf("%d lines up to position %d, error %v", len(got), next, err)
	}
}

func TestMeta(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	c := newTestCluster(t, endpointOf(f))
	m := configured(t, f, c, "cp", machinetype.TypeControlPlane)
	cl := c.client(t, m)
	const key = meta.UserReserved1
	write := func(key uint32, value []byte) func(context.Context, *client.Client) error {
		return func(ctx context.Context, c *client.Client) error {
			_, err := c.MachineClient.MetaWrite(ctx, &machine.MetaWriteRequest{Key: key, Value: value})
			return err
		}
	}
	remove := func(ctx context.Context, c *client.Client) error { return c.MetaDelete(ctx, key) }
	read := getResource(runtime.MetaKeyType, runtime.NamespaceName, runtime.MetaKeyTagToID(key))
	checkCalls(t, cl, []call{
		{"none yet", remove, codes.NotFound, "meta key not found"},
		{"write", write(key, []byte("rack 7")), codes.OK, ""},
		{"read", read, codes.OK, ""},
		{"not a byte", write(256, nil), codes.InvalidArgument, "key must be a uint8"},
		{"too much", write(key+1, make([]byte, metaCapacity)), codes.ResourceExhausted, "meta write failed"},
		{"as much as fits in its place", write(key, make([]byte, metaCapacity)), codes.OK, ""},
		{"delete", remove, codes.OK, ""},
		{"gone", read, codes.NotFound, ""},
		{"of STATE", write(uint32(metaOfState), []byte("key")), codes.OK, ""},
		{"write again", write(key, []byte("rack 7")), codes.OK, ""},
	})
	checkCalls(t, c.client(t, m, role.MetaWriter), []call{
		{"a meta writer", write(key, []byte("rack 8")), codes.OK, ""},
	})
	checkCalls(t, c.client(t, m, role.Operator), []call{
		{"an operator", write(key, nil), codes.PermissionDenied, "not authorized"},
	})

	// What is on META outlives a reset that keeps META, but for the value that belongs to STATE.
	if err := cl.ResetGeneric(testContext(t), wipe(labelState, labelEphemeral)); err != nil {
		t.Fatal(err)
	}
	await(t, m, "the end of the reset", func(m *Machine) bool { return !m.HasPartition(labelState) })
	if diff := cmp.Diff(map[uint8][]byte{key: []byte("rack 8")}, m.disks.metaValues()); diff != "" {
		t.Errorf("META after the reset: -want, +got:\n%s", diff)
	}
}

func TestMetaOfAMachineWithoutMETAIsLostWithTheBoot(t *testing.T) {
	s := newDiskSet(t.TempDir(), []Disk{{DevPath: "/dev/sda"}})
	s.setMeta(1, []byte("x"))
	s.reloadMeta()
	if got := s.metaValues(); len(got) > 0 {
		t.Errorf("it is still there: %q", got)
	}
	s.setMeta(1, []byte("x"))
	if err := s.install("/dev/sda", "v1.13.9"); err != nil {
		t.Fatal(err)
	}
	s.reloadMeta()
	if got := s.metaValues(); len(got) != 1 {
		t.Errorf("the installation did not keep it: %q", got)
	}
}

func TestBlockDeviceWipe(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	m := addMachine(t, f, MachineSpec{Name: "m", Installed: true, Disks: []Disk{
		{DevPath: "/dev/sda"}, {DevPath: "/dev/sdb"}, {DevPath: "/dev/sdc", ReadOnly: true}, {DevPath: "/dev/sr0", CDROM: true},
	}})
	awaitStage(t, m, "maintenance")
	device := func(d *storage.BlockDeviceWipeDescriptor, more ...*storage.BlockDeviceWipeDescriptor) func(context.Context, *client.Client) error {
		return func(ctx context.Context, c *client.Client) error {
			return c.BlockDeviceWipe(ctx, &storage.BlockDeviceWipeRequest{Devices: append(more, d)})
		}
	}
	failed := codes.FailedPrecondition
	checkCalls(t, insecure(t, m), []call{
		{"no such disk", device(&storage.BlockDeviceWipeDescriptor{Device: "sdx"}), codes.NotFound, `blockdevice "sdx" not found`},
		{"read only", device(&storage.BlockDeviceWipeDescriptor{Device: "sdc"}), failed, `blockdevice "sdc" is read-only`},
		{"a CD", device(&storage.BlockDeviceWipeDescriptor{Device: "sr0"}), failed, `blockdevice "sr0" is a CD-ROM`},
		{"the system disk", device(&storage.BlockDeviceWipeDescriptor{Device: "sda"}), failed, `blockdevice "sda" is in use by volume "BIOS"`},
		{"one of two may not be wiped", device(&storage.BlockDeviceWipeDescriptor{Device: "sda4"}, &storage.BlockDeviceWipeDescriptor{Device: "sdb"}), failed, `blockdevice "sda4" is in use by volume "META"`},
	})
	if n := m.disks.wiped["/dev/sdb"]; n != 0 {
		t.Errorf("a disk was wiped %d times by a request that was refused", n)
	}
	checkCalls(t, insecure(t, m), []call{
		{"a free disk", device(&storage.BlockDeviceWipeDescriptor{Device: "sdb"}), codes.OK, ""},
		{"a partition, kept", device(&storage.BlockDeviceWipeDescriptor{Device: "sda3", SkipVolumeCheck: true}), codes.OK, ""},
		{"a partition, dropped", device(&storage.BlockDeviceWipeDescriptor{Device: "sda4", SkipVolumeCheck: true, DropPartition: true}), codes.OK, ""},
	})
	if m.disks.wiped["/dev/sdb"] != 1 || !m.HasPartition(labelBoot) || m.disks.version() != "" || m.HasPartition(labelMeta) {
		t.Errorf("wiped: %v, BOOT: %t with %q, META: %t", m.disks.wiped, m.HasPartition(labelBoot), m.disks.version(), m.HasPartition(labelMeta))
	}
	checkCalls(t, insecure(t, m), []call{
		{"all of the system disk", device(&storage.BlockDeviceWipeDescriptor{Device: "sda", SkipVolumeCheck: true}), codes.OK, ""},
	})
	if m.HasPartition(labelEFI) || m.disks.system() != "" {
		t.Error("the system disk was not wiped")
	}
}

func TestBlockDeviceWipeOfAConfiguredMachineIsForAdmins(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	c := newTestCluster(t, endpointOf(f))
	m := configured(t, f, c, "cp", machinetype.TypeControlPlane)
	nothing := func(ctx context.Context, c *client.Client) error {
		return c.BlockDeviceWipe(ctx, &storage.BlockDeviceWipeRequest{})
	}
	checkCalls(t, c.client(t, m), []call{{"admin", nothing, codes.OK, ""}})
	checkCalls(t, c.client(t, m, role.Reader), []call{{"reader", nothing, codes.PermissionDenied, "not authorized"}})
}

func TestHealthCheck(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	c := newTestCluster(t, endpointOf(f))
	m := configured(t, f, c, "cp", machinetype.TypeControlPlane)
	ctx, cl := testContext(t), c.client(t, m)
	check := func(timeout time.Duration) ([]string, error) {
		stream, err := cl.ClusterHealthCheck(ctx, timeout, nil)
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		for {
			p, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return said, nil
			}
			if err != nil {
				return said, err
			}
			said = append(said, p.GetMessage())
		}
	}
	address := m.Address().String()
	said, err := check(500 * time.Millisecond)
	want := []string{
		`discovered nodes: control plane: ["` + address + `"], worker: []`,
		"waiting for apid to be ready: OK",
		"waiting for etcd to be healthy: " + address + `: service "etcd" not in expected state "Running": current state [Preparing] Running pre state`,
	}
	if diff := cmp.Diff(want, said); diff != "" || client.StatusCode(err) != codes.DeadlineExceeded {
		t.Errorf("before the bootstrap: error %v; -want, +got:\n%s", err, diff)
	}
	if err := cl.Bootstrap(ctx, &machine.BootstrapRequest{}); err != nil {
		t.Fatal(err)
	}
	said, err = check(testTimeout)
	if err != nil || said[len(said)-1] != "waiting for all k8s nodes to report ready: OK" {
		t.Errorf("after the bootstrap: %q, error %v", said, err)
	}
	awaitReady(t, m) // or it would be a check that passes too early
}
