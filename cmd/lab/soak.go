package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/maesh/provider-ichor/internal/lab"
	"github.com/maesh/provider-ichor/internal/lab/soak"
)

const (
	// soakScale divides the waits of simulated machines in a campaign, as in the demo.
	soakScale = 40
	// perPlan is how long one campaign is: a cluster that is soaked for long is a few, each begun anew with a seed of its own.
	perPlan = 10 * time.Minute
)

// soakOptions are what a person asks of campaigns.
type soakOptions struct {
	seed   uint64
	length time.Duration
	tries  int
	// only are the numbers of the events to be done, of the first campaign; none means all.
	only   []int
	subnet netip.Prefix
}

// runSoak runs campaigns for some time. The first has the given seed, or a random one, and each further one the next. One that
// breaks a rule is shrunk and ends it all.
func runSoak(ctx context.Context, o soakOptions) error {
	if o.seed == 0 {
		o.seed = uint64(rand.Uint32()) + 1 //nolint:gosec // Nobody has to guess it.
	}
	var all soak.Tally
	defer func() { fmt.Printf("\nall campaigns:\n%s", all) }()
	for begun := time.Now(); ; o.seed++ {
		left := o.length - time.Since(begun)
		if left <= 0 {
			return all.Proof()
		}
		minutes := math.Ceil(min(left, perPlan).Minutes())
		p := soak.NewPlan(o.seed, time.Duration(minutes)*time.Minute)
		if len(o.only) > 0 {
			p = p.Only(o.only)
		}
		fmt.Printf("seed %d: %d control planes, %d events; again with: make soak SEED=%d MINUTES=%.0f\n", p.Seed, p.Size, len(p.Events), p.Seed, minutes)
		r, err := soakOnce(ctx, o.subnet, p)
		fmt.Printf("\nseed %d:\n%s\n", p.Seed, r)
		all.Add(r.Tally)
		if err != nil {
			return fmt.Errorf("seed %d: %w", p.Seed, err)
		}
		if len(r.Found) > 0 {
			shrinkPlan(ctx, o, minutes, r)
			return fmt.Errorf("seed %d broke a rule: %s", p.Seed, r.Found[0])
		}
		if len(o.only) > 0 {
			return nil
		}
	}
}

// shrinkPlan prints the story of the shortest plan that is found to break the same rule.
func shrinkPlan(ctx context.Context, o soakOptions, minutes float64, r soak.Report) {
	p, rule := r.Plan, r.Found[0].Rule
	p.Events = slices.DeleteFunc(slices.Clone(p.Events), func(e soak.Event) bool { return e.Number > r.Broken })
	p = soak.Shrink(p, o.tries, r.Guesses(), func(p soak.Plan) bool {
		if ctx.Err() != nil {
			return false
		}
		fmt.Printf("\nagain with %d events:\n", len(p.Events))
		again, err := soakOnce(ctx, o.subnet, p)
		if err != nil {
			fmt.Printf("that could not be run: %v\n", err)
			return false
		}
		broken := slices.ContainsFunc(again.Found, func(v soak.Violation) bool { return v.Rule == rule })
		if broken {
			r = again
		}
		return broken
	})
	numbers := make([]string, 0, len(p.Events))
	for _, e := range p.Events {
		numbers = append(numbers, strconv.Itoa(e.Number))
	}
	fmt.Printf("\nThe story, with %d control planes and these %d events of seed %d:\n", p.Size, len(p.Events), p.Seed)
	for _, line := range r.Story {
		fmt.Println("  " + line)
	}
	fmt.Printf("again with: make soak SEED=%d MINUTES=%.0f SOAK_FLAGS='--only %s'\n", p.Seed, minutes, strings.Join(numbers, " --only "))
}

// soakOnce runs one plan on a lab of its own. The logs of one that did not do what it should are kept.
func soakOnce(ctx context.Context, subnet netip.Prefix, p soak.Plan) (r soak.Report, err error) {
	self, err := os.Executable()
	if err != nil {
		return r, fmt.Errorf("cannot find my own directory: %w", err)
	}
	l, err := lab.Start(ctx, lab.Options{
		Root: ".", Bin: filepath.Dir(self), Machines: p.Machines(), Subnet: subnet, Scale: soakScale,
		Logs: filepath.Join(".cache", "soak-logs", fmt.Sprintf("%d-%d", p.Seed, len(p.Events))), Out: os.Stdout,
	})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, l.Stop()) }()
	r, err = soak.Run(ctx, l, p, os.Stdout)
	if ctx.Err() != nil {
		return r, errors.New("interrupted")
	}
	if r.Logs != "" {
		fmt.Printf("the logs are in %s\n", r.Logs)
	}
	return r, err
}
