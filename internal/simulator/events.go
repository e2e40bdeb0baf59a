package simulator

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

const (
	// eventCapacity and eventGap are Talos's: a ring of 1000, of which a late reader is promised 990.
	eventCapacity = 1000
	eventGap      = 10

	// eventTypePrefix is what Talos puts before the message name in type URLs.
	eventTypePrefix = "talos/runtime/"
)

type event struct {
	id      string
	at      time.Time
	actorID string
	payload proto.Message
}

// An eventRing is the event stream of one boot: in memory, bounded, lost with the boot.
type eventRing struct {
	mu      sync.Mutex
	ring    []event
	next    int64 // position of the next write; the slot is next % eventCapacity
	changed chan struct{}
	counter uint32
	origin  [5]byte
}

func newEventRing() *eventRing {
	r := &eventRing{ring: make([]event, eventCapacity), changed: make(chan struct{})}
	_, _ = rand.Read(r.origin[:]) // never fails: it would end the process
	return r
}

func (r *eventRing) publish(actorID string, payload proto.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()

	now := time.Now()
	r.ring[r.next%eventCapacity] = event{id: r.newID(now), at: now, actorID: actorID, payload: payload}
	r.next++
	close(r.changed)
	r.changed = make(chan struct{})
}

// newID makes an identifier in xid's format: seconds, origin and counter in 20 characters that sort by time.
func (r *eventRing) newID(now time.Time) string {
	var b [12]byte
	binary.BigEndian.PutUint32(b[:4], uint32(now.Unix())) // xid's own four bytes
	copy(b[4:9], r.origin[:])
	r.counter++
	b[9], b[10], b[11] = byte(r.counter>>16), byte(r.counter>>8), byte(r.counter)
	return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))
}

// start returns the position at which a reader with these options begins.
func (r *eventRing) start(req *machine.EventsRequest) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	oldest := max(r.next-(eventCapacity-eventGap), 0)
	search := func(after func(event) bool) int64 {
		return oldest + int64(sort.Search(int(r.next-oldest), func(i int) bool {
			return after(r.ring[(oldest+int64(i))%eventCapacity])
		}))
	}
	switch {
	case req.GetTailEvents() < 0:
		return oldest, nil
	case req.GetTailEvents() > 0:
		return max(r.next-int64(req.GetTailEvents()), oldest), nil
	case req.GetTailId() != "":
		if len(req.GetTailId()) != 20 {
			return 0, fmt.Errorf("error parsing tail_id: xid: invalid ID")
		}
		return search(func(e event) bool { return e.id > req.GetTailId() }), nil
	case req.GetTailSeconds() != 0:
		since := time.Now().Add(-time.Duration(req.GetTailSeconds()) * time.Second)
		return search(func(e event) bool { return e.at.After(since) }), nil
	default:
		return r.next, nil
	}
}

// read waits for the event at a position. It reports false if the ring has already gone past it.
func (r *eventRing) read(ctx context.Context, pos int64) (event, bool, error) {
	for {
		r.mu.Lock()
		switch {
		case r.next-pos >= eventCapacity:
			r.mu.Unlock()
			return event{}, false, nil
		case pos < r.next:
			e := r.ring[pos%eventCapacity]
			r.mu.Unlock()
			return e, true, nil
		}
		changed := r.changed
		r.mu.Unlock()

		select {
		case <-changed:
		case <-ctx.Done():
			return event{}, false, ctx.Err()
		}
	}
}

func (e event) proto() (*machine.Event, error) {
	value, err := proto.Marshal(e.payload)
	if err != nil {
		return nil, fmt.Errorf("cannot encode event: %w", err)
	}
	return &machine.Event{
		Data:    &anypb.Any{TypeUrl: eventTypePrefix + string(e.payload.ProtoReflect().Descriptor().FullName()), Value: value},
		Id:      e.id,
		ActorId: e.actorID,
	}, nil
}

// Events streams what happens on the machine; the first frame is an empty hello.
func (s *system) Events(req *machine.EventsRequest, stream machine.MachineService_EventsServer) error {
	pos, err := s.events.start(req)
	if err != nil {
		return err
	}
	hello := &machine.Event{Data: &anypb.Any{}, Id: s.events.helloID(), ActorId: req.GetWithActorId()}
	if err := stream.Send(hello); err != nil {
		return err
	}
	for {
		e, ok, err := s.events.read(stream.Context(), pos)
		if err != nil || !ok {
			return err
		}
		pos++
		if req.GetWithActorId() != "" && e.actorID != req.GetWithActorId() {
			continue
		}
		msg, err := e.proto()
		if err != nil {
			return err
		}
		if err := stream.Send(msg); err != nil {
			return err
		}
	}
}

func (r *eventRing) helloID() string {
	r.mu.Lock()
	defer r.mu.Unlock()

	return r.newID(time.Now())
}
