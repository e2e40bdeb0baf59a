package controlplane

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func shell(t *testing.T, script string, grace time.Duration) *Process {
	t.Helper()
	p, err := StartProcess(Command{
		Name: "toy", Path: "/bin/sh", Args: []string{"-c", script}, Log: filepath.Join(t.TempDir(), "log", "toy.log"), Grace: grace,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// exists says whether a process is there and not merely a zombie that its new parent has yet to collect.
func exists(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func TestProcessThatDiesSaysWhy(t *testing.T) {
	p := shell(t, "echo first; echo the disk is on fire >&2; exit 3", 0)
	<-p.Died()
	err := p.Err()
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "first | the disk is on fire") {
		t.Errorf("got %v", err)
	}
}

func TestStoppedProcessIsNoError(t *testing.T) {
	p := shell(t, "sleep 1000", 0)
	if err := p.Err(); err != nil {
		t.Errorf("while it runs: %v", err)
	}
	for range 2 {
		if err := p.Stop(); err != nil {
			t.Errorf("Stop: %v", err)
		}
	}
	if err := p.Err(); err != nil {
		t.Errorf("after Stop: %v", err)
	}
	if exists(p.PID()) {
		t.Error("it is still there")
	}
}

func TestStopKillsWhatIgnoresSIGTERM(t *testing.T) {
	dir := t.TempDir()
	ready := filepath.Join(dir, "grandchild")
	p := shell(t, "trap '' TERM; sleep 1000 & echo $! > "+ready+".tmp && mv "+ready+".tmp "+ready+"; while :; do wait; done", 50*time.Millisecond)
	within(t, "the grandchild runs", func() bool { _, err := os.Stat(ready); return err == nil })
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(ready)
	if err != nil {
		t.Fatal(err)
	}
	grandchild, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		t.Fatal(err)
	}
	within(t, "child and grandchild are gone", func() bool { return !exists(p.PID()) && !exists(grandchild) })
}

// playParent starts a child as the product does, says so, and waits to be killed.
func playParent(dir string) {
	p, err := StartProcess(Command{Name: "orphan", Path: "/bin/sleep", Args: []string{"1000"}, Log: filepath.Join(dir, "log")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(p.PID())
	select {}
}

func TestChildrenDieWithTheirParent(t *testing.T) {
	parent := exec.Command(os.Args[0]) // this very test binary
	parent.Env = append(os.Environ(), orphanDir+"="+t.TempDir())
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err := fmt.Fscan(out, &child); err != nil {
		t.Fatal(err)
	}
	if !exists(child) {
		t.Fatalf("child %d does not run", child)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // It was killed, and says so.
	within(t, "the child is gone", func() bool { return !exists(child) })
}

func TestReservedPortIsGivenOnce(t *testing.T) {
	seen := map[uint16]bool{}
	for range 50 {
		p, err := ReservePort()
		if err != nil {
			t.Fatal(err)
		}
		defer p.Release()
		if seen[p.Number] {
			t.Fatalf("port %d was given twice", p.Number)
		}
		seen[p.Number] = true
		l, err := net.Listen("tcp", p.Loopback().String())
		if err != nil {
			t.Fatalf("a reserved port cannot be used: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestChildOutlivesTheThreadThatAskedForIt(t *testing.T) {
	var p *Process
	onDoomedThread(func() { p = shell(t, "echo up; exec sleep 1000", 0) })
	// Had the thread's end been the child's, it would have come within milliseconds; a second is plenty.
	if p.waitFor(time.Second) {
		t.Errorf("the child ended with the thread: %v", p.Err())
	}
}

// onDoomedThread runs f on a thread that ends right after.
func onDoomedThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// A goroutine that ends while locked to its thread takes the thread with it, but for the first thread of a process.
		runtime.LockOSThread()
		if syscall.Gettid() == os.Getpid() {
			defer runtime.UnlockOSThread()
			onDoomedThread(f)
			return
		}
		f()
	}()
	<-done
}
