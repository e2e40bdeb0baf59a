package soak

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/maesh/provider-ichor/internal/lab"
)

// TestUnderLock has the life of a lock for each case, and one call.
func TestUnderLock(t *testing.T) {
	const s = time.Second
	mine, other := machineHolder+"1", machineHolder+"2"
	type write struct {
		at     time.Duration
		holder string
	}
	cases := map[string]struct {
		reason string
		writes []write
		call   lab.RPC
		paused []period
		broken bool
	}{
		"Held":             {"It is held.", []write{{0, mine}}, call(10*s, callReset, "m1", ""), nil, false},
		"NotHeld":          {"Nobody holds it.", nil, call(10*s, callReset, "m1", ""), nil, true},
		"ByAnother":        {"It is held for another machine.", []write{{0, other}}, call(10*s, callLeave, "m1", ""), nil, true},
		"ByAThief":         {"It was taken away long ago.", []write{{0, mine}, {s, thief}}, call(10*s, callReboot, "m1", ""), nil, true},
		"Deleted":          {"It was deleted long ago.", []write{{0, mine}, {s, ""}}, call(10*s, callForfeit, "m1", ""), nil, true},
		"DeletedJustNow":   {"The call was on its way.", []write{{0, mine}, {9 * s, ""}}, call(10*s, callReset, "m1", ""), nil, false},
		"StolenJustNow":    {"The call was on its way.", []write{{0, mine}, {9 * s, thief}}, call(10*s, callReset, "m1", ""), nil, false},
		"Deleted3sAgo":     {"It was on its way for too long.", []write{{0, mine}, {7 * s, ""}}, call(10*s, callReset, "m1", ""), nil, true},
		"DeletedInAPause":  {"The sender was stopped with the call on its tongue.", []write{{0, mine}, {s, ""}}, call(60*s, callReset, "m1", ""), []period{{after(s / 2), after(59 * s)}}, false},
		"InAnothersPause":  {"Who is stopped sends nothing: it was another, who knew.", []write{{0, mine}, {s, ""}}, call(30*s, callReset, "m1", ""), []period{{after(s / 2), after(59 * s)}}, true},
		"LongAfterAPause":  {"It was awake for long.", []write{{0, mine}, {s, ""}}, call(70*s, callReset, "m1", ""), []period{{after(s / 2), after(59 * s)}}, true},
		"TakenAgain":       {"It is held again.", []write{{0, mine}, {s, ""}, {9 * s, mine}}, call(10*s, callReset, "m1", ""), nil, false},
		"TakenAfterwards":  {"It came too late.", []write{{15 * s, mine}}, call(10*s, callReset, "m1", ""), nil, true},
		"Expired":          {"It was not renewed for too long.", []write{{0, mine}}, call(lifetime+10*s, callReset, "m1", ""), nil, true},
		"Renewed":          {"It was renewed.", []write{{0, mine}, {200 * s, mine}}, call(lifetime+10*s, callReset, "m1", ""), nil, false},
		"RemoveByAPeer":    {"Whose member it is does not show.", []write{{0, mine}}, call(10*s, callRemove, "m2", "1"), nil, false},
		"RemoveByNobody":   {"A thief is no machine.", []write{{0, thief}}, call(10*s, callRemove, "m2", "1"), nil, true},
		"BeforeFollowing":  {"Nobody followed the lock by then.", nil, call(-10*s, callReset, "m1", ""), nil, false},
		"ReleasedAndTaken": {"Another one's turn came.", []write{{0, mine}, {s, ""}, {s, other}}, call(10*s, callReset, "m1", ""), nil, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			j := newJudge()
			j.followed, j.paused = after(0), tc.paused
			j.owners[mine], j.owners[other] = "m1", "m2"
			for _, w := range tc.writes {
				j.held(after(w.at), w.holder)
			}
			j.underLock(tc.call)
			if broken := len(j.found) > 0; broken != tc.broken {
				t.Errorf("\n%s\nbroken: %t, want %t: %v", tc.reason, broken, tc.broken, j.found)
			}
		})
	}
}

// TestUnderLockIsAsked holds that calls that disturb are held against the lock at all.
func TestUnderLockIsAsked(t *testing.T) {
	for _, method := range []string{callForfeit, callLeave, callRemove, callReset, callReboot} {
		j := newJudge()
		j.followed, j.approved["m1"] = after(-time.Second), true
		j.hear([]lab.RPC{call(0, method, "m1", "00000000000000ff")})
		j.see(look{begun: after(time.Second), ended: after(2 * time.Second)})
		var rules []string
		for _, v := range j.found {
			rules = append(rules, v.Rule)
		}
		if diff := cmp.Diff([]string{"I7"}, rules); diff != "" {
			t.Errorf("%s: -want, +got:\n%s", short(method), diff)
		}
	}
}
