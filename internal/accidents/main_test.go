package accidents

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/maesh/provider-ichor/internal/lab/controlplane"
	"github.com/maesh/provider-ichor/internal/lab/tools"
)

// rewrite writes down what people are told now. Commit that only if you understand what changed and if it reads well.
var rewrite = flag.Bool("rewrite", false, "write down what is said now in testdata")

// The programs are built before the first test, so that no test's deadline pays for a compiler.
var (
	binaries controlplane.Binaries
	kubectl  string
)

func TestMain(m *testing.M) {
	if err := ensureTools(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func ensureTools(ctx context.Context) (err error) {
	if binaries, err = controlplane.EnsureBinaries(ctx, os.Stderr); err != nil {
		return err
	}
	paths, err := tools.Ensure(ctx, os.Stderr, tools.Kubectl)
	kubectl = paths[tools.Kubectl.Name]
	return err
}
