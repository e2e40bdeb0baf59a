package etcdmember

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
)

// A download is a caller that takes a snapshot.
type download struct {
	grpc.ServerStream
	ctx    context.Context //nolint:containedctx // a stream carries its own context
	frames [][]byte
}

func (d *download) Context() context.Context { return d.ctx }

func (d *download) Send(frame *common.Data) error {
	d.frames = append(d.frames, frame.GetBytes())
	return nil
}

// An upload is a caller that sends a snapshot.
type upload struct {
	grpc.ServerStream
	frames [][]byte
	err    error // how the stream ends, if not well
	closed bool
}

func (u *upload) Recv() (*common.Data, error) {
	if len(u.frames) == 0 {
		if u.err != nil {
			return nil, u.err
		}
		return nil, io.EOF
	}
	frame := u.frames[0]
	u.frames = u.frames[1:]
	return &common.Data{Bytes: frame}, nil
}

func (u *upload) SendAndClose(*machine.EtcdRecoverResponse) error {
	u.closed = true
	return nil
}

func (n *node) snapshot(ctx context.Context) ([]byte, error) {
	to := &download{ctx: ctx}
	err := n.EtcdSnapshot(&machine.EtcdSnapshotRequest{}, to)
	for _, f := range to.frames {
		if len(f) > snapshotChunk {
			n.lab.t.Errorf("a frame of %d bytes", len(f))
		}
	}
	return bytes.Join(to.frames, nil), err
}

// complete checks the hash at the end of a snapshot.
func complete(snapshot []byte) bool {
	if len(snapshot) < sha256.Size || len(snapshot)%512 != sha256.Size {
		return false
	}
	body, hash := snapshot[:len(snapshot)-sha256.Size], snapshot[len(snapshot)-sha256.Size:]
	sum := sha256.Sum256(body)
	return bytes.Equal(sum[:], hash)
}

func (n *node) recoverFrom(snapshot []byte, skipHashCheck bool) {
	n.lab.t.Helper()
	half := len(snapshot) / 2
	stream := &upload{frames: [][]byte{snapshot[:half], snapshot[half:]}}
	if err := n.EtcdRecover(stream); err != nil || !stream.closed {
		n.lab.t.Fatalf("cannot store a snapshot: %v", err)
	}
	if err := n.Bootstrap(true, skipHashCheck); err != nil {
		n.lab.t.Fatal(err)
	}
}

func (n *node) mustRead(key, want string) {
	n.lab.t.Helper()
	got, err := n.client().Get(n.lab.within(patience), key)
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != want {
		n.lab.t.Errorf("%s reads %v, %v; want %q", n.hostname, got, err, want)
	}
}

func TestSnapshotAndRecover(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.bootstrapped("a")
	if _, err := a.client().Put(l.within(patience), "key", "value"); err != nil {
		t.Fatal(err)
	}
	whole, err := a.snapshot(l.within(patience))
	if err != nil || !complete(whole) {
		t.Fatalf("snapshot of %d bytes, %v", len(whole), err)
	}
	a.Stop()
	raw, err := os.ReadFile(filepath.Join(a.data(), "member", "snap", "db"))
	if err != nil {
		t.Fatal(err)
	}

	fresh := l.add("fresh")
	fresh.Start()
	fresh.recoverFrom(whole, false)
	fresh.awaitVoter()
	fresh.mustRead("key", "value")
	if got := fresh.names(); got != "fresh" {
		t.Errorf("members: %q", got)
	}
	if _, err := os.Stat(fresh.o.SnapshotPath); !os.IsNotExist(err) {
		t.Errorf("the stored snapshot after recovery: %v, want none", err)
	}
	joined := l.joined("joined")
	joined.mustRead("key", "value")

	// A raw copy of the database has no hash, so it must not be checked.
	bare := l.add("bare")
	bare.fault(FaultJoinInterrupted, true)
	bare.recoverFrom(raw, false)
	bare.awaitState(StateFailed)
	if got := bare.Status().LastMessage; !strings.HasPrefix(got, "Failed to run pre stage: error recovering from the snapshot: ") {
		t.Errorf("message: %q", got)
	}
	if err := os.RemoveAll(bare.data()); err != nil {
		t.Fatal(err)
	}
	bare.recoverFrom(raw, true)
	bare.awaitVoter()
	bare.mustRead("key", "value")
}

func TestTruncatedSnapshotEndsWithOK(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.bootstrapped("a")
	cli := a.client()
	for i := range 100 { // so many pages that a short file lacks some that others point to
		if _, err := cli.Put(l.within(patience), strconv.Itoa(i), strings.Repeat("x", 1000)); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := a.snapshot(l.within(patience))
	if err != nil {
		t.Fatal(err)
	}
	a.fault(FaultSnapshotTruncated, true)
	short, err := a.snapshot(l.within(patience))
	if err != nil || len(short) == 0 || len(short) >= len(whole) || complete(short) {
		t.Fatalf("truncated snapshot: %d of %d bytes, %v", len(short), len(whole), err)
	}

	b := l.add("b")
	for name, data := range map[string][]byte{
		"as the fault cuts it": short, "cut within the data": whole[:len(whole)/2+77], "cut within the hash": whole[:len(whole)-1],
		"garbage": bytes.Repeat([]byte("garbage "), 4096), "nothing": nil,
	} {
		b.recoverFrom(data, false)
		b.awaitState(StateFailed)
		if got := b.Status().LastMessage; !strings.HasPrefix(got, "Failed to run pre stage: error verifying snapshot: ") &&
			!strings.HasPrefix(got, "Failed to run pre stage: error recovering from the snapshot: ") {
			t.Errorf("%s: message %q", name, got)
		}
		if err := os.RemoveAll(b.data()); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(b.o.SnapshotPath); err != nil {
		t.Fatal(err)
	}
	if err := b.Bootstrap(true, false); err != nil {
		t.Fatal(err)
	}
	b.awaitState(StateFailed)
	if got := b.Status().LastMessage; !strings.HasPrefix(got, "Failed to run pre stage: error verifying snapshot: ") {
		t.Errorf("without a snapshot: message %q", got)
	}

	// Trying again is all it takes.
	b.recoverFrom(whole, false)
	b.awaitVoter()
}

func TestRecoverKeepsNothingOfABrokenUpload(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.bootstrapped("a")
	broken := errors.New("connection lost")
	if err := a.EtcdRecover(&upload{frames: [][]byte{[]byte("some")}, err: broken}); !errors.Is(err, broken) {
		t.Errorf("upload: %v", err)
	}
	if _, err := os.Stat(a.o.SnapshotPath); !os.IsNotExist(err) {
		t.Errorf("stored snapshot: %v, want none", err)
	}
	// The content is never looked at, nor whether etcd is healthy.
	if err := a.EtcdRecover(&upload{frames: [][]byte{[]byte("anything")}}); err != nil {
		t.Errorf("upload to a healthy etcd: %v", err)
	}
	if err := os.RemoveAll(a.dir); err != nil {
		t.Fatal(err)
	}
	wantError(t, "upload without EPHEMERAL", a.EtcdRecover(&upload{}), "FailedPrecondition", "etcd service is not ready for recovery yet")
}
