package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// modulePath names the module whose go.mod marks the root of the source tree.
const modulePath = "github.com/maesh/provider-ichor"

// dirVariable is the environment variable that overrides where binaries are kept.
const dirVariable = "ICHOR_TOOLS_DIR"

// Ensure returns the path of each tool's binary by tool name, after building those that are not there yet. Progress goes to
// w, one line per build and nothing if there is nothing to build. Any number of goroutines and processes may call it at
// once: a binary is built by one of them while the others wait.
//
// It must run with the working directory inside the source tree. An error names the tool and the file that has the
// compiler's full output.
func Ensure(ctx context.Context, w io.Writer, tools ...Tool) (map[string]string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("cannot get the working directory: %w", err)
	}
	root, err := findRoot(wd)
	if err != nil {
		return nil, err
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}

	b := builder{root: root, cache: cache, progress: w}
	paths := make(map[string]string, len(tools))
	for _, t := range tools {
		if paths[t.Name], err = b.ensure(ctx, t); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// ModuleDir is where the source of a tool's module lies, for files that the tool needs beside its binary. It is downloaded if it
// is not there.
func ModuleDir(ctx context.Context, t Tool) (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("cannot get the working directory: %w", err)
	}
	root, err := findRoot(wd)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", t.Module)
	cmd.Dir = filepath.Join(root, t.Dir)
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("cannot find the source of %s: %w", t.Name, err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(output, &module); err != nil {
		return "", fmt.Errorf("cannot find the source of %s: %w", t.Name, err)
	}
	return module.Dir, nil
}

// findRoot walks up from dir to the directory whose go.mod is this module's. The modules under hack/tools lie inside the
// tree, so the first go.mod found is not always the right one.
func findRoot(dir string) (string, error) {
	want := []byte("module " + modulePath)
	for at := dir; ; at = filepath.Dir(at) {
		mod, err := os.ReadFile(filepath.Join(at, "go.mod"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("cannot look for the module root: %w", err)
		}
		if line, _, _ := bytes.Cut(mod, []byte("\n")); bytes.Equal(bytes.TrimSpace(line), want) {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("cannot find the module root: no go.mod of %q at or above %q", modulePath, dir)
		}
	}
}

func cacheDir() (string, error) {
	if dir := os.Getenv(dirVariable); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cannot find a place for built tools (set %s): %w", dirVariable, err)
	}
	return filepath.Join(dir, "provider-ichor", "tools"), nil
}
