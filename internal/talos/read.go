package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/cosi-project/runtime/pkg/state"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	configpb "github.com/siderolabs/talos/pkg/machinery/api/resource/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// System is what the machine's firmware says of it.
type System struct {
	// UUID of SMBIOS, in lower case. Never empty.
	UUID string
}

// Status is how far a machine is.
type Status struct {
	// Stage as Talos names it: booting, installing, maintenance, running, rebooting, shutting down, resetting, upgrading.
	Stage string
	// Ready is Talos's own readiness. It means something in the stages booting and running only, and is true in others.
	Ready bool
	// Unmet are the conditions that keep it from being ready, as "name: reason".
	Unmet []string
}

// Config holds a machine's configuration as bytes, exactly as they were once sent, with every key in them.
type Config struct {
	// Active is what the machine runs; nil if it has none.
	Active []byte
	// Persistent is what is on its disk, and takes effect at the next boot. It differs from Active while a configuration
	// is staged or tried. Nil if there is none.
	Persistent []byte
}

// Format writes no part of a configuration, whatever the verb: every key of the cluster is in it.
func (Config) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, "talos.Config(redacted)") }

// System reads the machine's identity. It works on blank machines too.
func (c *Client) System(ctx context.Context) (System, error) {
	var out System
	err := c.read(ctx, "read the system information", func(ctx context.Context, n *conn) error {
		r, err := get[*hardware.SystemInformation](ctx, n, hardware.NamespaceName, hardware.SystemInformationType, hardware.SystemInformationID)
		if err != nil {
			return err
		}
		out.UUID = strings.ToLower(r.TypedSpec().UUID)
		if out.UUID == "" {
			return answer(NotFound, "the machine's firmware gives no UUID, so that it cannot be told from another machine")
		}
		return nil
	})
	return out, err
}

// Status reads how far the machine is. It works on blank machines too.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var out Status
	err := c.read(ctx, "read the machine status", func(ctx context.Context, n *conn) error {
		r, err := get[*runtime.MachineStatus](ctx, n, runtime.NamespaceName, runtime.MachineStatusType, runtime.MachineStatusID)
		if err != nil {
			return err
		}
		spec := r.TypedSpec()
		out = Status{Stage: spec.Stage.String(), Ready: spec.Status.Ready}
		for _, u := range spec.Status.UnmetConditions {
			out.Unmet = append(out.Unmet, u.Name+": "+u.Reason)
		}
		return nil
	})
	return out, err
}

// Nodename reads the name under which the machine's kubelet runs. A machine that has none yet answers with the class NotFound.
func (c *Client) Nodename(ctx context.Context) (string, error) {
	var out string
	err := c.read(ctx, "read the name of the Node", func(ctx context.Context, n *conn) error {
		r, err := get[*k8s.Nodename](ctx, n, k8s.NamespaceName, k8s.NodenameType, k8s.NodenameID)
		if err != nil {
			return err
		}
		if out = r.TypedSpec().Nodename; out == "" {
			return answer(NotFound, "the machine has no Node name yet")
		}
		return nil
	})
	return out, err
}

// Version reads the version of Talos that runs, with its leading v. Blank machines of Talos 1.12 do not tell it: their
// answer has the class Unimplemented.
func (c *Client) Version(ctx context.Context) (string, error) {
	var out string
	err := c.read(ctx, "read the Talos version", func(ctx context.Context, n *conn) error {
		m, err := only(n.machine.Version(ctx, &emptypb.Empty{}))
		if err != nil {
			return err
		}
		if out = m.GetVersion().GetTag(); out == "" {
			return answer(Other, "the machine gave no version")
		}
		return nil
	})
	return out, err
}

// bootIDPath is where the kernel tells its boot ID. One larger than maxBootID is none.
const (
	bootIDPath = "/proc/sys/kernel/random/boot_id"
	maxBootID  = 64
)

// BootID reads the ID that the kernel gave this boot. Blank machines do not tell it: their answer has the class Denied.
func (c *Client) BootID(ctx context.Context) (string, error) {
	var out string
	err := c.read(ctx, "read the boot ID", func(ctx context.Context, n *conn) error {
		stream, err := n.machine.Read(ctx, &machineapi.ReadRequest{Path: bootIDPath})
		if err != nil {
			return err
		}
		var b strings.Builder
		for {
			frame, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			if text := frame.GetMetadata().GetError(); text != "" {
				return answer(Other, tidy(scrub(text)))
			}
			if b.Write(frame.GetBytes()); b.Len() > maxBootID {
				return answer(Other, "what the machine gave is no boot ID")
			}
		}
		if out = strings.TrimSpace(b.String()); out == "" {
			return answer(Other, "the machine gave no boot ID")
		}
		return nil
	})
	return out, err
}

// Config reads the machine's configuration, active and persistent, in one call. The bytes are not decoded on the way, so
// that a configuration with documents that only a newer Talos knows can still be read.
func (c *Client) Config(ctx context.Context) (Config, error) {
	var out Config
	err := c.read(ctx, "read the machine configuration", func(ctx context.Context, n *conn) error {
		kind := resource.NewMetadata(config.NamespaceName, config.MachineConfigType, "", resource.VersionUndefined)
		list, err := n.cosi.List(ctx, kind, state.WithListUnmarshalOptions(state.WithSkipProtobufUnmarshal()))
		if err != nil {
			return err
		}
		for _, r := range list.Items {
			raw, err := rawConfig(r)
			if err != nil {
				return err
			}
			switch r.Metadata().ID() {
			case config.ActiveID:
				out.Active = raw
			case config.PersistentID:
				out.Persistent = raw
			}
		}
		return nil
	})
	return out, err
}

func rawConfig(r resource.Resource) ([]byte, error) {
	wrapped, ok := r.(*protobuf.Resource)
	if !ok {
		return nil, answer(Other, "the machine configuration has an unexpected form")
	}
	m, err := wrapped.Marshal()
	if err != nil {
		return nil, answer(Other, "the machine configuration cannot be unwrapped")
	}
	var spec configpb.MachineConfigSpec
	if err := proto.Unmarshal(m.GetSpec().GetProtoSpec(), &spec); err != nil {
		return nil, answer(Other, "the machine configuration cannot be unwrapped")
	}
	return spec.GetYamlMarshalled(), nil
}

// schematicExtension is the name of the extension by which an image tells the schematic that it was made from.
const schematicExtension = "schematic"

// Schematic reads the ID of the image factory schematic that the running image was made from; empty if it was not made by
// an image factory.
func (c *Client) Schematic(ctx context.Context) (string, error) {
	var out string
	err := c.read(ctx, "read the image schematic", func(ctx context.Context, n *conn) error {
		kind := resource.NewMetadata(runtime.NamespaceName, runtime.ExtensionStatusType, "", resource.VersionUndefined)
		list, err := n.cosi.List(ctx, kind)
		if err != nil {
			return err
		}
		for _, r := range list.Items {
			if e, ok := r.(*runtime.ExtensionStatus); ok && e.TypedSpec().Metadata.Name == schematicExtension {
				out = e.TypedSpec().Metadata.Version
			}
		}
		return nil
	})
	return out, err
}

// A Service is what a machine says of one of its services.
type Service struct {
	// State as Talos names it: Preparing, Waiting, Running, Finished or Failed.
	State string
	// Says is the last event of the service, in Talos's words; empty if it told none.
	Says string
}

// EtcdService reads the state of the machine's etcd service. A machine without one, such as a worker, answers with the class
// NotFound.
func (c *Client) EtcdService(ctx context.Context) (Service, error) {
	var out Service
	err := c.read(ctx, "read the state of the etcd service", func(ctx context.Context, n *conn) error {
		m, err := only(n.machine.ServiceList(ctx, &emptypb.Empty{}))
		if err != nil {
			return err
		}
		for _, s := range m.GetServices() {
			if s.GetId() == "etcd" {
				out.State = s.GetState()
				if events := s.GetEvents().GetEvents(); len(events) > 0 {
					out.Says = tidy(scrub(events[len(events)-1].GetMsg()))
				}
				return nil
			}
		}
		return answer(NotFound, "the machine has no etcd service")
	})
	return out, err
}

// get reads one resource, typed.
func get[R resource.Resource](ctx context.Context, n *conn, ns resource.Namespace, t resource.Type, id resource.ID) (R, error) {
	var zero R
	r, err := n.cosi.Get(ctx, resource.NewMetadata(ns, t, id, resource.VersionUndefined))
	if state.IsNotFoundError(err) {
		return zero, answer(NotFound, "the machine has no "+t+" yet")
	}
	if err != nil {
		return zero, err
	}
	typed, ok := r.(R)
	if !ok {
		return zero, answer(Other, "the resource "+t+" has an unexpected form")
	}
	return typed, nil
}
