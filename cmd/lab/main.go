// Command lab builds what tests and the demo need, and runs the demo.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/alecthomas/kingpin/v2"

	"github.com/maesh/provider-ichor/internal/lab"
	"github.com/maesh/provider-ichor/internal/lab/controlplane"
	"github.com/maesh/provider-ichor/internal/lab/tools"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	app := kingpin.New("lab", "Runs provider-ichor with everything around it on loopback.")
	build := app.Command("tools", "Build the external binaries that tests and the demo need, once.")
	demo := app.Command("demo", "Show the main job and check each step of it. Run it from the root of the source tree.")
	keep := demo.Flag("keep", "Leave everything running after the demo, until Ctrl-C.").Bool()
	subnet := demo.Flag("subnet", "A /24 of loopback; the examples are written for the default.").Default("127.10.0.0/24").String()
	scale := demo.Flag("scale", "Factor that divides the waits of simulated machines.").Default("40").Int()
	command, err := app.Parse(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if command == build.FullCommand() {
		return buildTools(ctx)
	}
	return runDemo(ctx, *subnet, *scale, *keep)
}

func buildTools(ctx context.Context) error {
	if _, err := controlplane.EnsureBinaries(ctx, os.Stderr); err != nil {
		return err
	}
	_, err := tools.Ensure(ctx, os.Stderr, tools.Kubectl)
	return err
}

func runDemo(ctx context.Context, subnet string, scale int, keep bool) (err error) {
	prefix, err := netip.ParsePrefix(subnet)
	if err != nil {
		return fmt.Errorf("cannot read --subnet: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find my own directory: %w", err)
	}
	l, err := lab.Start(ctx, lab.Options{Root: ".", Bin: filepath.Dir(self), Machines: 5, Subnet: prefix, Scale: scale, Out: os.Stdout})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Stop()) }()
	err = lab.RunDemo(ctx, l, os.Stdout)
	if keep {
		fmt.Printf("kept: export KUBECONFIG=%s; logs in %s; Ctrl-C ends it\n", l.Kubeconfig, l.Dir)
		<-ctx.Done()
	}
	return err
}
