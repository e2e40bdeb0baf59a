package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// envSweep makes the test binary a lab that has a directory, the value, and runs until it is killed.
const envSweep = "ICHOR_TEST_SWEEP"

func TestMain(m *testing.M) {
	if dir := os.Getenv(envSweep); dir != "" {
		if _, err := sweepLater(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("ready")
		select {}
	}
	os.Exit(m.Run())
}

// full is a directory with something in it.
func full(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "lab")
	if err := os.MkdirAll(filepath.Join(dir, "machines"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "machines", "key"), []byte("key"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func gone(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%q is still there (%w)", dir, err)
	}
	return nil
}

func TestSweepAfterKill(t *testing.T) {
	dir := full(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), envSweep+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the lab says %q, error %v", line, err)
	}
	if gone(dir) == nil {
		t.Fatal("the directory is gone while the lab runs")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // It was killed.
	if err := Await(t.Context(), "the directory is gone", 20*time.Second, func(context.Context) error { return gone(dir) }); err != nil {
		t.Error(err)
	}
}

func TestSweepNow(t *testing.T) {
	dir := full(t)
	swept, err := sweepLater(dir)
	if err != nil {
		t.Fatal(err)
	}
	if gone(dir) == nil {
		t.Fatal("the directory is gone too early")
	}
	if err := errors.Join(swept(), gone(dir)); err != nil {
		t.Error(err)
	}
}

func TestKeepLogs(t *testing.T) {
	l := &Lab{Dir: full(t), o: Options{Logs: filepath.Join(t.TempDir(), "logs")}}
	for name, text := range map[string]string{"provider.log": "a secret", "machines/m1/etcd.log": "nothing", "kubeconfig": "a secret"} {
		path := filepath.Join(l.Dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := l.KeepLogs(func(text string) string { return strings.ReplaceAll(text, "secret", "(hidden)") })
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got[e.Name()] = string(text)
	}
	want := map[string]string{"provider.log": "a (hidden)", "machines-m1-etcd.log": "nothing"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestAwait(t *testing.T) {
	asked := 0
	err := Await(t.Context(), "it is asked twice", time.Minute, func(context.Context) error {
		if asked++; asked < 2 {
			return errors.New("once")
		}
		return nil
	})
	if err != nil || asked != 2 {
		t.Errorf("error %v after %d questions", err, asked)
	}
	no := errors.New("no")
	err = Await(t.Context(), "yes", time.Second, func(ctx context.Context) error {
		if asked++; asked < 4 {
			return no
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, no) || !strings.Contains(err.Error(), "waited 1s in vain until yes") {
		t.Errorf("error %v, want what was waited for and the last answer", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Await(ctx, "yes", time.Minute, func(context.Context) error { return no }); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}
