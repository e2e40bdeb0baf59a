package demo

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/maesh/provider-ichor/internal/lab"
)

// A frame is one sample of two machines, and what is then seen of the Node of the one that is asked for.
type frame struct {
	one, two string // boot and stage; ! if not ready
	holder   string
	empty    bool
	err      error
}

func TestRebootWatch(t *testing.T) {
	before := frame{one: "a1 running", two: "b1 running"}
	oneDown := frame{one: "a1 rebooting", two: "b1 running", holder: "TalosMachine/u1", empty: true}
	oneBoots := frame{one: "a2 running!", two: "b1 running", holder: "TalosMachine/u1", empty: true}
	oneBack := frame{one: "a2 running", two: "b1 running", holder: "TalosMachine/u1", empty: true}
	twoDown := frame{one: "a2 running", two: "b1 rebooting", holder: "TalosMachine/u2", empty: true}
	twoBack := frame{one: "a2 running", two: "b2 running", holder: "TalosMachine/u2", empty: true}
	after := frame{one: "a2 running", two: "b2 running"}
	change := func(f frame, how func(*frame)) frame { how(&f); return f }

	cases := map[string]struct {
		reason string
		frames []frame
		want   string
	}{
		"OneByOne": {
			reason: "Each holds the lock while it is down, and was empty before.",
			frames: []frame{before, oneDown, oneBoots, oneBack, before.with("a2", "b1"), twoDown, twoBack, after},
		},
		"NotSeenDown": {
			reason: "A new boot tells of a reboot that was too quick to be seen.",
			frames: []frame{before, oneBack, twoBack, after},
		},
		"Together": {
			reason: "Two are never down at once.",
			frames: []frame{before, change(oneDown, func(f *frame) { f.two = "b1 rebooting" })},
			want:   "2 machines were down at once",
		},
		"NextTooSoon": {
			reason: "The next one waits until the one before is ready, not only until it runs.",
			frames: []frame{before, oneDown, change(oneBoots, func(f *frame) { f.two, f.holder = "b1 rebooting", "TalosMachine/u2" })},
			want:   "2 machines were down at once",
		},
		"NoLock": {
			reason: "Nobody is down without the lock.",
			frames: []frame{before, change(oneDown, func(f *frame) { f.holder = "" })},
			want:   `while the lock was held by ""`,
		},
		"OthersLock": {
			reason: "The lock is that of the machine itself.",
			frames: []frame{before, change(oneDown, func(f *frame) { f.holder = "TalosMachine/u2" })},
			want:   `while the lock was held by "TalosMachine/u2"`,
		},
		"NotDrained": {
			reason: "A machine is emptied before it goes down.",
			frames: []frame{before, change(oneDown, func(f *frame) { f.empty = false })},
			want:   "before its Node was cordoned and empty",
		},
		"NeverLookedAt": {
			reason: "What could not be seen is not taken for good.",
			frames: []frame{before, change(oneBack, func(f *frame) { f.err = errors.New("no answer") }), twoBack, after},
			want:   "was never seen to be cordoned and empty",
		},
		"OnlyOne": {
			reason: "Every machine is rebooted.",
			frames: []frame{before, oneDown, oneBack, before.with("a2", "b1")},
			want:   "1 machines were seen to be rebooted, want 2",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := &rebootWatch{boots: map[string]string{"one": "a1", "two": "b1"}, uids: map[string]types.UID{"one": "u1", "two": "u2"}}
			for i, f := range tc.frames {
				w.node = func(context.Context, string) (bool, error) { return f.empty, f.err }
				w.note(t.Context(), sample{
					at: time.Unix(int64(i), 0), holder: f.holder, machines: map[string]lab.Machine{"one": machineOf(f.one), "two": machineOf(f.two)},
				})
			}
			got := errorText(w.verdict(2))
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("\n%s\nverdict %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// with is a frame in which both machines run, in these boots, and nobody holds the lock.
func (frame) with(one, two string) frame {
	return frame{one: one + " running", two: two + " running"}
}

func machineOf(text string) lab.Machine {
	boot, stage, _ := strings.Cut(text, " ")
	stage, notReady := strings.CutSuffix(stage, "!")
	return lab.Machine{BootID: boot, Stage: stage, Ready: stage == stageRunning && !notReady}
}
