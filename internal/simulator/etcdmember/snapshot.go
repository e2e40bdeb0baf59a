package etcdmember

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// snapshotChunk is how much of a snapshot one frame carries.
	snapshotChunk = 1024
	// truncatedChunks is after how many frames a snapshot ends that a fault cuts short.
	truncatedChunks = 5
)

// EtcdSnapshot streams the local member's database with its hash. An error in the middle is swallowed: the stream ends with
// OK and the file is short.
func (s *Service) EtcdSnapshot(_ *machine.EtcdSnapshotRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	cli, err := s.dialLocal()
	if err != nil {
		return fmt.Errorf("failed to create etcd client: %w", err)
	}
	defer cli.Close() //nolint:errcheck // it only reads
	from, err := cli.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("failed reading etcd snapshot: %w", err)
	}
	defer from.Close() //nolint:errcheck // it only reads
	for sent := 0; sent < truncatedChunks || !s.o.Faults(FaultSnapshotTruncated); sent++ {
		chunk := make([]byte, snapshotChunk) // a stream may hold on to what was sent
		n, readErr := io.ReadFull(from, chunk)
		if n > 0 {
			if err := stream.Send(&common.Data{Bytes: chunk[:n]}); err != nil {
				return err
			}
		}
		if readErr != nil {
			return nil // Talos swallows it, and callers must be ready for that
		}
	}
	return nil
}

// EtcdRecover stores a snapshot for a later Bootstrap, whatever it holds and whatever etcd does meanwhile.
func (s *Service) EtcdRecover(stream grpc.ClientStreamingServer[common.Data, machine.EtcdRecoverResponse]) error {
	if _, err := os.Stat(filepath.Dir(s.o.SnapshotPath)); errors.Is(err, fs.ErrNotExist) {
		return status.Error(codes.FailedPrecondition, "etcd service is not ready for recovery yet")
	}
	if err := s.receive(stream); err != nil {
		_ = os.Remove(s.o.SnapshotPath)
		return err
	}
	return stream.SendAndClose(&machine.EtcdRecoverResponse{Messages: []*machine.EtcdRecover{{}}})
}

func (s *Service) receive(stream grpc.ClientStreamingServer[common.Data, machine.EtcdRecoverResponse]) error {
	to, err := os.OpenFile(s.o.SnapshotPath, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("error creating etcd recovery snapshot: %w", err)
	}
	defer to.Close() //nolint:errcheck // on the good path it was closed before, and its error seen
	for {
		frame, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if _, err := to.Write(frame.GetBytes()); err != nil {
			return fmt.Errorf("error writing snapshot: %w", err)
		}
	}
	if err := to.Close(); err != nil {
		return fmt.Errorf("error closing snapshot: %w", err)
	}
	return nil
}
