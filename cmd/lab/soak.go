package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/maesh/provider-ichor/internal/lab"
	"github.com/maesh/provider-ichor/internal/lab/soak"
)

const (
	// soakScale divides the waits of simulated machines in a campaign, as in the demo.
	soakScale = 40
	// soakSubnet is where the machines of a campaign are.
	soakSubnet = "127.10.0.0/24"
	// perPlan is how long one campaign is: a cluster that is soaked for long is a few, each begun anew with a seed of its own.
	perPlan = 10 * time.Minute
)

// runSoak runs campaigns for some time. The first has the given seed, or a random one, and each further one the next. One that
// breaks a rule is shrunk and ends it all.
func runSoak(ctx context.Context, seed uint64, length time.Duration, tries int) error {
	if seed == 0 {
		seed = uint64(rand.Uint32()) + 1 //nolint:gosec // Nobody has to guess it.
	}
	for begun := time.Now(); ; seed++ {
		left := length - time.Since(begun)
		if left <= 0 {
			return nil
		}
		p := soak.NewPlan(seed, min(left, perPlan))
		fmt.Printf("seed %d: %d control planes, %d events in %s; again with: make soak SEED=%d MINUTES=%.0f\n",
			p.Seed, p.Size, len(p.Events), min(left, perPlan).Round(time.Second), p.Seed, min(left, perPlan).Minutes())
		r, err := soakOnce(ctx, p)
		fmt.Printf("\nseed %d:\n%s\n", p.Seed, r)
		if err != nil {
			return fmt.Errorf("seed %d: %w", p.Seed, err)
		}
		if len(r.Violations) > 0 {
			shrinkPlan(ctx, r, tries)
			return fmt.Errorf("seed %d broke a rule: %s", p.Seed, r.Violations[0])
		}
	}
}

// shrinkPlan prints the shortest plan that is found to break a rule.
func shrinkPlan(ctx context.Context, r soak.Report, tries int) {
	p := r.Plan
	p.Events = p.Events[:min(r.Broken, len(p.Events))]
	p = soak.Shrink(p, tries, func(p soak.Plan) bool {
		if ctx.Err() != nil {
			return false
		}
		fmt.Printf("\nagain with %d events:\n", len(p.Events))
		r, err := soakOnce(ctx, p)
		return err == nil && len(r.Violations) > 0
	})
	fmt.Printf("\nseed %d breaks a rule with these events:\n", p.Seed)
	for _, e := range p.Events {
		fmt.Printf("  %s  #%d %s\n", e.At, e.Number, e)
	}
}

// soakOnce runs one plan on a lab of its own.
func soakOnce(ctx context.Context, p soak.Plan) (r soak.Report, err error) {
	self, err := os.Executable()
	if err != nil {
		return r, fmt.Errorf("cannot find my own directory: %w", err)
	}
	l, err := lab.Start(ctx, lab.Options{
		Root: ".", Bin: filepath.Dir(self), Machines: p.Machines(), Subnet: netip.MustParsePrefix(soakSubnet), Scale: soakScale,
		Logs: filepath.Join(".cache", "soak-logs"), Out: os.Stdout,
	})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, l.Stop()) }()
	r, err = soak.Run(ctx, l, p, os.Stdout)
	if ctx.Err() != nil {
		return r, errors.New("interrupted")
	}
	return r, err
}
