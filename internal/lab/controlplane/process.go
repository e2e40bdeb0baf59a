package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Command says which program to run as a child process.
type Command struct {
	// Name in messages, such as "kube-apiserver".
	Name string

	// Path of the binary.
	Path string

	// Args without the program's own name.
	Args []string

	// Env is added to this process's environment, as KEY=value.
	Env []string

	// Log is the file that the child's output is appended to. Its directory is made if it is missing.
	Log string

	// Grace is how long Stop waits after SIGTERM before it kills; 0 means DefaultGrace.
	Grace time.Duration
}

// DefaultGrace is how long a child may take to end by itself. The Kubernetes programs need a second or two.
const DefaultGrace = 5 * time.Second

// A Process is a running or ended child process.
type Process struct {
	command Command
	cmd     *exec.Cmd
	stopped chan struct{} // closed by the first Stop
	died    chan struct{} // closed once the child is gone and waited for
	exit    error         // what Wait said; read only after died
	once    sync.Once     // closes stopped
}

// StartProcess starts the child in a process group of its own, so that a Ctrl-C in the terminal reaches only its parent,
// which then stops it in order. On Linux the kernel kills the child if this process dies without stopping it.
func StartProcess(c Command) (*Process, error) {
	if err := os.MkdirAll(filepath.Dir(c.Log), 0o755); err != nil {
		return nil, fmt.Errorf("cannot make a place for the log of %s: %w", c.Name, err)
	}
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot open the log of %s: %w", c.Name, err)
	}
	defer log.Close() //nolint:errcheck // the child has its own copy; ours was never written to

	if c.Grace == 0 {
		c.Grace = DefaultGrace
	}
	cmd := exec.Command(c.Path, c.Args...) //nolint:noctx // a context would kill the child at once; Stop ends it in order
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttributes()
	if err := startFromLastingThread(cmd); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", c.Name, err)
	}

	p := &Process{command: c, cmd: cmd, stopped: make(chan struct{}), died: make(chan struct{})}
	go func() {
		p.exit = cmd.Wait()
		close(p.died)
	}()
	return p, nil
}

// PID of the child, which is also the ID of its process group.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Died is closed once the child has ended, whatever the cause.
func (p *Process) Died() <-chan struct{} { return p.died }

// Err is nil while the child runs and after Stop ended it. If it ended by itself, Err says so with the last lines of its log.
func (p *Process) Err() error {
	select {
	case <-p.died:
	default:
		return nil
	}
	select {
	case <-p.stopped:
		return nil
	default:
	}
	how := "exit status 0"
	if p.exit != nil {
		how = p.exit.Error()
	}
	return fmt.Errorf("%s ended by itself with %s; its log %q ends with: %s", p.command.Name, how, p.command.Log, lastLines(p.command.Log))
}

// Succeeded is true once the child has ended by itself and says that it did what it should.
func (p *Process) Succeeded() bool {
	select {
	case <-p.died:
		return p.exit == nil
	default:
		return false
	}
}

// Stop ends the child and returns when it is gone: first SIGTERM, and SIGKILL to its whole group once the grace is over.
// Stopping twice, or stopping what died, does no harm. An error means that even SIGKILL did not end it.
func (p *Process) Stop() error {
	p.once.Do(func() { close(p.stopped) })
	p.signal(syscall.SIGTERM)
	if p.waitFor(p.command.Grace) {
		return nil
	}
	return p.Kill()
}

// Kill ends the child at once, as a crash or a power cut would.
func (p *Process) Kill() error {
	p.once.Do(func() { close(p.stopped) })
	p.signal(syscall.SIGKILL)
	if p.waitFor(killGrace) {
		return nil
	}
	return fmt.Errorf("cannot kill %s: process %d is still there after SIGKILL", p.command.Name, p.PID())
}

// killGrace is how long the kernel may take to end a killed process on a busy machine.
const killGrace = 10 * time.Second

func (p *Process) waitFor(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.died:
		return true
	case <-timer.C:
		return false
	}
}

// signal reaches the whole group: a child of the child must not outlive it. Once the child has been waited for, its ID may
// belong to somebody else, so nothing is sent any more.
func (p *Process) signal(s syscall.Signal) {
	select {
	case <-p.died:
	default:
		_ = syscall.Kill(-p.PID(), s) // Failing means that it is already gone; the caller waits for died either way.
	}
}

// probeInterval is how often a starting program is asked whether it is ready.
const probeInterval = 50 * time.Millisecond

// await asks ready until it answers nil. It gives up when the child dies, with the child's own words, or when ctx ends, with
// the last answer.
func (p *Process) await(ctx context.Context, ready func(context.Context) error) error {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	last := errors.New("not asked yet")
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not get ready: %w: %w", p.command.Name, ctx.Err(), last)
		case <-p.died:
			if err := p.Err(); err != nil {
				return err
			}
			return fmt.Errorf("%s was stopped before it was ready", p.command.Name)
		case <-ticker.C:
		}
		if last = ready(ctx); last == nil {
			return nil
		}
	}
}

// lastLines is the end of a log on one line, for an error message. Programs say why they end in their last words.
func lastLines(path string) string {
	const size, lines = 4 << 10, 5
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close() //nolint:errcheck // only read from
	if info, err := f.Stat(); err == nil && info.Size() > size {
		if _, err := f.Seek(-size, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	tail, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(string(bytes.TrimSpace(tail)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], " | ")
}
