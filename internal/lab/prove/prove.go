// Package prove runs what proves the product and prints one table of it: the model check, the crash sweeps and the fault
// catalogue, each as the tests that it is, and the sweep on real parts on its lab. It must never judge by itself: what they say
// counts.
package prove

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/maesh/provider-ichor/internal/decide/modelcheck"
	"github.com/maesh/provider-ichor/internal/lab/crashsweep"
)

const (
	// limit is how long each part may take.
	limit = "20m"
	// told is where the fault catalogue keeps its texts.
	told = "internal/faulttest/testdata/told.txt"
)

// Options of a proof.
type Options struct {
	// Root is the root of the source tree, and Depth how far the model check goes: short or full.
	Root, Depth string
	// Sweep kills the provider after its writes on real parts.
	Sweep func(context.Context) (crashsweep.Report, error)
	// Out gets progress and the table.
	Out io.Writer
}

// A proof is what was found.
type proof struct {
	model           modelcheck.Result
	crashes, faults suite
	real            crashsweep.Report
	outcomes        map[string]int
	took            map[string]time.Duration
}

// Run proves, and returns an error unless all of it holds. The table is printed either way, as far as it got.
func Run(ctx context.Context, o Options) error {
	p := proof{took: map[string]time.Duration{}}
	err := p.run(ctx, o)
	fmt.Fprint(o.Out, p.table())
	return errors.Join(err, p.verdict())
}

func (p *proof) run(ctx context.Context, o Options) error {
	text, err := os.ReadFile(filepath.Join(o.Root, filepath.FromSlash(told)))
	if err != nil {
		return fmt.Errorf("cannot read what faults are to tell: %w", err)
	}
	if p.outcomes, err = readTold(string(text)); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "ichor-prove-")
	if err != nil {
		return fmt.Errorf("cannot make a directory: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // Nothing depends on it.
	out := filepath.Join(dir, "model.json")
	model, err := p.test(ctx, o, "model check", "./internal/decide/modelcheck", "-run=^TestModel$", "-model.depth="+o.Depth, "-model.out="+out)
	if err != nil {
		return err
	}
	if p.model, err = readModel(out); err != nil {
		return errors.Join(err, model.problem("the model check"))
	}
	if p.crashes, err = p.test(ctx, o, "crash sweep", "./internal/controller/...", "-run=Crash"); err != nil {
		return err
	}
	if p.faults, err = p.test(ctx, o, "faults", "./internal/faulttest", "-run=^TestFaults$", "-faults.all"); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "running the crash sweep on real parts\n")
	begun := time.Now()
	p.real, err = o.Sweep(ctx)
	p.took["real"] = time.Since(begun)
	return err
}

func readModel(path string) (modelcheck.Result, error) {
	var r modelcheck.Result
	text, err := os.ReadFile(path)
	if err != nil {
		return r, fmt.Errorf("cannot read the result of the model check: %w", err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("cannot read the result of the model check: %w", err)
	}
	return r, nil
}

// test runs tests. That some fail is no error; that it cannot be told is one.
func (p *proof) test(ctx context.Context, o Options, name string, args ...string) (suite, error) {
	fmt.Fprintf(o.Out, "running the %s\n", name)
	begun := time.Now()
	defer func() { p.took[name] = time.Since(begun) }()
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"test", "-json", "-count=1", "-timeout=" + limit}, args)...)
	cmd.Dir = o.Root
	var errs bytes.Buffer
	cmd.Stderr = &errs
	text, failed := cmd.Output()
	if ctx.Err() != nil {
		return suite{}, ctx.Err()
	}
	s, err := readSuite(bytes.NewReader(text))
	if err != nil || failed != nil && len(s.failed) == 0 { // A build, or a test with parts that failed by itself.
		return s, fmt.Errorf("the %s did not run: %w", name, errors.Join(err, failed, errors.New(errs.String()), errors.New(strings.Join(s.last, ""))))
	}
	return s, nil
}

// problem is an error unless some tests passed and all did.
func (s suite) problem(what string) error {
	switch {
	case len(s.failed) > 0:
		return fmt.Errorf("%s: %s failed:\n%s", what, strings.Join(s.failed, ", "), strings.Join(s.last, ""))
	case len(s.passed) == 0:
		return fmt.Errorf("%s: nothing was run", what)
	}
	return nil
}

// verdict is an error unless everything was looked at and holds.
func (p *proof) verdict() error {
	errs := []error{p.crashes.problem("the crash sweep"), p.faults.problem("the faults")}
	for _, r := range p.model.Rows {
		if r.Violation != "" {
			errs = append(errs, fmt.Errorf("the model check: %s: %s", r.Config, r.Violation))
		}
	}
	if n := len(p.model.Mutants) - p.model.Found(); n > 0 || len(p.model.Mutants) == 0 || len(p.model.Rows) == 0 {
		errs = append(errs, fmt.Errorf("the model check: %d of %d mutants were not found in %d configurations", n, len(p.model.Mutants), len(p.model.Rows)))
	}
	for _, v := range p.real.Violations() {
		errs = append(errs, fmt.Errorf("the crash sweep on real parts: %s", v))
	}
	if p.real.Points() == 0 {
		errs = append(errs, errors.New("the crash sweep on real parts: nobody was killed"))
	}
	return errors.Join(errs...)
}

// table is all of it for people to read.
func (p *proof) table() string {
	var b strings.Builder
	line := func(what string, n int, of string) { fmt.Fprintf(&b, "%-58s %12d  %s\n", what, n, of) }
	fmt.Fprintf(&b, "\n%s\n", p.model.Table())
	fmt.Fprintf(&b, "crash points: the process ends after the k-th of its writes, for every k\n")
	by := p.crashes.by()
	for _, test := range slices.Sorted(maps.Keys(by)) {
		line("  "+test, by[test], "")
	}
	fmt.Fprintf(&b, "crash points on real parts: kill -9 after the k-th write, for as many k as there is time for\n")
	for _, j := range p.real.Jobs {
		line("  "+j.Name+", "+j.Variant, j.Points, fmt.Sprintf("of %d writes", j.Writes))
	}
	fmt.Fprintf(&b, "faults, by what is told of them\n")
	for _, outcome := range slices.Sorted(maps.Keys(p.outcomes)) {
		line("  "+outcome, p.outcomes[outcome], "")
	}
	states, transitions := 0, 0
	for _, r := range p.model.Rows {
		states, transitions = states+r.States, transitions+r.Transitions
	}
	total := 0
	for _, n := range p.outcomes {
		total += n
	}
	fmt.Fprintf(&b, "\n")
	line("states explored", states, fmt.Sprintf("and %d transitions, in %s", transitions, p.since("model check")))
	line("mutants found", p.model.Found(), fmt.Sprintf("of %d", len(p.model.Mutants)))
	line("crash points", len(p.crashes.passed), fmt.Sprintf("in %s", p.since("crash sweep")))
	line("crash points on real parts", p.real.Points(), fmt.Sprintf("in %s; etcd was looked at %d times", p.since("real"), p.real.Looks))
	line("faults", total, fmt.Sprintf("in %s", p.since("faults")))
	line("violations", p.model.Violations()+len(p.crashes.failed)+len(p.faults.failed)+len(p.real.Violations()), "")
	return b.String()
}

func (p *proof) since(part string) time.Duration { return p.took[part].Round(time.Second) }
