package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/maesh/provider-ichor/internal/lab"
	"github.com/maesh/provider-ichor/internal/lab/crashsweep"
)

const (
	// sweepScale divides the waits of simulated machines in a crash sweep, as in the demo.
	sweepScale = 40
	// sweepLabs share the writes in a proof: two cores have more labs than that wait for each other.
	sweepLabs = 3
	// sweepSubnet is where its machines are: not where those of the demo are.
	sweepSubnet = "127.10.9.0/24"
)

// runCrashSweep kills the provider after its writes, on a lab of its own.
func runCrashSweep(ctx context.Context, o crashsweep.Options) (crashsweep.Report, error) {
	self, err := os.Executable()
	if err != nil {
		return crashsweep.Report{}, fmt.Errorf("cannot find my own directory: %w", err)
	}
	o.Out = os.Stdout
	o.Lab = lab.Options{Root: ".", Bin: filepath.Dir(self), Scale: sweepScale, Logs: filepath.Join(".cache", "crashsweep-logs"), Out: os.Stdout}
	r, err := crashsweep.Run(ctx, o)
	if ctx.Err() != nil {
		return r, errors.New("interrupted")
	}
	return r, err
}

func sweepAlone(ctx context.Context, o crashsweep.Options) error {
	r, err := runCrashSweep(ctx, o)
	fmt.Printf("%d crash points, %d looks at etcd, %d violations\n", r.Points(), r.Looks, len(r.Violations()))
	if err != nil {
		return err
	}
	if v := r.Violations(); len(v) > 0 {
		return errors.New(strings.Join(v, "; "))
	}
	return nil
}
