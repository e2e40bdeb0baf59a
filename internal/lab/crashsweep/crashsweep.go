// Package crashsweep kills the provider right after each of its writes, to Kubernetes or to a machine, and lets a new one go
// on: the real binary, a real API server in front of it and real etcd members inside of the machines. What comes of it is
// judged from outside. It must never take the product's word for what the world can be asked.
package crashsweep

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/maesh/provider-ichor/internal/lab"
)

// machineCount is how many machines a sweep needs: one is to spare.
const machineCount = declared + workers + 1

// Options of a sweep.
type Options struct {
	// Jobs are swept side by side, in each of the Variants; Jobs() and Variants() have their names.
	Jobs, Variants []string
	// Every n-th write is one to be killed after, from Offset on; 0 is each, from the first.
	Every, Offset int
	// Limit is about how long each variant may be swept, at least one point of each job; 0 has no end. It makes Every as large as it
	// has to be.
	Limit time.Duration
	// Labs is how many labs share the writes; 0 is one. Most of a sweep is waiting.
	Labs int
	// Lab is what the sweep runs on, besides what it sets itself.
	Lab lab.Options
	// Subnet is where the machines are, a /24. Further labs have those that follow.
	Subnet netip.Prefix
	// Out gets a line for each point.
	Out io.Writer

	// lab is the number of the lab, from 0 on.
	lab int
}

// A Report is what a sweep came to.
type Report struct {
	Jobs []JobReport
	// Looks is how often etcd was looked at.
	Looks int
}

// A JobReport is what the sweep of one job in one variant came to.
type JobReport struct {
	Name, Variant string
	// Writes is the most that a run of the job took, and Points how many of them were followed by a kill.
	Writes, Points int
	// Violations are what did not hold in the end.
	Violations []string
}

// Points are those of all jobs.
func (r Report) Points() int {
	n := 0
	for _, j := range r.Jobs {
		n += j.Points
	}
	return n
}

// Violations are those of all jobs.
func (r Report) Violations() []string {
	var out []string
	for _, j := range r.Jobs {
		for _, v := range j.Violations {
			out = append(out, fmt.Sprintf("%s, %s: %s", j.Name, j.Variant, v))
		}
	}
	return out
}

// add what another lab found of the same jobs.
func (r *Report) add(other Report) {
	r.Looks += other.Looks
	for _, o := range other.Jobs {
		i := slices.IndexFunc(r.Jobs, func(j JobReport) bool { return j.Name == o.Name && j.Variant == o.Variant })
		if i < 0 {
			r.Jobs = append(r.Jobs, o)
			continue
		}
		j := &r.Jobs[i]
		j.Writes, j.Points, j.Violations = max(j.Writes, o.Writes), j.Points+o.Points, append(j.Violations, o.Violations...)
	}
}

// Run sweeps. An error says that it could not be run; what did not hold is in the report, and ends the lab that it was seen in.
func Run(ctx context.Context, o Options) (Report, error) {
	if err := o.check(); err != nil {
		return Report{}, err
	}
	shares := o.shares()
	reports, errs := make([]Report, len(shares)), make([]error, len(shares))
	var all sync.WaitGroup
	for i, share := range shares {
		all.Go(func() {
			if reports[i], errs[i] = runLab(ctx, share); errs[i] != nil {
				_, _ = fmt.Fprintf(share.Out, "ends early: %v\n", errs[i]) // The others go on for hours.
			}
		})
	}
	all.Wait()
	var found Report
	for _, r := range reports {
		found.add(r)
	}
	return found, errors.Join(errs...)
}

func (o Options) check() error {
	for _, list := range []struct {
		what         string
		given, there []string
	}{{"job", o.Jobs, Jobs()}, {"variant", o.Variants, Variants()}} {
		if len(list.given) == 0 {
			return fmt.Errorf("no %s was given; there are %s", list.what, strings.Join(list.there, ", "))
		}
		for _, name := range list.given {
			if !slices.Contains(list.there, name) {
				return fmt.Errorf("there is no %s %q; there are %s", list.what, name, strings.Join(list.there, ", "))
			}
		}
	}
	return nil
}

// shares deals the writes out to the labs, in turn.
func (o Options) shares() []Options {
	n, every, offset := max(o.Labs, 1), max(o.Every, 1), max(o.Offset, 1)
	out := make([]Options, n)
	subnet, mu := o.Subnet, &sync.Mutex{}
	for i := range out {
		out[i] = o
		out[i].lab = i
		out[i].Every, out[i].Offset, out[i].Subnet = every*n, offset+every*i, subnet
		if n > 1 {
			out[i].Lab.Logs = filepath.Join(o.Lab.Logs, fmt.Sprintf("lab-%d", i+1))
			out[i].Out = named{name: fmt.Sprintf("lab %d: ", i+1), mu: mu, to: o.Out}
			out[i].Lab.Out = out[i].Out
		}
		a := subnet.Addr().As4()
		a[2]++
		subnet = netip.PrefixFrom(netip.AddrFrom4(a), subnet.Bits())
	}
	return out
}

// A named puts the name of a lab before each line, of which one is written at a time.
type named struct {
	name string
	mu   *sync.Mutex
	to   io.Writer
}

func (n named) Write(line []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, err := io.WriteString(n.to, n.name); err != nil {
		return 0, err
	}
	return n.to.Write(line)
}
