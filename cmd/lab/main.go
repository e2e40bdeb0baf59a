// Command lab builds what tests and the demo need, and runs what shows, measures and proves the product on a lab.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/maesh/provider-ichor/internal/bench"
	"github.com/maesh/provider-ichor/internal/commandline"
	"github.com/maesh/provider-ichor/internal/lab"
	"github.com/maesh/provider-ichor/internal/lab/controlplane"
	"github.com/maesh/provider-ichor/internal/lab/crashsweep"
	story "github.com/maesh/provider-ichor/internal/lab/demo"
	"github.com/maesh/provider-ichor/internal/lab/prove"
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
	short := demo.Flag("short", "Show the main road only: up, refusals, one replacement, down.").Bool()
	only := demo.Flag("only", "Show this chapter only, besides up and down: "+strings.Join(story.Chapters(), ", ")+". May be repeated.").Enums(story.Chapters()...)
	end := app.Command("e2e", "Install the packages on real Crossplane and check what a user of claims sees. Run it from the root of the source tree.")
	road := end.Flag("short", "Tell the main road only: installed, claimed, one replacement, down.").Bool()
	measure := app.Command("bench", "Measure what the provider costs, and print tables. Run it from the root of the source tree.")
	sizes := measure.Flag("sizes", "Numbers of machines to measure at, separated by commas.").Default("10,100,500").String()
	settle := measure.Flag("settle", "How long nothing is measured after the last machine became ready.").Default("2m").Duration()
	window := measure.Flag("window", "How long is measured at each size.").Default("2m").Duration()
	campaign := app.Command("soak", "Run random campaigns of requests and faults while a monitor looks on. Run it from the root of the source tree.")
	seed := campaign.Flag("seed", "Seed of the first campaign; each further one has the next. 0 is a random one.").Default("0").Uint64()
	minutes := campaign.Flag("minutes", "How long.").Default("10").Int()
	tries := campaign.Flag("tries", "How often a campaign that broke a rule is run again to make it shorter.").Default("8").Int()
	onlyEvents := campaign.Flag("only", "Number of an event to do; may be repeated. Default: all. Later campaigns are left out.").Ints()
	campaignSubnet := campaign.Flag("subnet", "A /24 of loopback for the machines.").Default("127.10.0.0/24").String()
	crashes := app.Command("crashsweep", "Kill the provider right after each of its writes, on real parts, and let another one go on. Run it from the root of the source tree.")
	jobs := crashes.Flag("job", "What is swept: "+strings.Join(crashsweep.Jobs(), ", ")+". May be repeated. Default: all.").Default(crashsweep.Jobs()...).Enums(crashsweep.Jobs()...)
	variants := crashes.Flag("variant", "What happens besides the kill: "+strings.Join(crashsweep.Variants(), ", ")+". May be repeated. Default: all.").Default(crashsweep.Variants()...).Enums(crashsweep.Variants()...)
	labs := crashes.Flag("labs", "How many labs share the writes. Each has a core busy for a third of the time, and needs 2 GiB.").Default("1").Int()
	sweepAt := crashes.Flag("subnet", "A /24 of loopback for the machines of the first lab; those of the others follow.").Default(sweepSubnet).String()
	every := crashes.Flag("every", "Kill after every n-th write only.").Default("1").Int()
	offset := crashes.Flag("offset", "The first write to kill after.").Default("1").Int()
	bound := crashes.Flag("limit", "About how long each variant is swept; it leaves out as many writes as it has to. 0 has no end.").Default("0").Duration()
	proof := app.Command("prove", "Run what proves the product, and print one table. Run it from the root of the source tree.")
	depth := proof.Flag("depth", "How far the model check goes: full takes minutes and 4 GiB.").Default("full").Enum("short", "full")
	sweeping := proof.Flag("sweep", "About how long the crash sweep on real parts may take.").Default("6m").Duration()
	commandline.NameFlags(app)
	command, err := app.Parse(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	switch command {
	case build.FullCommand():
		return buildTools(ctx)
	case end.FullCommand():
		return runE2E(ctx, *road)
	case measure.FullCommand():
		return runBench(ctx, *sizes, bench.Options{Settle: *settle, Window: *window, Scale: benchScale, Out: os.Stdout})
	case proof.FullCommand():
		return prove.Run(ctx, prove.Options{Root: ".", Depth: *depth, Out: os.Stdout, Sweep: func(ctx context.Context) (crashsweep.Report, error) {
			return runCrashSweep(ctx, crashsweep.Options{Subnet: netip.MustParsePrefix(sweepSubnet), Jobs: crashsweep.Jobs(), Variants: []string{crashsweep.Plain}, Labs: sweepLabs, Limit: *sweeping})
		}})
	case crashes.FullCommand():
		at, err := netip.ParsePrefix(*sweepAt)
		if err != nil {
			return fmt.Errorf("cannot read --subnet: %w", err)
		}
		return sweepAlone(ctx, crashsweep.Options{Subnet: at, Jobs: *jobs, Variants: *variants, Labs: *labs, Every: *every, Offset: *offset, Limit: *bound})
	case campaign.FullCommand():
		at, err := netip.ParsePrefix(*campaignSubnet)
		if err != nil {
			return fmt.Errorf("cannot read --subnet: %w", err)
		}
		if *minutes < 1 {
			return fmt.Errorf("--minutes=%d is no time to do anything in: at least one", *minutes)
		}
		return runSoak(ctx, soakOptions{seed: *seed, length: time.Duration(*minutes) * time.Minute, tries: *tries, only: *onlyEvents, subnet: at})
	}
	if *short {
		*only = append(*only, story.Short()...)
	}
	return runDemo(ctx, lab.Options{Machines: story.Machines, Scale: *scale}, *subnet, *only, *keep)
}

func buildTools(ctx context.Context) error {
	if _, err := controlplane.EnsureBinaries(ctx, os.Stderr); err != nil {
		return err
	}
	_, err := tools.Ensure(ctx, os.Stderr, tools.Kubectl, tools.Crossplane, tools.CrossplaneCLI, tools.KustomizeController)
	return err
}

func runDemo(ctx context.Context, o lab.Options, subnet string, only []string, keep bool) (err error) {
	if o.Subnet, err = netip.ParsePrefix(subnet); err != nil {
		return fmt.Errorf("cannot read --subnet: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find my own directory: %w", err)
	}
	o.Root, o.Bin, o.Logs, o.Out = ".", filepath.Dir(self), filepath.Join(".cache", "demo-logs"), os.Stdout
	l, err := lab.Start(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Stop()) }()
	err = story.Run(ctx, l, story.Options{Only: only, Out: os.Stdout})
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if keep {
		fmt.Printf("kept: export KUBECONFIG=%s; logs in %s; Ctrl-C ends it\n", l.Kubeconfig, l.Dir)
		<-ctx.Done()
	}
	return err
}

// benchScale divides the waits of simulated machines in a bench, as in the demo.
const benchScale = 40

func runBench(ctx context.Context, sizes string, o bench.Options) (err error) {
	for text := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return fmt.Errorf("cannot read --sizes: %q is not a number", text)
		}
		o.Sizes = append(o.Sizes, n)
	}
	if err := o.Check(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find my own directory: %w", err)
	}
	l, err := lab.Start(ctx, lab.Options{
		Root: ".", Bin: filepath.Dir(self), Machines: o.Machines(), Subnet: netip.MustParsePrefix(bench.Subnet), Scale: o.Scale,
		Light: true, Poll: bench.Poll, Out: os.Stdout,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Stop()) }()
	return bench.Run(ctx, l, o)
}
