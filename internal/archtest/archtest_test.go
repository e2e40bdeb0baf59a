package archtest

import (
	"fmt"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// checks by name. Each looks at the whole tree and returns what is wrong with it.
var checks = map[string]func(*tree) []problem{
	"calls":      wrongCalls,
	"counts":     wrongCounts,
	"comments":   wrongPackageComments,
	"decide":     impureDecisions,
	"fields":     wrongFields,
	"files":      wrongFiles,
	"imports":    wrongTestImports,
	"interfaces": wrongInterfaces,
	"layout":     wrongLayout,
	"proofs":     unprovenSteps,
	"readers":    wrongReaders,
	"reasons":    wrongReasons,
}

// A problem is something wrong at a place of the tree. Its file is relative to the root.
type problem struct {
	file string
	line int
	text string
}

func (p problem) String() string { return fmt.Sprintf("%s:%d: %s", p.file, p.line, p.text) }

func (t *tree) problem(pos token.Pos, format string, args ...any) problem {
	p := t.fset.Position(pos)
	file, err := filepath.Rel(t.root, p.Filename)
	if err != nil {
		file = p.Filename
	}
	return problem{file: filepath.ToSlash(file), line: p.Line, text: fmt.Sprintf(format, args...)}
}

// stale is a problem of a table in this package: a row that nothing in the tree matches would hide the next rename.
func stale(format string, args ...any) problem {
	return problem{file: "internal/archtest", text: fmt.Sprintf(format, args...)}
}

func TestTree(t *testing.T) {
	tr := asIs(t)
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		t.Run(name, func(t *testing.T) {
			for _, p := range checks[name](tr) {
				t.Error(p)
			}
		})
	}
}

var (
	wantLine = regexp.MustCompile(`// want (.*)$`)
	wantItem = regexp.MustCompile(`(\w+): "((?:[^"\\]|\\.)*)"`)
)

// A want is a problem that a check must find at a line of the broken tree.
type want struct {
	check string
	problem
}

// TestEachCheckIsSeenToFail lays files over the tree that break every check. What a check must say stands at the end of
// the line where it must say it, and it must say nothing else.
func TestEachCheckIsSeenToFail(t *testing.T) {
	overlay := violations(t)
	wants := map[string][]want{}
	for file, text := range overlay {
		for i, line := range strings.Split(text, "\n") {
			m := wantLine.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			for _, item := range wantItem.FindAllStringSubmatch(m[1], -1) {
				w := want{check: item[1], problem: problem{file: file, line: i + 1, text: strings.ReplaceAll(item[2], `\"`, `"`)}}
				wants[w.check] = append(wants[w.check], w)
			}
		}
	}
	tr := load(t, overlay)
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		t.Run(name, func(t *testing.T) {
			compare(t, checks[name](tr), wants[name])
			if len(wants[name]) == 0 {
				t.Error("nothing in testdata/violations.txtar breaks this check")
			}
		})
		delete(wants, name)
	}
	for name := range wants {
		t.Errorf("testdata/violations.txtar wants something of a check %q, which does not exist", name)
	}
}

func violations(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "violations.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	overlay := map[string]string{}
	for _, f := range txtar.Parse(data).Files {
		overlay[f.Name] = string(f.Data)
	}
	overlay["internal/broken/long.go"] = "package broken // want files: \"has 501 lines, more than 500\"\n" + strings.Repeat("\n", maxLines)
	overlay["internal/broken/long_test.go"] = "package broken // want files: \"has 801 lines, more than 800\"\n" + strings.Repeat("\n", maxTestLines)
	return overlay
}

func compare(t *testing.T, got []problem, wants []want) {
	t.Helper()
	for _, w := range wants {
		i := slices.IndexFunc(got, func(p problem) bool {
			return p.file == w.file && p.line == w.line && strings.Contains(p.text, w.text)
		})
		if i < 0 {
			t.Errorf("not found: %s", w.problem)
			continue
		}
		got = slices.Delete(got, i, i+1)
	}
	for _, p := range got {
		t.Errorf("not wanted: %s", p)
	}
}
