package demo

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestTally(t *testing.T) {
	type look struct {
		after      time.Duration
		up, voters int
		err        error
	}
	blind := errors.New("no leader")
	cases := map[string]struct {
		reason string
		looks  []look
		want   string // in the verdict; empty if there always was a quorum
		story  string
	}{
		"RebootsAndRemoval": {
			reason: "One voter of three may be down, and four may become three.",
			looks:  []look{{up: 3, voters: 3}, {up: 2, voters: 3}, {up: 3, voters: 3}, {up: 4, voters: 4}, {up: 3, voters: 3}},
			story:  "3/3 2/3 3/3 4/4 3/3",
		},
		"Lost": {
			reason: "One look without a quorum is enough, whatever comes after it.",
			looks:  []look{{up: 3, voters: 3}, {up: 1, voters: 3}, {up: 3, voters: 3}},
			want:   "1 of 3 voters were up, and a quorum needs 2",
			story:  "3/3 1/3 3/3",
		},
		"LostOfFour": {
			reason: "Half of an even number is no quorum.",
			looks:  []look{{up: 4, voters: 4}, {up: 2, voters: 4}},
			want:   "2 of 4 voters were up, and a quorum needs 3",
			story:  "4/4 2/4",
		},
		"Election": {
			reason: "A moment without an answer proves nothing.",
			looks:  []look{{up: 3, voters: 3}, {err: blind}, {after: maxBlind, err: blind}, {up: 3, voters: 3}},
			story:  "3/3",
		},
		"LongBlind": {
			reason: "An etcd that tells nothing for long has no quorum, although it comes back.",
			looks:  []look{{up: 3, voters: 3}, {err: blind}, {after: maxBlind + 1, err: blind}, {up: 3, voters: 3}},
			want:   "no leader",
			story:  "3/3",
		},
		"BlindInTheEnd": {
			reason: "What is not known in the end is not taken for good.",
			looks:  []look{{up: 3, voters: 3}, {err: blind}},
			want:   "the last look saw nothing",
			story:  "3/3",
		},
		"Never": {
			reason: "A watch that saw nothing proves nothing.",
			want:   "never looked at",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var is tally
			now := time.Unix(0, 0)
			for _, l := range tc.looks {
				now = now.Add(l.after)
				is.add(now, l.voters, l.up, l.err)
			}
			err := is.verdict()
			if (err != nil) != (tc.want != "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("\n%s\nverdict: %v, want %q", tc.reason, err, tc.want)
			}
			if got := strings.Join(is.story, " "); got != tc.story {
				t.Errorf("\n%s\nstory: %q, want %q", tc.reason, got, tc.story)
			}
		})
	}
}
