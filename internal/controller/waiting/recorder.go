package waiting

import (
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// RepeatAfter is how long an event that says nothing new is held back. It is how long an API server keeps events by
// default, so that a state that lasts can always be seen in the events of its object.
const RepeatAfter = time.Hour

// A Recorder records an event unless it says nothing new: unless the last event of that object with the same reason had
// the same message. A wait of an hour is one event, not 240.
type Recorder struct {
	inner event.Recorder
	said  *said
}

var _ event.Recorder = &Recorder{}

// NewRecorder returns a recorder that passes what is new on to inner.
func NewRecorder(inner event.Recorder, clk clock.PassiveClock) *Recorder {
	return &Recorder{inner: inner, said: &said{clock: clk, last: map[topic]remark{}}}
}

// Event records an event if it says anything new.
func (r *Recorder) Event(obj runtime.Object, e event.Event) {
	if r.said.isNew(obj, e) {
		r.inner.Event(obj, e)
	}
}

// WithAnnotations returns a recorder that adds annotations to its events and knows what this one recorded.
func (r *Recorder) WithAnnotations(keysAndValues ...string) event.Recorder {
	return &Recorder{inner: r.inner.WithAnnotations(keysAndValues...), said: r.said}
}

// A topic is what an event is about: one object and one reason.
type topic struct {
	uid    types.UID
	name   types.NamespacedName
	reason event.Reason
}

// A remark is what was said last on a topic, and when.
type remark struct {
	message string
	at      time.Time
}

// said remembers the last remark on each topic.
type said struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	last  map[topic]remark
	swept time.Time
}

// isNew tells whether an event says anything new, and remembers it if so.
func (s *said) isNew(obj runtime.Object, e event.Event) bool {
	o, err := meta.Accessor(obj)
	if err != nil {
		return true // An object without metadata cannot be told from others: better twice than never.
	}
	t := topic{uid: o.GetUID(), name: types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}, reason: e.Reason}

	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	s.sweep(now)
	if l, ok := s.last[t]; ok && l.message == e.Message && now.Sub(l.at) < RepeatAfter {
		return false
	}
	s.last[t] = remark{message: e.Message, at: now}
	return true
}

// sweep forgets remarks that no longer hold anything back, or objects that are long gone would be remembered forever.
func (s *said) sweep(now time.Time) {
	if now.Sub(s.swept) < RepeatAfter {
		return
	}
	s.swept = now
	for t, l := range s.last {
		if now.Sub(l.at) >= RepeatAfter {
			delete(s.last, t)
		}
	}
}
