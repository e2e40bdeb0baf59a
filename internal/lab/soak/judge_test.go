package soak

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/maesh/provider-ichor/internal/lab"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return noon.Add(d) }

// three is a look at three voters, of which the named ones are down and the named one is gone from all lists.
func three(at time.Duration, gone string, down ...string) look {
	var list []member
	for i, name := range []string{"m1", "m2", "m3"} {
		if name != gone {
			list = append(list, member{id: uint64(i + 1), machine: name})
		}
	}
	l := look{begun: after(at), ended: after(at + 100*time.Millisecond)}
	for _, m := range list {
		v := view{machine: m.machine, up: true, known: true, members: list}
		for _, d := range down {
			if d == m.machine {
				v.up, v.members = false, nil
			}
		}
		l.views = append(l.views, v)
	}
	return l
}

func call(at time.Duration, method, machine, detail string) lab.RPC {
	return lab.RPC{Time: after(at), Machine: machine, Method: method, Mutating: true, Detail: detail}
}

// answered is a call that was answered with OK.
func answered(c lab.RPC) lab.RPC {
	c.Done = true
	return c
}

// TestJudge has a fabricated log for each rule: one that breaks it, and one that looks like it and does not.
func TestJudge(t *testing.T) {
	s := time.Second
	cases := map[string]struct {
		reason string
		play   func(j *judge)
		want   []string
	}{
		"LeaveOfThree": {
			reason: "Two of two are left.",
			play: func(j *judge) {
				j.see(three(0, ""))
				j.hear([]lab.RPC{call(s, callLeave, "m1", "")})
				j.see(three(2*s, "m1"))
			},
		},
		"LeaveWithOneDown": {
			reason: "One of two would be up, and both are needed.",
			play: func(j *judge) {
				j.see(three(0, "", "m2"))
				j.hear([]lab.RPC{call(s, callLeave, "m1", "")})
				j.see(three(2*s, "", "m2"))
			},
			want: []string{"I1"},
		},
		"LeaveJustAsOneFails": {
			reason: "When the sender looked, all was well.",
			play: func(j *judge) {
				j.see(three(0, ""))
				j.see(three(5*s, "", "m2"))
				j.hear([]lab.RPC{call(6*s, callLeave, "m1", "")})
				j.see(three(7*s, "", "m2"))
			},
		},
		"LeaveLongAfterOneFailed": {
			reason: "It was known by then.",
			play: func(j *judge) {
				j.see(three(0, ""))
				for at := 5 * s; at < 30*s; at += s {
					j.see(three(at, "", "m2"))
				}
				j.hear([]lab.RPC{call(30*s, callLeave, "m1", "")})
				j.see(three(31*s, "", "m2"))
			},
			want: []string{"I1"},
		},
		"LeaveAfterAPause": {
			reason: "A sender that was stopped goes on with what it knew.",
			play: func(j *judge) {
				j.see(three(0, ""))
				for at := 5 * s; at < 30*s; at += s {
					j.see(three(at, "", "m2"))
				}
				j.paused = []period{{after(4 * s), after(29 * s)}}
				j.hear([]lab.RPC{call(30*s, callLeave, "m1", "")})
				j.see(three(31*s, "", "m2"))
			},
		},
		"LeaveOfTheDeadOne": {
			reason: "Two of two are left.",
			play: func(j *judge) {
				j.see(three(0, "", "m2"))
				j.hear([]lab.RPC{call(s, callRemove, "m1", "0000000000000002")})
				j.see(three(2*s, "m2"))
			},
		},
		"RemoveALivingOne": {
			reason: "One of two is left.",
			play: func(j *judge) {
				j.see(three(0, "", "m2"))
				j.hear([]lab.RPC{call(s, callRemove, "m1", "0000000000000003")})
				j.see(three(2*s, "m3", "m2"))
			},
			// The look after it shows it as well.
			want: []string{"I1", "I1"},
		},
		"RebootOfOne": {
			reason: "Two of three stay.",
			play: func(j *judge) {
				j.see(three(0, ""))
				j.hear([]lab.RPC{call(s, callReboot, "m1", "")})
				j.see(three(2*s, "", "m1"))
			},
		},
		"RebootOfTheSecond": {
			reason: "One of three would stay.",
			play: func(j *judge) {
				j.see(three(0, "", "m1"))
				j.hear([]lab.RPC{call(s, callReboot, "m2", "")})
				j.see(three(2*s, "", "m1"))
			},
			want: []string{"I1"},
		},
		"QuorumGone": {
			reason: "Nobody did that on purpose, so it was the product, whatever it called.",
			play:   func(j *judge) { j.see(three(0, "", "m1", "m2")) },
			want:   []string{"I1"},
		},
		"AllGone": {
			reason: "Nobody is left to tell the list, and those that were on it are voters still.",
			play: func(j *judge) {
				j.see(three(0, ""))
				j.see(three(s, "", "m1", "m2", "m3"))
			},
			want: []string{"I1"},
		},
		"QuorumTaken": {
			reason: "The campaign did that.",
			play: func(j *judge) {
				j.hurt = []period{{after(-30 * s), after(-10 * s)}}
				j.see(three(0, "", "m1", "m2"))
			},
		},
		"ResetOfAMember": {
			reason: "The others list it before and after.",
			play: func(j *judge) {
				j.see(three(0, ""))
				j.hear([]lab.RPC{call(s, callReset, "m1", "")})
				j.see(three(2*s, ""))
			},
			want: []string{"I2"},
		},
		"ResetAfterTheLeave": {
			reason: "Nobody lists it.",
			play: func(j *judge) {
				j.see(three(0, "m1"))
				j.hear([]lab.RPC{call(s, callReset, "m1", "")})
				j.see(three(2*s, "m1"))
			},
		},
		"TwoCordoned": {
			reason: "One control plane at a time.",
			play: func(j *judge) {
				l := three(0, "")
				l.cordoned = []string{"m1", "m2"}
				j.see(l)
			},
			want: []string{"I3"},
		},
		"Observed": {
			reason: "Reading is nobody's business.",
			play:   func(j *judge) { j.hear([]lab.RPC{{Time: after(0), Machine: "blank", Method: "/x/Version"}}) },
		},
		"DryRun": {
			reason: "A dry run cancels a configuration on trial.",
			play:   func(j *judge) { j.hear([]lab.RPC{call(0, callApply, "m1", "NO_REBOOT dry-run")}) },
			want:   []string{"I8"},
		},
		"Stranger": {
			reason: "No request needs an upgrade.",
			play:   func(j *judge) { j.hear([]lab.RPC{call(0, "/machine.MachineService/Upgrade", "m1", "")}) },
			want:   []string{"I8"},
		},
		"Quiet": {
			reason: "Nobody wants anything any more.",
			play: func(j *judge) {
				j.quiet = after(0)
				j.hear([]lab.RPC{call(s, callApply, "m1", "NO_REBOOT")})
			},
			want: []string{"I8"},
		},
		"BootstrapTwice": {
			reason: "A second founder is a second cluster.",
			play:   func(j *judge) { j.hear([]lab.RPC{call(0, callBootstrap, "m1", ""), call(s, callBootstrap, "m2", "")}) },
			want:   []string{"I9"},
		},
		"BootstrapAgain": {
			reason: "The answer of the first may have been lost.",
			play:   func(j *judge) { j.hear([]lab.RPC{call(0, callBootstrap, "m1", ""), call(s, callBootstrap, "m1", "")}) },
		},
		"Unapproved": {
			reason: "Nobody has approved it.",
			play:   func(j *judge) { j.hear([]lab.RPC{call(0, callApply, "blank", "AUTO")}) },
			want:   []string{"approval"},
		},
		"Forwarded": {
			reason: "It is judged where it arrived.",
			play: func(j *judge) {
				c := call(0, callReset, "blank", "")
				c.Forwarded = []string{"127.10.0.11"}
				j.hear([]lab.RPC{c})
			},
		},
		"GoneUnwiped": {
			reason: "Its disk still has keys and data of etcd.",
			play: func(j *judge) {
				j.hear([]lab.RPC{answered(call(0, callApply, "m1", "NO_REBOOT"))})
				j.endings = []ending{{at: after(s), machine: "m1", object: "cp-1"}}
				j.see(three(2*s, "m1"))
				j.see(three(3*s, "m1"))
			},
			want: []string{"I4"},
		},
		"GoneAndDeclaredAgain": {
			reason: "What it runs is new, however late the look was.",
			play: func(j *judge) {
				j.endings = []ending{{at: after(0), machine: "m1", object: "cp-1"}}
				l := three(s, "")
				l.stages = map[string]string{"m1": stageRunning}
				j.see(l)
				j.hear([]lab.RPC{answered(call(s, callApply, "m1", "AUTO"))})
				j.see(three(3*s, ""))
			},
		},
		"GoneAfterTheReset": {
			reason: "It was wiped.",
			play: func(j *judge) {
				j.hear([]lab.RPC{answered(call(0, callApply, "m1", "NO_REBOOT")), call(s, callReset, "m1", "")})
				j.endings = []ending{{at: after(2 * s), machine: "m1", object: "cp-1"}}
				j.see(three(3*s, "m1"))
				j.see(three(4*s, "m1"))
			},
		},
		"GoneWithoutAConfiguration": {
			reason: "It refused the only one that it was sent, so there is nothing to wipe.",
			play: func(j *judge) {
				c := answered(call(0, callApply, "m1", "AUTO"))
				c.Code = 13
				j.hear([]lab.RPC{c})
				j.endings = []ending{{at: after(s), machine: "m1", object: "cp-1"}}
				j.see(three(2*s, "m1"))
				j.see(three(3*s, "m1"))
			},
		},
		"GoneAndListed": {
			reason: "Its vote still counts, and nobody gives it.",
			play: func(j *judge) {
				j.endings = []ending{{at: after(0), machine: "m1", object: "cp-1"}}
				j.see(three(s, ""))
				j.see(three(2*s, ""))
			},
			want: []string{"I4"},
		},
		"GoneAndRunning": {
			reason: "A reset that ended in a reboot has wiped nothing.",
			play: func(j *judge) {
				j.endings = []ending{{at: after(0), machine: "m1", object: "cp-1"}}
				l := three(s, "m1")
				l.stages = map[string]string{"m1": stageRunning}
				j.see(l)
				j.see(three(2*s, "m1"))
			},
			want: []string{"I4"},
		},
		"GoneAndLookedAtBefore": {
			reason: "Only a look from after it tells.",
			play: func(j *judge) {
				j.endings = []ending{{at: after(2 * s), machine: "m1", object: "cp-1"}}
				j.see(three(s, ""))
				j.see(three(3*s, "m1"))
				j.see(three(4*s, "m1"))
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			j := newJudge()
			for i := range 3 {
				j.approved[fmt.Sprintf("m%d", i+1)] = true
			}
			tc.play(j)
			var got []string
			for _, v := range j.found {
				got = append(got, v.Rule)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\nrules broken: -want, +got:\n%s\n%v", tc.reason, diff, j.found)
			}
		})
	}
}

// TestSlowIsNotDown holds that a member that says nothing in time is not taken for one that is down.
func TestSlowIsNotDown(t *testing.T) {
	l := three(0, "", "m1", "m2")
	for i := range l.views {
		l.views[i].known = l.views[i].up
	}
	j := newJudge()
	j.see(l)
	if len(j.found) > 0 {
		t.Errorf("found %v", j.found)
	}
}

// TestPatience lets an election pass where nobody is in a hurry, and not a quorum that stays lost.
func TestPatience(t *testing.T) {
	cases := map[string]struct {
		patience time.Duration
		back     bool // after a while
		want     int
	}{
		"None":     {want: 1},
		"Election": {patience: 10 * time.Second, back: true},
		"Lost":     {patience: 10 * time.Second, want: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			j := newJudge()
			j.patience = tc.patience
			j.see(three(0, ""))
			j.see(three(5*time.Second, "", "m1", "m2"))
			if tc.back {
				j.see(three(6*time.Second, ""))
			}
			if tc.patience > 0 {
				down := []string{"m1", "m2"}
				j.see(three(15*time.Second, "", down...))
			}
			if len(j.found) != tc.want {
				t.Errorf("violations: %v, want %d", j.found, tc.want)
			}
		})
	}
}
