package machineconfig

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
)

// maxDiffLines and maxDiffBytes bound a diff, which is kept in the status of an object.
const (
	maxDiffLines = 50
	maxDiffBytes = 8 << 10
)

// A Comparison of what a machine should run to what it runs.
type Comparison struct {
	// Equal is true if both mean the same.
	Equal bool
	// NeedsReboot tells whether the machine must reboot to go from one to the other. No if they are equal.
	NeedsReboot Answer
	// Diff from what it runs to what it should run, one line for each value, without secrets. Empty if they are equal.
	Diff string
}

// Compare what a machine should run to what it runs. Neither comments nor the order of fields matter. A configuration
// that only a newer Talos understands is compared all the same, but none of its values are shown.
func Compare(desired, actual []byte) (Comparison, error) {
	if bytes.Equal(desired, actual) {
		return Comparison{Equal: true, NeedsReboot: No}, nil
	}
	known := normalize(&desired, &actual)
	want, err := parse(desired)
	if err != nil {
		return Comparison{}, fmt.Errorf("cannot read the declared machine configuration: %w", err)
	}
	have, err := parse(actual)
	if err != nil {
		return Comparison{}, fmt.Errorf("cannot read the machine configuration that runs: %w", err)
	}
	d := diff{known: known, secrets: secretsIn(bodies(want), bodies(have))}
	differences(bodies(have), bodies(want), nil, d.add)
	return Comparison{Equal: d.count == 0, NeedsReboot: needsReboot(have, want), Diff: d.String()}, nil
}

// normalize writes both as Talos's own types write them, so that values which mean the same look the same. It tells
// whether these types know everything in them; if not, both stay as they are.
func normalize(configs ...*[]byte) bool {
	written := make([][]byte, len(configs))
	for i, c := range configs {
		loaded, err := configloader.NewFromBytes(*c)
		if err != nil {
			return false
		}
		if written[i], err = encode(loaded.Clone()); err != nil {
			return false
		}
	}
	for i, c := range configs {
		*c = written[i]
	}
	return true
}

// bodies is one tree of all documents.
func bodies(all []document) any {
	tree := map[string]any{}
	for _, d := range all {
		tree[d.id] = d.body
	}
	return tree
}

// A diff collects lines.
type diff struct {
	known   bool
	secrets []string
	lines   []string
	bytes   int
	count   int
}

func (d *diff) add(at path, have, want any) {
	d.count++
	line := d.line(at, have, want)
	if len(d.lines) >= maxDiffLines || d.bytes+len(line) > maxDiffBytes {
		return
	}
	d.lines = append(d.lines, line)
	d.bytes += len(line) + 1
}

func (d *diff) line(at path, have, want any) string {
	name := at
	if at[0] == mainDocument {
		name = at[1:]
	}
	value := func(v any) string {
		if !d.known {
			return hidden
		}
		return show(at, v)
	}
	var s string
	switch {
	case have == nil:
		s = fmt.Sprintf("+ %s: %s", name, value(want))
	case want == nil:
		s = fmt.Sprintf("- %s: %s", name, value(have))
	default:
		s = fmt.Sprintf("~ %s: %s -> %s", name, value(have), value(want))
	}
	return scrub(s, d.secrets)
}

func (d *diff) String() string {
	s := strings.Join(d.lines, "\n")
	if more := d.count - len(d.lines); more > 0 {
		s += fmt.Sprintf("\n(and %d more)", more)
	}
	return strings.TrimPrefix(s, "\n")
}
