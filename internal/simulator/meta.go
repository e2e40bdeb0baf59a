package simulator

import (
	"bytes"
	"context"
	"maps"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/meta"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// metaCapacity is how many bytes of values META holds.
const metaCapacity = 256 << 10

// setMeta stores a value on META, or, before META exists, keeps it for the installation. It reports false if META would
// overflow.
func (s *diskSet) setMeta(key uint8, value []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	size := len(value)
	for k, v := range s.meta {
		if k != key {
			size += len(v)
		}
	}
	if size > metaCapacity {
		return false
	}
	s.meta[key] = bytes.Clone(value)
	return true
}

// deleteMeta takes a value away; it reports false if there is none.
func (s *diskSet) deleteMeta(key uint8) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	_, ok := s.meta[key]
	delete(s.meta, key)
	return ok
}

func (s *diskSet) metaValues() map[uint8][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()

	return maps.Clone(s.meta)
}

// reloadMeta is what a boot does with META: values that were written before there was a META were kept in memory only.
func (s *diskSet) reloadMeta() {
	s.mu.Lock()
	defer s.mu.Unlock()

	if !s.partitions[labelMeta] {
		clear(s.meta)
	}
}

// publishMeta writes META's values.
func (s *system) publishMeta() {
	values := s.m.disks.metaValues()
	ids := make([]resource.ID, 0, len(values))
	for key, value := range values {
		id := runtime.MetaKeyTagToID(key)
		ids = append(ids, id)
		modify(s, runtime.NewMetaKey(runtime.NamespaceName, id), func(r *runtime.MetaKey) { r.TypedSpec().Value = string(value) })
	}
	removeOthers[*runtime.MetaKey](s, ids)
}

// MetaWrite sets a value on META.
func (s *system) MetaWrite(_ context.Context, in *machine.MetaWriteRequest) (*machine.MetaWriteResponse, error) {
	key, err := metaKey(in.GetKey())
	if err != nil {
		return nil, err
	}
	if !s.m.disks.setMeta(key, in.GetValue()) {
		return nil, status.Error(codes.ResourceExhausted, "meta write failed")
	}
	s.publishMeta()
	return &machine.MetaWriteResponse{Messages: []*machine.MetaWrite{{}}}, nil
}

// MetaDelete takes a value off META.
func (s *system) MetaDelete(_ context.Context, in *machine.MetaDeleteRequest) (*machine.MetaDeleteResponse, error) {
	key, err := metaKey(in.GetKey())
	if err != nil {
		return nil, err
	}
	if !s.m.disks.deleteMeta(key) {
		return nil, status.Error(codes.NotFound, "meta key not found")
	}
	s.publishMeta()
	return &machine.MetaDeleteResponse{Messages: []*machine.MetaDelete{{}}}, nil
}

func metaKey(key uint32) (uint8, error) {
	if key > 0xff {
		return 0, status.Error(codes.InvalidArgument, "key must be a uint8")
	}
	return uint8(key), nil
}

// metaOfState is the value that goes with STATE: it says how to decrypt the partition.
const metaOfState = meta.StateEncryptionConfig
