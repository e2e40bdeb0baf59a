package archtest

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxLines and maxTestLines are what one person reads in one sitting.
	maxLines     = 500
	maxTestLines = 800
)

// shapeless are names of packages that collect what belongs nowhere.
var shapeless = []string{"common", "helper", "helpers", "misc", "pkg", "shared", "types", "util", "utils"}

// wrongFiles finds files that are too long and packages whose name says nothing.
func wrongFiles(t *tree) []problem {
	var found []problem
	for _, name := range slices.Sorted(maps.Keys(t.files)) {
		f := t.files[name]
		limit := maxLines
		if f.test {
			limit = maxTestLines
		}
		if f.lines > limit && !f.generated {
			found = append(found, t.problem(f.syntax.Package, "the file has %d lines, more than %d", f.lines, limit))
		}
		if pkg := strings.TrimSuffix(f.syntax.Name.Name, "_test"); slices.Contains(shapeless, pkg) {
			found = append(found, t.problem(f.syntax.Package, "a package named %s says nothing of what it is", pkg))
		}
	}
	return found
}

// wrongPackageComments finds packages without a comment, with two, or with one that does not begin as such comments do:
// "Package x " or "Command x ", and one that does not say what the package must never do.
func wrongPackageComments(t *tree) []problem {
	comments := map[string]int{}
	first := map[string]string{}
	var found []problem
	for _, name := range slices.Sorted(maps.Keys(t.files)) {
		f, dir := t.files[name], path.Dir(name)
		if f.test {
			continue
		}
		if first[dir] == "" {
			first[dir] = name
		}
		if f.syntax.Doc == nil {
			continue
		}
		comments[dir]++
		begin := "Package " + f.syntax.Name.Name + " "
		if f.syntax.Name.Name == "main" {
			begin = "Command " + path.Base(dir) + " "
		}
		if !strings.HasPrefix(f.syntax.Doc.Text(), begin) {
			found = append(found, t.problem(f.syntax.Package, "the package comment does not begin with %q", begin))
		}
		if comments[dir] > 1 {
			found = append(found, t.problem(f.syntax.Package, "the package has a second comment"))
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(first)) {
		if comments[dir] == 0 {
			found = append(found, t.problem(t.files[first[dir]].syntax.Package, "the package has no comment"))
		}
	}
	return found
}

// assertions are libraries that say what a test wants in a language of their own.
var assertions = []string{
	"github.com/onsi/ginkgo", "github.com/onsi/gomega", "github.com/stretchr/testify", "gotest.tools", "github.com/golang/mock", "go.uber.org/mock",
}

// onlyInTests are packages that exist for tests.
var onlyInTests = []string{
	module + "/internal/archtest", module + "/internal/decide/story", "testing", "net/http/httptest",
	"github.com/cockroachdb/datadriven", "github.com/google/go-cmp", "pgregory.net/rapid",
	"sigs.k8s.io/controller-runtime/pkg/client/fake", "sigs.k8s.io/controller-runtime/pkg/client/interceptor", "k8s.io/client-go/kubernetes/fake", "k8s.io/utils/clock/testing",
}

// wrongTestImports finds assertion libraries, and what is for tests in what is none.
func wrongTestImports(t *tree) []problem {
	var found []problem
	for _, name := range slices.Sorted(maps.Keys(t.files)) {
		f := t.files[name]
		for _, i := range f.syntax.Imports {
			imported, err := strconv.Unquote(i.Path.Value)
			switch {
			case err != nil:
				found = append(found, t.problem(i.Pos(), "cannot read the import: %v", err))
			case within(imported, assertions...):
				found = append(found, t.problem(i.Pos(), "%s is an assertion library: tests are tables, stories and cmp.Diff", imported))
			case !f.test && within(imported, onlyInTests...):
				found = append(found, t.problem(i.Pos(), "%s is for tests only", imported))
			}
		}
	}
	return found
}
