package simulator

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
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

const (
	bootIDPath = "/proc/sys/kernel/random/boot_id"

	// ephemeralMount is where Talos mounts EPHEMERAL.
	ephemeralMount = "/var"
)

// file returns one of the files outside of EPHEMERAL that clients are known to read.
func (s *system) file(name string) (content string, ok bool) {
	switch name {
	case bootIDPath:
		return s.bootID + "\n", true
	case "/proc/sys/kernel/hostname", "/etc/hostname":
		return s.hostname() + "\n", true
	case "/sys/class/dmi/id/product_uuid":
		return s.m.reportedUUID() + "\n", true
	default:
		return "", false
	}
}

// onEphemeral is where a path under /var really lies; false if EPHEMERAL is not mounted or the path is not on it.
func (s *system) onEphemeral(name string) (string, bool) {
	s.mu.Lock()
	mounted := s.ephemeral
	s.mu.Unlock()
	rel, ok := strings.CutPrefix(name+"/", ephemeralMount+"/")
	return filepath.Join(s.m.disks.dir, filepath.FromSlash(rel)), mounted && ok
}

// Read streams a file.
func (s *system) Read(in *machine.ReadRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	name := path.Clean(in.GetPath())
	if content, ok := s.file(name); ok {
		return stream.Send(&common.Data{Bytes: []byte(content)})
	}
	if real, ok := s.onEphemeral(name); ok {
		if f, err := os.Open(real); err == nil {
			defer func() { _ = f.Close() }() // read only
			_, err = io.CopyBuffer(dataWriter{stream}, f, make([]byte, copyChunk))
			return err
		}
	}
	return status.Errorf(codes.NotFound, "stat %s: no such file or directory", in.GetPath())
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
