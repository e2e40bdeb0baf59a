package demo

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/maesh/provider-ichor/internal/lab/story"
)

func TestChoose(t *testing.T) {
	chapters := []chapter{
		{name: "up", base: true, checks: []story.Check{{Says: "up"}}},
		{name: "one", checks: []story.Check{{Says: "1a"}, {Says: "1b"}}},
		{name: "two", checks: []story.Check{{Says: "2"}}},
		{name: "down", base: true, checks: []story.Check{{Says: "down"}}},
	}
	cases := map[string]struct {
		reason string
		only   []string
		want   []string
		err    string
	}{
		"All":     {reason: "Without a choice everything is shown.", want: []string{"up", "1a", "1b", "2", "down"}},
		"One":     {reason: "What the others stand on is shown always.", only: []string{"two"}, want: []string{"up", "2", "down"}},
		"Order":   {reason: "The order is that of the story.", only: []string{"two", "one"}, want: []string{"up", "1a", "1b", "2", "down"}},
		"Unknown": {reason: "A chapter that does not exist must not make an empty demo.", only: []string{"three"}, err: `there is no chapter "three"; there are up, one, two, down`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			checks, err := choose(chapters, tc.only)
			if text := errorText(err); text != tc.err {
				t.Fatalf("\n%s\nerror %q, want %q", tc.reason, text, tc.err)
			}
			var got []string
			for _, c := range checks {
				got = append(got, c.Says)
			}
			if diff := cmp.Diff(tc.want, got); err == nil && diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
	for _, name := range Short() {
		if !slices.Contains(Chapters(), name) {
			t.Errorf("the short demo has chapter %q, and the story has not", name)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
