package tools

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// toy writes a source tree with one pinned tool, "toy", whose version comes from a replaced module beside it, so that
// nothing is downloaded.
func toy(t *testing.T, main string) (root string, tool Tool) {
	t.Helper()
	root = t.TempDir()
	for name, content := range map[string]string{
		"hack/toy/go.mod":     "module toy.test/tool\n\ngo 1.25\n\nrequire toy.test/dep v1.2.3\n\nreplace toy.test/dep => ../dep\n",
		"hack/toy/go.sum":     "",
		"hack/toy/main.go":    main,
		"hack/dep/go.mod":     "module toy.test/dep\n\ngo 1.25\n",
		"hack/dep/version.go": "package dep\n\nvar Version = \"unset\"\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root, Tool{
		Name: "toy", Dir: "hack/toy", Package: "toy.test/tool", Module: "toy.test/dep", Size: "a moment",
		LDFlags: func(v string) []string { return []string{"-X toy.test/dep.Version=" + v} },
	}
}

const goodMain = `package main

import "toy.test/dep"

func main() { println(dep.Version) }
`

func TestBuildsOnceAndStampsTheVersion(t *testing.T) {
	root, tool := toy(t, goodMain)
	var progress bytes.Buffer
	b := builder{root: root, cache: t.TempDir(), progress: &progress}

	path, err := b.ensure(t.Context(), tool)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path).CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != "v1.2.3" {
		t.Errorf("the binary says %q (%v), want v1.2.3", got, err)
	}
	if got := progress.String(); !strings.HasPrefix(got, "building toy v1.2.3 (once, a moment) ...") || !strings.HasSuffix(got, " s\n") {
		t.Errorf("progress: %q", got)
	}

	// Sources that do not compile prove that the second call does not build.
	progress.Reset()
	write(t, filepath.Join(root, "hack/toy/main.go"), "package broken")
	again, err := b.ensure(t.Context(), tool)
	if err != nil || again != path {
		t.Errorf("second call: %q, %v; want %q", again, err, path)
	}
	if progress.Len() > 0 {
		t.Errorf("second call reports a build: %q", progress.String())
	}
}

func TestChangedPinsBuildAnew(t *testing.T) {
	root, tool := toy(t, goodMain)
	b := builder{root: root, cache: t.TempDir(), progress: new(bytes.Buffer)}
	first, err := b.ensure(t.Context(), tool)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "hack/toy/go.sum"), "\n")
	second, err := b.ensure(t.Context(), tool)
	if err != nil {
		t.Fatal(err)
	}
	if first == second {
		t.Errorf("another go.sum got the same binary %q", first)
	}
}

func TestOwnCommandFollowsItsSource(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "go.mod"), "module "+modulePath+"\n\ngo 1.25\n")
	main := filepath.Join(root, "cmd", "hello", "main.go")
	b := builder{root: root, cache: t.TempDir(), progress: new(bytes.Buffer)}
	for _, word := range []string{"one", "two"} {
		write(t, main, "package main\n\nfunc main() { println(\""+word+"\") }\n")
		path, err := b.ensure(t.Context(), Own("hello"))
		if err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(path).CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != word {
			t.Errorf("the binary says %q (%v), want %q", out, err, word)
		}
	}
}

func TestConcurrentCallersShareOneBuild(t *testing.T) {
	root, tool := toy(t, goodMain)
	var mu sync.Mutex
	var progress bytes.Buffer
	b := builder{root: root, cache: t.TempDir(), progress: writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return progress.Write(p)
	})}

	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if path, err := b.ensure(t.Context(), tool); err != nil || !isFile(path) {
				t.Errorf("got %q, %v", path, err)
			}
		})
	}
	wg.Wait()
	if n := strings.Count(progress.String(), "building"); n != 1 {
		t.Errorf("built %d times, want once", n)
	}
}

func TestBrokenModuleSaysWhatAndWhere(t *testing.T) {
	root, tool := toy(t, "package main\n\nfunc main() { undefinedName() }\n")
	b := builder{root: root, cache: t.TempDir(), progress: new(bytes.Buffer)}

	path, err := b.ensure(t.Context(), tool)
	if err == nil {
		t.Fatalf("built %q", path)
	}
	message := err.Error()
	if !strings.HasPrefix(message, "cannot build toy v1.2.3: ") || !strings.Contains(message, "undefined: undefinedName") || strings.Contains(message, "\n") {
		t.Errorf("message: %q", message)
	}
	_, quoted, _ := strings.Cut(message, `(full output: "`)
	log, readErr := os.ReadFile(strings.TrimSuffix(quoted, `")`))
	if readErr != nil || !bytes.Contains(log, []byte("undefinedName")) {
		t.Errorf("log: %q, %v", log, readErr)
	}

	// What failed once is tried again.
	write(t, filepath.Join(root, "hack/toy/main.go"), goodMain)
	if _, err := b.ensure(t.Context(), tool); err != nil {
		t.Errorf("after the repair: %v", err)
	}
}

func TestUnpinnedToolIsRefused(t *testing.T) {
	root, tool := toy(t, goodMain)
	tool.Module = "toy.test/other"
	b := builder{root: root, cache: t.TempDir(), progress: new(bytes.Buffer)}
	if _, err := b.ensure(t.Context(), tool); err == nil || !strings.Contains(err.Error(), "does not require it") {
		t.Errorf("got %v", err)
	}
}

func TestWaiterGivesUpWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lockFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := lockFile(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("second lock: %v, want a deadline", err)
	}
	unlock()
	unlock, err = lockFile(t.Context(), path)
	if err != nil {
		t.Fatalf("cannot lock again: %v", err)
	}
	unlock()
}

func TestFindRoot(t *testing.T) {
	root := t.TempDir()
	inner := filepath.Join(root, "hack", "tools", "x")
	write(t, filepath.Join(root, "go.mod"), "module "+modulePath+"\n")
	write(t, filepath.Join(inner, "go.mod"), "module "+modulePath+"/hack/tools/x\n")

	cases := map[string]struct {
		reason string
		dir    string
		want   string
	}{
		"Root":        {reason: "The root itself counts.", dir: root, want: root},
		"InnerModule": {reason: "A nested module's go.mod is passed over.", dir: inner, want: root},
		"Outside":     {reason: "Outside the tree there is no root.", dir: t.TempDir(), want: ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := findRoot(tc.dir)
			if got != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("%s\ngot %q, %v; want %q", tc.reason, got, err, tc.want)
			}
		})
	}
}

func TestCatalogueIsPinned(t *testing.T) {
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	root, err := findRoot(wd)
	if err != nil {
		t.Fatal(err)
	}
	b := builder{root: root}
	for _, tool := range []Tool{KubeAPIServer, KubeControllerManager, KubeScheduler, Kubectl, Etcd, Crossplane, CrossplaneCLI} {
		version, flags, err := b.pins(tool)
		if err != nil {
			t.Errorf("%s: %v", tool.Name, err)
			continue
		}
		if _, err := b.key(tool, version, flags); err != nil {
			t.Errorf("%s: %v", tool.Name, err)
		}
	}
}

func TestKubernetesVersion(t *testing.T) {
	want := []string{
		"-X k8s.io/component-base/version.gitVersion=v1.35.4",
		"-X k8s.io/component-base/version.gitMajor=1",
		"-X k8s.io/component-base/version.gitMinor=35",
	}
	if diff := cmp.Diff(want, kubernetesVersion("v1.35.4")); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
