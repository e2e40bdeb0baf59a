package simulator

import (
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

func TestForwarding(t *testing.T) {
	f := newTestFleet(t, Options{})
	useFakeEtcd(f)
	c := newTestCluster(t, endpointOf(f))
	cp := configured(t, f, c, "cp", machinetype.TypeControlPlane)
	worker := configured(t, f, c, "w", machinetype.TypeWorker)
	blank := addMachine(t, f, MachineSpec{Name: "blank"})
	awaitStage(t, blank, "maintenance")
	address := worker.Address().String()

	t.Run("to one node", func(t *testing.T) {
		ctx := client.WithNode(testContext(t), address)
		reply, err := c.client(t, cp).MachineClient.Hostname(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := reply.GetMessages()[0]; got.GetHostname() != worker.Hostname() || got.GetMetadata() != nil {
			t.Errorf("reply %v, want the worker's without metadata", got)
		}
		if err := getResource(runtime.MachineStatusType, runtime.NamespaceName, runtime.MachineStatusID)(ctx, c.client(t, cp)); err != nil {
			t.Error(err)
		}
	})
	t.Run("the caller's roles go along", func(t *testing.T) {
		err := c.client(t, cp, role.Reader).Reboot(client.WithNode(testContext(t), address))
		if codeOf(err) != codes.PermissionDenied {
			t.Errorf("error %v", err)
		}
	})
	t.Run("to many nodes", func(t *testing.T) {
		nodes := []string{cp.Address().String(), address, blank.Address().String()}
		reply, err := c.client(t, cp).MachineClient.Hostname(client.WithNodes(testContext(t), nodes...), nil)
		if err != nil {
			t.Fatal(err)
		}
		failed := 0
		for _, msg := range reply.GetMessages() {
			switch node := msg.GetMetadata().GetHostname(); node {
			case cp.Address().String(), address:
				if f.byAddress(node).Hostname() != msg.GetHostname() {
					t.Errorf("%q says it is %q", node, msg.GetHostname())
				}
			case blank.Address().String():
				failed++
				if !strings.Contains(msg.GetMetadata().GetError(), "unknown authority") || msg.GetMetadata().GetStatus().GetCode() != int32(codes.Unavailable) {
					t.Errorf("a machine in maintenance mode: %v", msg)
				}
			default:
				t.Errorf("unknown node %q", node)
			}
		}
		if len(reply.GetMessages()) != 3 || failed != 1 {
			t.Errorf("reply %v", reply)
		}
	})
	t.Run("a stream from many nodes", func(t *testing.T) {
		stream, err := c.client(t, cp).MachineClient.Read(client.WithNodes(testContext(t), cp.Address().String(), address), &machine.ReadRequest{Path: bootIDPath})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for {
			data, err := stream.Recv()
			if err != nil {
				break
			}
			got[data.GetMetadata().GetHostname()] += string(data.GetBytes())
		}
		if got[address] != worker.BootID()+"\n" || got[cp.Address().String()] != cp.BootID()+"\n" {
			t.Errorf("frames %v", got)
		}
	})
	t.Run("what cannot be", func(t *testing.T) {
		version := func(c *client.Client, kv ...string) error {
			_, err := c.Version(metadata.AppendToOutgoingContext(testContext(t), kv...))
			return err
		}
		admin := c.client(t, cp)
		for _, tc := range []struct {
			reason string
			err    error
			code   codes.Code
			text   string
		}{
			{"two values of node", version(admin, "node", "a", "node", "b"), codes.InvalidArgument, "node metadata must be single-valued"},
			{"a port", version(admin, "node", "127.0.0.1:50000"), codes.Internal, `invalid target "127.0.0.1:50000"`},
			{"an empty node", version(admin, "node", ""), codes.Internal, `invalid target ""`},
			{"COSI to many", getResource(runtime.MachineStatusType, runtime.NamespaceName, runtime.MachineStatusID)(client.WithNodes(testContext(t), address), admin), codes.InvalidArgument, "one-2-many proxying is not supported for method /cosi.resource.State/Get"},
			{"by a worker", version(c.client(t, worker), "node", cp.Address().String()), codes.PermissionDenied, "no request forwarding"},
			{"by a worker to itself", version(c.client(t, worker), "node", address), codes.OK, ""},
			{"to a machine in maintenance mode", version(admin, "node", blank.Address().String()), codes.Unavailable, "unknown authority"},
		} {
			if codeOf(tc.err) != tc.code || (tc.err != nil && !strings.Contains(tc.err.Error(), tc.text)) {
				t.Errorf("%s: error %v, want %v with %q", tc.reason, tc.err, tc.code, tc.text)
			}
		}
	})
	t.Run("to a machine that has just come up", func(t *testing.T) {
		if err := worker.SetFault(FaultProxyLag, true); err != nil {
			t.Fatal(err)
		}
		s := worker.system()
		s.mu.Lock()
		since := s.apiUp
		s.apiUp = s.apiUp.Add(1e15) // as if it came up in the future: the lag has not passed, whatever the test's pace
		s.mu.Unlock()
		_, err := c.client(t, cp).Version(client.WithNode(testContext(t), address))
		if codeOf(err) != codes.Unavailable {
			t.Errorf("error %v", err)
		}
		s.mu.Lock()
		s.apiUp = since.Add(-1e15)
		s.mu.Unlock()
		if _, err := c.client(t, cp).Version(client.WithNode(testContext(t), address)); err != nil {
			t.Error(err)
		}
	})
}
