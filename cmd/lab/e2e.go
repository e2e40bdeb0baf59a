package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/maesh/provider-ichor/internal/lab"
	"github.com/maesh/provider-ichor/internal/lab/e2e"
)

// e2eScale divides the waits of simulated machines, as in the demo.
const e2eScale = 40

// runE2E uses the addresses of the examples, as the demo does.
func runE2E(ctx context.Context, short bool) (err error) {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find my own directory: %w", err)
	}
	l, err := lab.Start(ctx, lab.Options{
		Root: ".", Bin: filepath.Dir(self), Machines: e2e.Machines, Subnet: netip.MustParsePrefix("127.10.0.0/24"), Scale: e2eScale,
		Logs: filepath.Join(".cache", "e2e-logs"), Bare: true, Out: os.Stdout,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Stop()) }()
	err = e2e.Run(ctx, l, e2e.Options{Short: short, Out: os.Stdout})
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}
