package controlplane

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"
)

// binaries are built before the first test, so that no test's deadline pays for a compiler.
var binaries Binaries

// orphanDir makes the test binary play a parent that is killed; see TestChildrenDieWithTheirParent.
const orphanDir = "CONTROLPLANE_TEST_ORPHAN_DIR"

func TestMain(m *testing.M) {
	var err error
	if binaries, err = EnsureBinaries(context.Background(), os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if dir := os.Getenv(orphanDir); dir != "" {
		playParent(dir)
	}
	os.Exit(m.Run())
}

// within polls until ok, and fails the test if that takes longer than any busy machine should need.
func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("waited too long until %s", what)
		}
	}
}
