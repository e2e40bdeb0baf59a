package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/maesh/provider-ichor/internal/simulator/control"
)

// A lineWriter tells each line that was written, in order.
type lineWriter struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	lines chan string
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Write(p)
	for {
		line, err := w.buf.ReadString('\n')
		if err != nil {
			w.buf.WriteString(line)
			return len(p), nil
		}
		w.lines <- strings.TrimSpace(line)
	}
}

func TestServeAndCommands(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	serving, stop := context.WithCancel(ctx)
	out := &lineWriter{lines: make(chan string, 100)}
	ended := make(chan error, 1)
	go func() {
		ended <- run(serving, []string{"--control=127.0.0.1:0", "--machines=2", "--subnet=127.19.8.0/24", "--scale=60", "--quiet"}, out, io.Discard)
	}()
	address := ""
	for address == "" {
		select {
		case line := <-out.lines:
			address = strings.TrimPrefix(line, "control http://")
			if address == line {
				address = ""
			}
		case err := <-ended:
			t.Fatal(err)
		}
	}
	call := func(args ...string) string {
		t.Helper()
		stdout := &bytes.Buffer{}
		if err := run(ctx, append([]string{"--control=" + address}, args...), stdout, io.Discard); err != nil {
			t.Fatal(err)
		}
		return stdout.String()
	}
	call("fault", "m2", "api-down", "on")
	call("power", "m1", "off")
	table := call("machines")
	if !strings.Contains(table, "m1    127.19.8.11  off") || !strings.Contains(table, "api-down") {
		t.Errorf("machines:\n%s", table)
	}
	if got := call("rpcs", "--mutating"); got != "" {
		t.Errorf("calls:\n%s", got)
	}
	if got := call("faults"); !strings.Contains(got, "wipe-fails") {
		t.Errorf("faults:\n%s", got)
	}
	if err := (&control.Client{Address: address}).Healthy(ctx); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", address); err == nil {
		_ = conn.Close()
		t.Error("the control API outlives the command")
	}
}

func TestBadCommandLines(t *testing.T) {
	for _, tc := range []struct {
		args string
		text string
	}{
		{"--subnet=10.0.0.0/24 --control=127.0.0.1:0", "is not within 127.0.0.0/8"},
		{"--subnet=x --control=127.0.0.1:0", "cannot read --subnet"},
		{"--scale=0 --control=127.0.0.1:0", "--scale is 0"},
		{"--machines=-1 --control=127.0.0.1:0", "--machines is -1"},
		{"--control=192.0.2.1:1", "must be a loopback address"},
		{"--nope", "unknown long flag"},
		{"fault m1 api-down maybe", "on,off"},
	} {
		err := run(t.Context(), strings.Fields(tc.args), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: error %v, want %q", tc.args, err, tc.text)
		}
	}
}

// TestHelp wants help to be no failure, also that of the command that is the default.
func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"serve", "--help"}, {"faults", "--help"}} {
		told := &bytes.Buffer{}
		if err := run(t.Context(), args, io.Discard, told); err != nil || !strings.Contains(told.String(), "usage: talossim") {
			t.Errorf("%q: error %v, told %q", args, err, told.String())
		}
	}
}
