package simulator

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
)

// copyChunk is how many bytes a message of Copy carries at most.
const copyChunk = 32 << 10

// Copy streams a file or a directory as a tar.gz. What goes wrong on the way is told in the last message, and the call ends
// with OK nevertheless.
func (s *system) Copy(in *machine.CopyRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	root := path.Clean(in.GetRootPath())
	if !path.IsAbs(root) {
		return fmt.Errorf("path is not absolute %v", root)
	}
	w := bufio.NewWriterSize(dataWriter{stream}, copyChunk)
	err := s.archive(w, root)
	if err := errors.Join(err, w.Flush()); err != nil {
		return stream.Send(&common.Data{Metadata: &common.Metadata{Error: err.Error()}})
	}
	return nil
}

// A dataWriter sends what is written as messages.
type dataWriter struct {
	stream grpc.ServerStreamingServer[common.Data]
}

func (d dataWriter) Write(p []byte) (int, error) {
	if err := d.stream.Send(&common.Data{Bytes: bytes.Clone(p)}); err != nil {
		return 0, err
	}
	return len(p), nil
}

// archive packs what lies under a path. The archive is whole, if empty, even where that fails.
func (s *system) archive(w io.Writer, root string) error {
	zip := gzip.NewWriter(w)
	archive := tar.NewWriter(zip)
	err := s.pack(archive, root)
	return errors.Join(err, archive.Close(), zip.Close())
}

func (s *system) pack(archive *tar.Writer, root string) error {
	if content, ok := s.file(root); ok {
		return packFile(archive, path.Base(root), int64(len(content)), strings.NewReader(content))
	}
	dir, ok := s.onEphemeral(root)
	if !ok {
		return fmt.Errorf("lstat %s: no such file or directory", root)
	}
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return errors.New(strings.ReplaceAll(err.Error(), dir, root)) // the path as the caller knows it
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		if rel == "." && !d.IsDir() {
			rel = path.Base(root)
		}
		if d.IsDir() {
			return archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: rel + "/", ModTime: time.Now(), Mode: 0o700})
		}
		return packDiskFile(archive, rel, name)
	})
}

// packDiskFile packs a file as long as it is now: etcd may be writing to it.
func packDiskFile(archive *tar.Writer, rel, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // read only
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return packFile(archive, rel, info.Size(), f)
}

func packFile(archive *tar.Writer, name string, size int64, content io.Reader) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, ModTime: time.Now(), Mode: 0o600}
	if err := archive.WriteHeader(header); err != nil {
		return fmt.Errorf("cannot pack %q: %w", name, err)
	}
	if _, err := io.CopyN(archive, content, size); err != nil {
		return fmt.Errorf("cannot pack %q: %w", name, err)
	}
	return nil
}

// tarGz packs one file.
func tarGz(name string, content []byte) ([]byte, error) {
	buf := &bytes.Buffer{}
	zip := gzip.NewWriter(buf)
	archive := tar.NewWriter(zip)
	err := packFile(archive, name, int64(len(content)), bytes.NewReader(content))
	if err := errors.Join(err, archive.Close(), zip.Close()); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
