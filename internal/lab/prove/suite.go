package prove

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// readSuite reads all events. What is no event, such as what a build prints, is kept as output.
func readSuite(r io.Reader) (suite, error) {
	var s suite
	ended := map[string]string{} // by name
	printed := map[string][]string{}
	for d := json.NewDecoder(r); ; {
		var e event
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return s, fmt.Errorf("cannot read what go test tells: %w", err)
		}
		name := e.Package + " " + e.Test
		switch e.Action {
		case "output", "build-output":
			printed[name] = append(printed[name], e.Output)
		case "pass", "fail", "skip", "build-fail":
			ended[name] = e.Action
		}
	}
	parents := map[string]bool{}
	for name := range ended {
		for i, r := range name {
			if r == '/' && i > strings.IndexByte(name, ' ') {
				parents[name[:i]] = true
			}
		}
	}
	for name, how := range ended {
		_, test, _ := strings.Cut(name, " ")
		switch {
		case how == "fail" || how == "build-fail":
			// Also of a parent: it may fail by itself.
			s.last = append(s.last, printed[name]...)
			if !parents[name] && (test != "" || how == "build-fail") {
				s.failed = append(s.failed, test)
			}
		case how == "pass" && test != "" && !parents[name]:
			s.passed = append(s.passed, test)
		}
	}
	slices.Sort(s.passed)
	slices.Sort(s.failed)
	return s, nil
}

// by counts the leaves that passed by what the test is called, and its first part if that has parts itself.
func (s suite) by() map[string]int {
	out := map[string]int{}
	for _, test := range s.passed {
		out[test[:max(strings.LastIndexByte(test, '/'), 0)]]++
	}
	return out
}
