package archtest

import (
	"cmp"
	"fmt"
	"go/ast"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/tools/cover"
)

// TestDecisionsAreCovered demands that the tests of decide reach each of its statements: a guard that no test reaches is one
// that nobody would miss. They run once more for it, in their short form, and without the race detector: decide is pure.
func TestDecisionsAreCovered(t *testing.T) {
	profile := filepath.Join(t.TempDir(), "cover.out")
	args := append([]string{"test", "-short", "-coverpkg=./internal/decide/...", "-coverprofile=" + profile}, decides(asIs(t))...)
	cmd := exec.CommandContext(t.Context(), "go", args...) //nolint:gosec // Nothing in it comes from elsewhere.
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cannot test decide: %v\n%s", err, out)
	}
	profiles, err := cover.ParseProfiles(profile)
	if err != nil {
		t.Fatal(err)
	}
	if len(profiles) == 0 {
		t.Fatal("the tests of decide covered no file at all")
	}
	for _, where := range uncovered(profiles) {
		t.Errorf("%s: no test reaches this", where)
	}
}

// decides are the packages of decide that have statements. What is made of tests only, such as a model, is not run twice.
func decides(t *tree) []string {
	var paths []string
	for _, p := range t.packages {
		if within(p.PkgPath, decisions) && slices.ContainsFunc(p.Syntax, hasFunctions) {
			paths = append(paths, p.PkgPath)
		}
	}
	return paths
}

func hasFunctions(f *ast.File) bool {
	return slices.ContainsFunc(f.Decls, func(d ast.Decl) bool {
		_, ok := d.(*ast.FuncDecl)
		return ok
	})
}

// uncovered are the places that no test reached: file:first line-last line. A profile has each place once for every package
// that was tested.
func uncovered(profiles []*cover.Profile) []string {
	type place struct {
		file        string
		first, last int
		column      int
	}
	reached := map[place]bool{}
	for _, p := range profiles {
		for _, b := range p.Blocks {
			if b.NumStmt == 0 {
				continue // The empty body of a marker method.
			}
			at := place{file: short(p.FileName), first: b.StartLine, last: b.EndLine, column: b.StartCol}
			reached[at] = reached[at] || b.Count > 0
		}
	}
	var places []place
	for at, yes := range reached {
		if !yes {
			places = append(places, at)
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.first, b.first), cmp.Compare(a.column, b.column))
	})
	out := make([]string, 0, len(places))
	for _, at := range places {
		out = append(out, fmt.Sprintf("%s:%d-%d", at.file, at.first, at.last))
	}
	return out
}

func TestUncoveredPlacesAreFound(t *testing.T) {
	profiles, err := cover.ParseProfilesFromReader(strings.NewReader(`mode: set
github.com/maesh/provider-ichor/internal/decide/b.go:10.2,12.3 2 0
github.com/maesh/provider-ichor/internal/decide/b.go:10.2,12.3 2 1
github.com/maesh/provider-ichor/internal/decide/b.go:14.2,15.3 1 0
github.com/maesh/provider-ichor/internal/decide/b.go:20.20,20.22 0 0
github.com/maesh/provider-ichor/internal/decide/a.go:7.2,9.3 1 0
github.com/maesh/provider-ichor/internal/decide/a.go:7.2,9.3 1 0
github.com/maesh/provider-ichor/internal/decide/a.go:3.2,4.3 1 5
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"internal/decide/a.go:7-9", "internal/decide/b.go:14-15"}
	if diff := gocmp.Diff(want, uncovered(profiles)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
