package waiting

import (
	"errors"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
)

// heard records the messages of events, with the annotations that they came with.
type heard struct {
	messages    *[]string
	annotations string
}

func (h heard) Event(_ runtime.Object, e event.Event) {
	*h.messages = append(*h.messages, h.annotations+e.Message)
}

func (h heard) WithAnnotations(kv ...string) event.Recorder {
	return heard{messages: h.messages, annotations: kv[0] + "=" + kv[1] + " "}
}

func TestRecorder(t *testing.T) {
	clk := testclock.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	var got []string
	r := NewRecorder(heard{messages: &got}, clk)

	object := func(name string, uid types.UID) runtime.Object {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: name, UID: uid}}
	}
	one, two := object("cp-1", "1"), object("cp-2", "2")

	r.Event(one, event.Normal("Waiting", "for a"))
	r.Event(one, event.Normal("Waiting", "for a"))                                // says nothing new
	r.WithAnnotations("k", "v").Event(one, event.Normal("Waiting", "for a"))      // nor does this
	r.Event(two, event.Normal("Waiting", "for a"))                                // another object
	r.Event(object("cp-1", "3"), event.Normal("Waiting", "for a"))                // another object of the same name
	r.Event(one, event.Warning("Failed", errors.New("for a")))                    // another reason
	r.WithAnnotations("k", "v").Event(one, event.Normal("Waiting", "for b"))      // another message
	r.Event(one, event.Normal("Waiting", "for a"))                                // back again: a transition
	clk.SetTime(clk.Now().Add(RepeatAfter - time.Second))                         // still on record
	r.Event(one, event.Normal("Waiting", "for a"))                                // says nothing new
	clk.SetTime(clk.Now().Add(time.Second))                                       // no longer on record
	r.Event(one, event.Normal("Waiting", "for a"))                                // said again
	r.Event(&runtime.Unknown{}, event.Normal("Waiting", "for something unnamed")) // cannot be told from others
	r.Event(&runtime.Unknown{}, event.Normal("Waiting", "for something unnamed"))

	want := []string{
		"for a", "for a", "for a", "for a", "k=v for b", "for a",
		"for a", "for something unnamed", "for something unnamed",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events: -want, +got:\n%s", diff)
	}
	if n := len(r.said.last); n != 1 {
		t.Errorf("%d remarks are remembered, want 1: those that hold nothing back must be forgotten", n)
	}
}
