package tools

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// A builder builds tools of the tree at root into the directory cache.
type builder struct {
	root, cache string
	progress    io.Writer
}

// ensure returns the path of t's binary and builds it if it is missing.
func (b builder) ensure(ctx context.Context, t Tool) (string, error) {
	version, flags, err := b.pins(t)
	if err != nil {
		return "", err
	}
	key, err := b.key(t, version, flags)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(b.cache, key)
	binary := filepath.Join(dir, t.Name)
	if t.Module != "" && isFile(binary) {
		return binary, nil
	}

	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("cannot make a place for %s: %w", t.Name, err)
	}
	unlock, err := lockFile(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return "", fmt.Errorf("cannot lock the build of %s: %w", t.Name, err)
	}
	defer unlock()

	// Whoever held the lock before us may have built it.
	if t.Module != "" && isFile(binary) {
		return binary, nil
	}
	return binary, b.build(ctx, t, version, flags, dir)
}

// pins returns the tool's version ("" for our own commands) and the flags that it is built with.
func (b builder) pins(t Tool) (version string, flags []string, err error) {
	ld := []string{"-s", "-w"}
	if t.Module != "" {
		if version, err = requiredVersion(filepath.Join(b.root, t.Dir, "go.mod"), t.Module); err != nil {
			return "", nil, err
		}
		if t.LDFlags != nil {
			ld = append(ld, t.LDFlags(version)...)
		}
	}
	return version, []string{"-trimpath", "-ldflags", strings.Join(ld, " ")}, nil
}

// key names the directory of one build: everything that decides what the binary does is part of it.
func (b builder) key(t Tool, version string, flags []string) (string, error) {
	h := sha256.New()
	h.Write([]byte(strings.Join(append([]string{runtime.GOOS, runtime.GOARCH, t.Package}, flags...), "\n")))
	if t.Module == "" {
		// Our own commands change with every edit. The tree's path keeps two checkouts apart.
		h.Write([]byte(b.root))
		version = "dev"
	} else {
		for _, name := range []string{"go.mod", "go.sum"} {
			pins, err := os.ReadFile(filepath.Join(b.root, t.Dir, name))
			if err != nil {
				return "", fmt.Errorf("cannot read the pins of %s: %w", t.Name, err)
			}
			h.Write(pins)
		}
	}
	return fmt.Sprintf("%s-%s-%s", t.Name, version, hex.EncodeToString(h.Sum(nil))[:12]), nil
}

// interruptGrace is how long an interrupted Go command may take to stop its compilers.
const interruptGrace = 10 * time.Second

// build runs the Go command and moves its result into dir. The binary appears there at once and whole, or not at all.
func (b builder) build(ctx context.Context, t Tool, version string, flags []string, dir string) error {
	title := strings.TrimSpace(t.Name + " " + version)
	b.sayf(t, "building %s (once, %s) ...", title, t.Size)
	began := time.Now()
	partial := filepath.Join(dir, t.Name+".partial")
	logPath := filepath.Join(dir, "build.log")

	cmd := exec.CommandContext(ctx, "go", append(append([]string{"build"}, flags...), "-o", partial, t.Package)...)
	cmd.Dir = filepath.Join(b.root, t.Dir)
	// An interrupted Go command stops its compilers; a killed one leaves them running.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = interruptGrace
	// A workspace or a vendor mode of the caller would undo the pins, and cgo would tie the binary to this machine.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=readonly -buildvcs=false")
	output, runErr := cmd.CombinedOutput()
	if err := os.WriteFile(logPath, output, 0o644); err != nil {
		return fmt.Errorf("cannot write the build log of %s: %w", t.Name, err)
	}

	if runErr != nil {
		b.sayf(t, " failed\n")
		_ = os.Remove(partial) // A half-written file is of no use, and its absence is fine.
		if ctx.Err() != nil {
			return fmt.Errorf("cannot build %s: %w", title, ctx.Err())
		}
		return fmt.Errorf("cannot build %s: %s (full output: %q)", title, firstComplaint(output, runErr), logPath)
	}
	if err := os.Rename(partial, filepath.Join(dir, t.Name)); err != nil {
		return fmt.Errorf("cannot install %s: %w", title, err)
	}
	b.sayf(t, " %d s\n", int(time.Since(began).Seconds()))
	return nil
}

// sayf reports progress. Our own commands are built every time, so nothing is said of them. A progress line that gets lost
// is no reason to stop.
func (b builder) sayf(t Tool, format string, args ...any) {
	if t.Module != "" {
		_, _ = fmt.Fprintf(b.progress, format, args...)
	}
}

// firstComplaint is the first line of the Go command's output that says what is wrong: "# package" lines and download
// notices come before it.
func firstComplaint(output []byte, runErr error) string {
	for line := range bytes.Lines(output) {
		text := strings.TrimSpace(string(line))
		if text != "" && !strings.HasPrefix(text, "# ") && !strings.HasPrefix(text, "go: downloading ") {
			return text
		}
	}
	return runErr.Error()
}

// requiredVersion reads the version of a required module from a go.mod file.
func requiredVersion(goMod, module string) (string, error) {
	mod, err := os.ReadFile(goMod)
	if err != nil {
		return "", fmt.Errorf("cannot read the version of %q: %w", module, err)
	}
	for line := range strings.Lines(string(mod)) {
		fields := strings.Fields(strings.TrimPrefix(line, "require "))
		if len(fields) >= 2 && fields[0] == module && strings.HasPrefix(fields[1], "v") {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("cannot find the version of %q: %q does not require it", module, goMod)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// errLocked says that somebody else holds the lock.
var errLocked = errors.New("locked")

// lockPoll is how often a waiter asks for the lock again; builds take minutes, so a fraction of a second is soon enough.
const lockPoll = 200 * time.Millisecond

// lockFile takes the lock of a path, waiting for it until ctx ends. The kernel gives it up with the process, however that
// dies, so no lock is ever left over.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	ticker := time.NewTicker(lockPoll)
	defer ticker.Stop()
	for {
		switch err := tryLock(f); {
		case err == nil:
			return func() { _ = f.Close() }, nil // Closing is what unlocks.
		case !errors.Is(err, errLocked):
			_ = f.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, ctx.Err()
		case <-ticker.C:
		}
	}
}
