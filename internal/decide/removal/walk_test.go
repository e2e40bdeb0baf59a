package removal

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/maesh/provider-ichor/internal/decide/facts"
)

// happen is one thing that happens to the world while removals go on.
func (w *world) happen() {
	t := w.t
	b := rapid.SampledFrom(w.boxes).Draw(t, "box")
	switch rapid.IntRange(0, 12).Draw(t, "event") {
	case 0:
		b.etcdUp = !b.etcdUp
	case 1:
		b.answers = !b.answers
	case 2:
		w.kube = !w.kube
	case 3:
		b.deleting, b.allowed = true, true
	case 4:
		b.policy = !b.policy
	case 5:
		b.accepted = !b.accepted
	case 6:
		b.kubelet = !b.kubelet
	case 7: // One voter falls behind, or catches up.
		b.lag = nil
		if rapid.Bool().Draw(t, "lags") {
			b.lag = w.members
		}
	case 8:
		w.declared = rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "declared")
	case 9: // It reboots, and joins by itself if it has a configuration and no member.
		w.reboot(b)
	case 10: // A learner is promoted.
		w.promote()
	case 11: // Somebody wipes a machine by hand.
		if rapid.IntRange(0, 9).Draw(t, "wipes") == 0 {
			b.configured, b.etcdUp = false, false
		}
	case 12: // Its next join dies, and each one after that.
		b.dies = !b.worker
	}
}

func (w *world) reboot(b *box) {
	if b.removed || !b.configured || b.resetIn > 0 {
		return
	}
	b.boots++
	if b.worker || w.isMember(b.member) || !w.serves() || slices.ContainsFunc(w.members, learns) {
		return
	}
	b.etcdUp = true
	w.join(b, true)
	b.last = 0 // Nobody has seen it yet.
	if b.record != nil {
		b.last = b.record.Member
	}
}

func (w *world) promote() {
	if !w.serves() {
		return
	}
	w.members = slices.Clone(w.members)
	for i, e := range w.members {
		if e.Learner && e.Name != "" {
			w.members[i].Learner = false
			if b := w.runner(e.ID); b != nil {
				b.last = e.ID
			}
		}
	}
}

// settle lets time pass: resets that were begun take their course, or fail and end in a reboot.
func (w *world) settle(fails bool) {
	for _, b := range w.boxes {
		if b.resetIn == 0 {
			continue
		}
		if b.resetIn--; b.resetIn > 0 {
			continue
		}
		if fails {
			w.reboot(b)
			continue
		}
		b.configured, b.etcdUp, b.member, b.answers = false, false, 0, true
	}
}

func (w *world) round(takes, fails bool) {
	for _, b := range w.boxes {
		if b.deleting || w.teardown {
			w.pass(b, takes)
		}
	}
	w.settle(fails)
}

// TestWalk removes machines of a cluster in which everything that can go wrong does, at every moment. The invariants are held
// against every step (world.check). In the end everything works again, and nothing that was begun for good stays half done.
func TestWalk(t *testing.T) {
	finished, parked := 0, 0
	walk := func(t *rapid.T) {
		w := newWorld(t)
		w.teardown = rapid.IntRange(0, 3).Draw(t, "teardown") == 0
		for range rapid.IntRange(0, 40).Draw(t, "rounds") {
			if rapid.Bool().Draw(t, "something happens") {
				w.happen()
			}
			w.round(rapid.IntRange(0, 3).Draw(t, "takes") > 0, rapid.IntRange(0, 3).Draw(t, "fails") == 0)
		}
		w.heal()
		for range 120 {
			w.round(true, false)
		}
		for _, b := range w.boxes {
			switch {
			case b.removed:
				finished++
			case w.teardown:
				t.Fatalf("%s was not taken down: %q", b.name, w.log[max(0, len(w.log)-6):])
			case !w.serves(): // Machines were wiped by hand: there is no etcd left that could tell.
			case b.left || (b.record != nil && b.record.Reset):
				t.Fatalf("%s is half removed for good (%+v): %q", b.name, b.record, w.log[max(0, len(w.log)-6):])
			case b.deleting:
				parked++
				if b.ours && w.lock != b {
					t.Fatalf("I6: %s is not removed and still cordoned by us", b.name)
				}
			}
		}
	}
	for range 10 { // A hundred worlds each.
		rapid.Check(t, walk)
	}
	t.Logf("%d machines were removed, %d were refused to the end", finished, parked)
	if finished == 0 || parked == 0 {
		t.Error("the walk proves nothing: all removals ended in the same way")
	}
}

// heal makes everything work again. Who voted votes; a person looks after those that are gone for good.
func (w *world) heal() {
	w.kube, w.declared = true, 1
	for _, b := range w.boxes {
		b.lag, b.answers, b.kubelet, b.policy = nil, true, true, true
		b.etcdUp = b.configured && !b.worker && w.isMember(b.member)
		if b.configured && w.isMember(b.member) {
			b.last = b.member
		}
	}
	// Members that are gone for good are removed by hand, as the refusals say.
	w.members = slices.DeleteFunc(slices.Clone(w.members), func(e facts.Member) bool { return w.runner(e.ID) == nil || !w.runner(e.ID).configured })
	for _, b := range w.boxes {
		// A machine that joins in vain does so until it is wiped, if that was begun. The others are repaired.
		b.dies = b.dies && b.deleting && b.record != nil && (b.record.Reset || b.left)
		if b.dies && b.configured && b.resetIn == 0 && !w.isMember(b.member) && !w.isMember(b.unstarted) {
			w.join(b, true)
		}
	}
	w.promote()
}

func learns(e facts.Member) bool { return e.Learner }

// TestWalkInOrder is the walk of one removal without anything going wrong, step by step.
func TestWalkInOrder(t *testing.T) {
	cases := map[string]struct {
		victim string
		want   string
	}{
		"Leader":   {victim: "cp-1", want: "[Record Cordon Drain MoveLeadership LeaveEtcd Record Reset DeleteNode Release]"},
		"Follower": {victim: "cp-4", want: "[Record Cordon Drain LeaveEtcd Record Reset DeleteNode Release]"},
		"Worker":   {victim: "w-1", want: "[Record Cordon Drain Drain Record Reset DeleteNode Release]"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				w := &world{t: t, kube: true, next: 0xa1, declared: 3}
				for i := range 4 {
					b := &box{name: fmt.Sprintf("cp-%d", i+1), answers: true, configured: true, etcdUp: true, node: true, kubelet: true, pods: 1}
					w.boxes = append(w.boxes, b)
					w.join(b, false)
				}
				w.boxes = append(w.boxes, &box{name: "w-1", worker: true, answers: true, configured: true, node: true, kubelet: true, pods: 2})
				b := w.named(tc.victim)
				b.deleting, b.allowed = true, true
				var steps []Step
				for range 20 {
					if a, ok := w.pass(b, true).(Act); ok {
						steps = append(steps, a.Step)
					}
					w.settle(false)
				}
				if got := fmt.Sprint(steps); got != tc.want {
					t.Fatalf("the steps are %s, want %s", got, tc.want)
				}
			})
		})
	}
}
