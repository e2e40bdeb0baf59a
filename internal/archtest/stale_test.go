package archtest

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestTablesDoNotRot adds to each table a row that nothing in the tree matches, and wants to be told so and nothing else.
func TestTablesDoNotRot(t *testing.T) {
	tr := asIs(t)
	cases := map[string]struct {
		problems []problem
		want     string
	}{
		"Callee": {
			problems: tr.wrongCalls(append(calls(), row{"internal/act.Resetter.Erase", []string{"internal/act.Actor.Erase"}})),
			want:     "by internal/act.Actor.Erase of internal/act.Resetter.Erase",
		},
		"Caller": {
			problems: tr.wrongCalls(append(calls(), row{"internal/act.evict", []string{"internal/act.Actor.Drain", "internal/act.Actor.Gone"}})),
			want:     "by internal/act.Actor.Gone of internal/act.evict",
		},
		"Package": {
			problems: tr.wrongLayout(with(layout, "internal/gone", layer{})),
			want:     "the layout has internal/gone, and the tree has not",
		},
		"Arrow": {
			problems: tr.wrongLayout(with(layout, "internal/version", layer{imports: []string{"internal/act"}})),
			want:     "the layout has internal/version importing internal/act",
		},
		"Forbidden": {
			problems: tr.wrongLayout(with(layout, "internal/version", layer{never: map[string]string{"example.org/gone": "it was bad"}})),
			want:     "must never import example.org/gone, which nothing of this module needs any more",
		},
		"Interface": {
			problems: tr.wrongInterfaces(with(declared, "internal/survey.Locks", "it was needed")),
			want:     "internal/survey.Locks may declare Acquire and does not",
		},
		"Reader": {
			problems: tr.wrongReaders(with(cached, "internal/survey.Guess", "it was enough")),
			want:     "internal/survey.Guess may be given a cached reader and is not",
		},
		"Teller": {
			problems: tr.wrongCounts(append(slices.Clone(tellers), "internal/survey.Guess")),
			want:     "internal/survey.Guess does not tell control planes any more",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if len(tc.problems) != 1 || !strings.Contains(tc.problems[0].text, tc.want) {
				t.Errorf("got %v, want one problem with %q", tc.problems, tc.want)
			}
		})
	}
}

// with is a table with one more row.
func with[V any](table map[string]V, key string, value V) map[string]V {
	out := maps.Clone(table)
	out[key] = value
	return out
}
