package simulator

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

const bootIDPath = "/proc/sys/kernel/random/boot_id"

// Read streams a file. Of the files of a real system there are those that clients are known to read.
func (s *system) Read(in *machine.ReadRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	var content string
	switch in.GetPath() {
	case bootIDPath:
		content = s.bootID + "\n"
	case "/proc/sys/kernel/hostname", "/etc/hostname":
		content = s.hostname() + "\n"
	case "/sys/class/dmi/id/product_uuid":
		content = s.m.reportedUUID() + "\n"
	default:
		return status.Errorf(codes.NotFound, "stat %s: no such file or directory", in.GetPath())
	}
	return stream.Send(&common.Data{Bytes: []byte(content)})
}

// Kubeconfig streams a tar.gz with an administrator's kubeconfig, made anew for each call.
func (s *system) Kubeconfig(_ *emptypb.Empty, stream grpc.ServerStreamingServer[common.Data]) error {
	if err := s.controlPlane("kubeconfig"); err != nil {
		return err
	}
	kubeconfig, err := adminKubeconfig(s.activeConfig(), time.Now())
	if err != nil {
		return err
	}
	packed, err := tarGz("kubeconfig", kubeconfig)
	if err != nil {
		return err
	}
	return stream.Send(&common.Data{Bytes: packed})
}

func tarGz(name string, content []byte) ([]byte, error) {
	buf := &bytes.Buffer{}
	zip := gzip.NewWriter(buf)
	archive := tar.NewWriter(zip)
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), ModTime: time.Now(), Mode: 0o600}
	if err := archive.WriteHeader(header); err != nil {
		return nil, fmt.Errorf("cannot pack %q: %w", name, err)
	}
	if _, err := archive.Write(content); err != nil {
		return nil, fmt.Errorf("cannot pack %q: %w", name, err)
	}
	if err := errors.Join(archive.Close(), zip.Close()); err != nil {
		return nil, fmt.Errorf("cannot pack %q: %w", name, err)
	}
	return buf.Bytes(), nil
}

// GenerateClientConfiguration issues a client certificate for the roles that the caller wants.
func (s *system) GenerateClientConfiguration(
	_ context.Context, in *machine.GenerateClientConfigurationRequest,
) (*machine.GenerateClientConfigurationResponse, error) {
	if err := s.controlPlane("generate client configuration"); err != nil {
		return nil, err
	}
	ttl := in.GetCrtTtl().AsDuration()
	if ttl <= 0 {
		return nil, status.Error(codes.InvalidArgument, "crt_ttl should be positive")
	}
	cfg := s.activeConfig()
	bundle := secrets.NewBundleFromConfig(secrets.NewFixedClock(s.now()), cfg)
	roles, _ := role.Parse(in.GetRoles())
	cert, err := bundle.GenerateTalosAPIClientCertificateWithTTL(roles, ttl)
	if err != nil {
		return nil, fmt.Errorf("cannot issue client certificate: %w", err)
	}
	name := cfg.Cluster().Name()
	if names := roles.Strings(); len(names) == 1 {
		name = strings.TrimPrefix(names[0], role.Prefix) + "@" + name
	}
	talosconfig, err := clientconfig.NewConfig(name, nil, bundle.Certs.OS.Crt, cert).Bytes()
	if err != nil {
		return nil, fmt.Errorf("cannot encode talosconfig: %w", err)
	}
	return &machine.GenerateClientConfigurationResponse{Messages: []*machine.GenerateClientConfiguration{{
		Ca: bundle.Certs.OS.Crt, Crt: cert.Crt, Key: cert.Key, Talosconfig: talosconfig,
	}}}, nil
}
