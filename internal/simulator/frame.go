package simulator

import (
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that frameCodec falls back to
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// A frame is a message that is passed on without being understood.
type frame struct{ payload []byte }

// frameCodec passes frames through and leaves every other message to the protobuf codec.
type frameCodec struct{}

func (frameCodec) Name() string { return "proto" }

func (frameCodec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		return mem.BufferSlice{mem.SliceBuffer(f.payload)}, nil
	}
	return encoding.GetCodecV2("proto").Marshal(v)
}

func (frameCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*frame); ok {
		f.payload = data.Materialize()
		return nil
	}
	return encoding.GetCodecV2("proto").Unmarshal(data, v)
}

const (
	messagesField = protowire.Number(1) // `messages` of every reply that may come from several nodes
	metadataField = protowire.Number(1) // `metadata` of each of them, and of each frame of a stream
)

// withMetadata puts metadata on one message. A field that repeats later in the bytes wins, so appending is enough.
func withMetadata(message []byte, md *common.Metadata) ([]byte, error) {
	b, err := proto.Marshal(md)
	if err != nil {
		return nil, fmt.Errorf("cannot encode metadata: %w", err)
	}
	message = protowire.AppendTag(message, metadataField, protowire.BytesType)
	return protowire.AppendBytes(message, b), nil
}

// withNode puts the node's name on every message of a reply.
func withNode(reply []byte, node string) ([]byte, error) {
	out := []byte{}
	for len(reply) > 0 {
		num, typ, n := protowire.ConsumeTag(reply)
		if n < 0 {
			return nil, fmt.Errorf("cannot read reply of %q: %w", node, protowire.ParseError(n))
		}
		size := protowire.ConsumeFieldValue(num, typ, reply[n:])
		if size < 0 {
			return nil, fmt.Errorf("cannot read reply of %q: %w", node, protowire.ParseError(size))
		}
		if num != messagesField || typ != protowire.BytesType {
			out = append(out, reply[:n+size]...)
			reply = reply[n+size:]
			continue
		}
		message, _ := protowire.ConsumeBytes(reply[n:])
		message, err := withMetadata(append([]byte{}, message...), nodeMetadata(node))
		if err != nil {
			return nil, err
		}
		out = protowire.AppendTag(out, messagesField, protowire.BytesType)
		out = protowire.AppendBytes(out, message)
		reply = reply[n+size:]
	}
	return out, nil
}

func nodeMetadata(node string) *common.Metadata { return &common.Metadata{Hostname: node} }

// failedNode is the reply (unary) or frame (stream) that stands for a node whose call failed.
func failedNode(node string, err error, streaming bool) ([]byte, error) {
	st := statusProto(err)
	message, mdErr := withMetadata(nil, &common.Metadata{Hostname: node, Error: st.text, Status: st.proto})
	if mdErr != nil || streaming {
		return message, mdErr
	}
	out := protowire.AppendTag(nil, messagesField, protowire.BytesType)
	return protowire.AppendBytes(out, message), nil
}
