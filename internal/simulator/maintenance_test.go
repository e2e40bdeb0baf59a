package simulator

import (
	"context"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	"github.com/siderolabs/talos/pkg/machinery/client"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"
)

// A call is one request of a conformance table, with what a real machine answers.
type call struct {
	reason string
	do     func(context.Context, *client.Client) error
	code   codes.Code
	text   string // contained in the error's message
}

func checkCalls(t *testing.T, c *client.Client, calls []call) {
	t.Helper()
	for _, tc := range calls {
		t.Run(tc.reason, func(t *testing.T) {
			err := tc.do(testContext(t), c)
			if got := codeOf(err); got != tc.code {
				t.Fatalf("code %v, want %v (%v)", got, tc.code, err)
			}
			if err != nil && !strings.Contains(err.Error(), tc.text) {
				t.Errorf("error %q does not contain %q", err, tc.text)
			}
		})
	}
}

// codeOf looks through what the clients wrap around a status.
func codeOf(err error) codes.Code {
	switch {
	case err == nil:
		return codes.OK
	case state.IsNotFoundError(err):
		return codes.NotFound
	case state.IsOwnerConflictError(err):
		return codes.PermissionDenied // what the COSI client makes of it
	default:
		return client.StatusCode(err)
	}
}

func getResource(kind resource.Type, ns resource.Namespace, id resource.ID) func(context.Context, *client.Client) error {
	return func(ctx context.Context, c *client.Client) error {
		_, err := c.COSI.Get(ctx, resource.NewMetadata(ns, kind, id, resource.VersionUndefined))
		return err
	}
}

func TestMaintenanceMode(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	m := addMachine(t, f, MachineSpec{Name: "m"})
	awaitStage(t, m, "maintenance")
	c := insecure(t, m)

	denied, deniedText := codes.PermissionDenied, "not authorized"
	checkCalls(t, c, []call{
		{"Version", func(ctx context.Context, c *client.Client) error { _, err := c.Version(ctx); return err }, codes.OK, ""},
		{"ServiceList", func(ctx context.Context, c *client.Client) error { _, err := c.ServiceList(ctx); return err }, codes.OK, ""},
		{"SystemStat", func(ctx context.Context, c *client.Client) error {
			_, err := c.MachineClient.SystemStat(ctx, &emptypb.Empty{})
			return err
		}, codes.OK, ""},
		{"Disks", func(ctx context.Context, c *client.Client) error { _, err := c.Disks(ctx); return err }, codes.OK, ""},
		{"Reset", func(ctx context.Context, c *client.Client) error { return c.Reset(ctx, false, true) }, denied, deniedText},
		{"Reboot", func(ctx context.Context, c *client.Client) error { return c.Reboot(ctx) }, denied, deniedText},
		{"Shutdown", func(ctx context.Context, c *client.Client) error { return c.Shutdown(ctx) }, denied, deniedText},
		{"Bootstrap", func(ctx context.Context, c *client.Client) error {
			return c.Bootstrap(ctx, &machine.BootstrapRequest{})
		}, denied, deniedText},
		{"MetaWrite", func(ctx context.Context, c *client.Client) error { return c.MetaWrite(ctx, 1, nil) }, denied, deniedText},
		{"etcd member list passes the roles and fails as there is no type", func(ctx context.Context, c *client.Client) error {
			_, err := c.EtcdMemberList(ctx, &machine.EtcdMemberListRequest{})
			return err
		}, codes.Unimplemented, "machine type is not set, cannot use member list API"},
		{"MachineStatus", getResource(runtime.MachineStatusType, runtime.NamespaceName, runtime.MachineStatusID), codes.OK, ""},
		{"SystemInformation", getResource(hardware.SystemInformationType, hardware.NamespaceName, hardware.SystemInformationID), codes.OK, ""},
		{"MachineConfig is sensitive", getResource("MachineConfigs.config.talos.dev", "config", "v1alpha1"), denied, deniedText},
		{"a type that does not exist", getResource("Nopes.talos.dev", "runtime", "x"), denied, `resource type "Nopes.talos.dev" is not supported`},
		{"a namespace that does not exist", getResource(runtime.MachineStatusType, "nope", "x"), denied, `namespace "nope" is not supported`},
		{"a resource that does not exist", getResource(runtime.MachineStatusType, runtime.NamespaceName, "x"), codes.NotFound, ""},
		{"routing is ignored", func(ctx context.Context, c *client.Client) error {
			_, err := c.Version(client.WithNodes(ctx, "127.0.0.1", "127.0.0.2"))
			return err
		}, codes.OK, ""},
		{"writing a resource", func(ctx context.Context, c *client.Client) error {
			return c.COSI.Create(ctx, runtime.NewMachineStatus())
		}, denied, "not authorized"},
	})

	info, err := safe.StateGetByID[*hardware.SystemInformation](testContext(t), c.COSI, hardware.SystemInformationID)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.TypedSpec().UUID; got != m.UUID() {
		t.Errorf("UUID %q, want %q", got, m.UUID())
	}
}

func TestMaintenanceModeOf112(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	m := addMachine(t, f, MachineSpec{Name: "m", TalosVersion: "v1.12.4"})
	awaitStage(t, m, "maintenance")
	c := newTestCluster(t, endpointOf(f))
	data := c.config(t, machinetype.TypeControlPlane)
	apply := func(mode machine.ApplyConfigurationRequest_Mode, data []byte, dry bool) func(context.Context, *client.Client) error {
		return func(ctx context.Context, cl *client.Client) error {
			_, err := cl.ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{Data: data, Mode: mode, DryRun: dry})
			return err
		}
	}
	own := "API is not implemented in maintenance mode"
	checkCalls(t, insecure(t, m), []call{
		{"Version", func(ctx context.Context, c *client.Client) error { _, err := c.Version(ctx); return err }, codes.Unimplemented, own},
		{"Reset", func(ctx context.Context, c *client.Client) error { return c.Reset(ctx, false, true) }, codes.Unimplemented, own},
		{"MetaWrite", func(ctx context.Context, c *client.Client) error { return c.MetaWrite(ctx, 1, nil) }, codes.Unimplemented, own},
		{"ServiceList", func(ctx context.Context, c *client.Client) error { _, err := c.ServiceList(ctx); return err }, codes.Unimplemented, "not implemented"},
		{"image service", func(ctx context.Context, c *client.Client) error {
			stream, err := c.ImageClient.Pull(ctx, &machine.ImageServicePullRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}, codes.Unimplemented, "unknown service machine.ImageService"},
		{"Disks", func(ctx context.Context, c *client.Client) error {
			_, err := c.StorageClient.Disks(ctx, &emptypb.Empty{})
			return err
		}, codes.OK, ""},
		{"wiping a device", func(ctx context.Context, c *client.Client) error {
			_, err := c.StorageClient.BlockDeviceWipe(ctx, &storage.BlockDeviceWipeRequest{})
			return err
		}, codes.OK, ""},
		{"MachineStatus", getResource(runtime.MachineStatusType, runtime.NamespaceName, runtime.MachineStatusID), codes.OK, ""},
		{"MachineConfig is sensitive", getResource("MachineConfigs.config.talos.dev", "config", "v1alpha1"), codes.PermissionDenied, "not authorized"},
		{"mode no-reboot", apply(machine.ApplyConfigurationRequest_NO_REBOOT, data, false), codes.Unimplemented, "apply configuration --mode='no-reboot' is not supported in maintenance mode"},
		{"mode staged", apply(machine.ApplyConfigurationRequest_STAGED, data, false), codes.Unimplemented, "apply configuration --mode='staged' is not supported in maintenance mode"},
		{"a config that is none", apply(machine.ApplyConfigurationRequest_AUTO, []byte("x: ["), false), codes.Unknown, "failed to parse config: "},
		{"a dry run", apply(machine.ApplyConfigurationRequest_AUTO, data, true), codes.OK, ""},
	})
}

func TestBadConfigurations(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	m := addMachine(t, f, MachineSpec{Name: "m"})
	awaitStage(t, m, "maintenance")
	c := newTestCluster(t, endpointOf(f))
	apply := func(data string) func(context.Context, *client.Client) error {
		return func(ctx context.Context, cl *client.Client) error {
			_, err := cl.ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{Data: []byte(data)})
			return err
		}
	}
	good := string(c.config(t, machinetype.TypeControlPlane))
	checkCalls(t, insecure(t, m), []call{
		{"empty", apply(""), codes.InvalidArgument, "config not found"},
		{"not YAML", apply("x: ["), codes.InvalidArgument, "decode error: yaml: "},
		{"unknown kind", apply("apiVersion: v1alpha1\nkind: Nope\n"), codes.InvalidArgument, `"Nope" "v1alpha1": not registered`},
		{"unknown key", apply("version: v1alpha1\nmachine:\n  bogus: 1\n"), codes.InvalidArgument, "unknown keys found during decoding"},
		{"incomplete", apply("version: v1alpha1\nmachine:\n  type: controlplane\n"), codes.InvalidArgument, "cluster instructions are required"},
		{"no disk like that", apply(strings.Replace(good, "disk: /dev/sda", "diskSelector:\n            serial: nope", 1)), codes.InvalidArgument, "no disks matched the expression"},
	})
	if m.Stage() != "maintenance" {
		t.Errorf("stage %q after bad configurations", m.Stage())
	}
}
