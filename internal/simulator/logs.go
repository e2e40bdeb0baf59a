package simulator

import (
	"context"
	"fmt"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// consolef writes a line as Talos's own processes do: to machined's log and, through it, to that of the kernel.
func (s *system) consolef(format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	s.journal.write("machined", text)
	s.journal.write(journalKernel, "[talos] "+text)
}

// narrate writes to the logs what an event tells.
func (s *system) narrate(payload proto.Message) {
	switch e := payload.(type) {
	case *machine.ServiceStateEvent:
		text := e.GetMessage()
		if h := e.GetHealth(); !h.GetUnknown() {
			text = "Health check successful"
			if !h.GetHealthy() {
				text = "Health check failed: " + h.GetLastMessage()
			}
		}
		s.journal.write(e.GetService(), text)
		s.consolef("service[%s](%s): %s", e.GetService(), e.GetAction(), text)
	case *machine.SequenceEvent:
		switch e.GetError().GetCode() {
		case common.Code_FATAL, common.Code_CANCELED:
			s.consolef("%s: %s", e.GetSequence(), e.GetError().GetMessage())
		case common.Code_LOCKED:
			// The one trace that a refused sequence leaves, besides an event that a stream filtered by actor ID never shows.
			s.consolef("%s failed: locked", e.GetSequence())
		default:
			s.consolef("%s sequence: %s", e.GetSequence(), e.GetAction())
		}
	case *machine.PhaseEvent:
		s.consolef("phase %s: %s", e.GetPhase(), e.GetAction())
	case *machine.TaskEvent:
		s.consolef("task %s: %s", e.GetTask(), e.GetAction())
	}
}

// Logs streams the log of a service. The containers of the simulation write none.
func (s *system) Logs(in *machine.LogsRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	if in.GetNamespace() != constants.SystemContainerdNamespace && in.GetId() != "kubelet" {
		return fmt.Errorf("container %q not found", in.GetId())
	}
	pos, known := s.journal.tail(in.GetId(), int(in.GetTailLines()))
	if !known {
		return fmt.Errorf("log %q was not registered", in.GetId())
	}
	return s.streamLog(stream, in.GetId(), pos, in.GetFollow(), func(l journalLine) string {
		return l.text + "\n"
	})
}

// LogsContainers lists the logs that Logs knows.
func (s *system) LogsContainers(context.Context, *emptypb.Empty) (*machine.LogsContainersResponse, error) {
	return &machine.LogsContainersResponse{Messages: []*machine.LogsContainer{{Ids: s.journal.ids()}}}, nil
}

// Dmesg streams the kernel's log, which ends its lines itself. One that tails shows only what
// is still to come.
func (s *system) Dmesg(in *machine.DmesgRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	lines := -1
	if in.GetTail() {
		lines = 0
	}
	pos, _ := s.journal.tail(journalKernel, lines) // known since the boot's first line
	return s.streamLog(stream, journalKernel, pos, in.GetFollow(), func(l journalLine) string {
		return fmt.Sprintf("%s: %7s: [%s]: %s\n", "user", "warning", l.at.UTC().Format(time.RFC3339Nano), l.text)
	})
}

func (s *system) streamLog(stream grpc.ServerStreamingServer[common.Data], id string, pos int, follow bool, format func(journalLine) string) error {
	for {
		lines, next, err := s.journal.read(stream.Context(), id, pos, follow)
		if err != nil {
			return err
		}
		for _, l := range lines {
			if err := stream.Send(&common.Data{Bytes: []byte(format(l))}); err != nil {
				return err
			}
		}
		if !follow {
			return nil
		}
		pos = next
	}
}
