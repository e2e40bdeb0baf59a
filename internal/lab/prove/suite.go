package prove

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// A suite is what `go test -json` told of the tests that it ran.
type suite struct {
	// passed and failed are the leaves: tests, and parts of tests, that have no parts themselves. A skipped one is neither.
	passed, failed []string
	// last is what the failed ones printed.
	last []string
}

// An event is one line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
}

// readSuite reads all events, in any order.
func readSuite(r io.Reader) (suite, error) {
	ended := map[string]string{} // how, by name
	printed := map[string][]string{}
	for d := json.NewDecoder(r); ; {
		var e event
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return summed(ended, printed), nil
		} else if err != nil {
			return suite{}, fmt.Errorf("cannot read what go test tells: %w", err)
		}
		name := e.Package + " " + e.Test
		switch e.Action {
		case "output", "build-output":
			printed[name] = append(printed[name], e.Output)
		case "pass", "fail":
			ended[name] = e.Action
		}
	}
}

// summed leaves out tests that have parts, and the packages themselves. A test with parts may fail by itself, too: then what it
// printed is kept.
func summed(ended map[string]string, printed map[string][]string) suite {
	parents := map[string]bool{}
	for name := range ended {
		pkg, test, _ := strings.Cut(name, " ")
		for i, r := range test {
			if r == '/' {
				parents[pkg+" "+test[:i]] = true
			}
		}
	}
	var s suite
	for _, name := range slices.Sorted(maps.Keys(ended)) {
		_, test, _ := strings.Cut(name, " ")
		failed := ended[name] == "fail"
		if failed {
			s.last = append(s.last, printed[name]...)
		}
		switch {
		case test == "" || parents[name]:
		case failed:
			s.failed = append(s.failed, test)
		default:
			s.passed = append(s.passed, test)
		}
	}
	return s
}

// by counts the leaves that passed by what the test is called, and its first part if that has parts itself.
func (s suite) by() map[string]int {
	out := map[string]int{}
	for _, test := range s.passed {
		out[test[:max(strings.LastIndexByte(test, '/'), 0)]]++
	}
	return out
}
