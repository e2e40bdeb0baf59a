package bench

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// isControlPlane tells a control plane by the name of its simulated machine.
func (b *bench) isControlPlane(machine string) bool { return b.planes[machine] }

// report prints what was measured.
func (b *bench) report() error {
	w := tabwriter.NewWriter(b.o.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(b.o.Out, "\n%s\n", b.heading())
	if len(b.samples) > 0 {
		fmt.Fprintln(b.o.Out, "\nAt rest, a minute:")
		fmt.Fprintln(w, "machines\tRSS MiB\tCPU s\tRPCs\tmutating\tobject writes\tchanges\tevents\tobject reads\t")
		for _, s := range b.samples {
			fmt.Fprintf(w, "%d\t%d\t%.1f\t%.0f\t%.0f\t%.0f\t%.1f\t%.1f\t%.0f\t\n", s.machines, s.resident>>20, s.perMinute(s.cpu),
				s.perMinute(float64(s.rpcs.controlPlanes+s.rpcs.workers)), s.perMinute(float64(s.rpcs.mutating)),
				s.perMinute(s.writes), s.perMinute(float64(s.changes)), s.perMinute(s.events), s.perMinute(s.reads))
		}
		if err := w.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(b.o.Out, "\nCalls to machines (a pass is one Observe; an overview is read once for a whole cluster):")
		fmt.Fprintln(w, "machines\tper worker and pass\tper control plane and pass\toverviews a poll\tconnections a machine\t")
		for _, s := range b.samples {
			fmt.Fprintf(w, "%d\t%s\t%s\t%.1f\t%d\t\n", s.machines, ratio(s.rpcs.workers, s.rpcs.workerPasses),
				ratio(s.rpcs.controlPlanes, s.rpcs.controlPlanePasses),
				s.perMinute(float64(s.rpcs.overviews)/controlPlanes)*Poll.Minutes(), s.rpcs.connections)
		}
		if err := w.Flush(); err != nil {
			return err
		}
		b.slopes()
	}
	for _, r := range b.removals {
		fmt.Fprintf(b.o.Out, "\nRemoval of a %s: %s from the delete to the end of the finalizer\n", r.what, r.total.Round(100*time.Millisecond))
		for _, s := range r.steps {
			fmt.Fprintf(w, "%s\t%s\t  %s\n", s.took.Round(100*time.Millisecond), s.name, bar(s.took, r.total))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// slopes says what one more machine costs, between one size and the next.
func (b *bench) slopes() {
	for i := 1; i < len(b.samples); i++ {
		a, c := b.samples[i-1], b.samples[i]
		more := float64(c.machines - a.machines)
		fmt.Fprintf(b.o.Out, "each machine more, from %d to %d: %.2f RPCs/min, %.0f KiB resident, %.3f s CPU/min\n", a.machines, c.machines,
			(c.perMinute(float64(c.rpcs.controlPlanes+c.rpcs.workers))-a.perMinute(float64(a.rpcs.controlPlanes+a.rpcs.workers)))/more,
			float64(c.resident-a.resident)/1024/more, (c.perMinute(c.cpu)-a.perMinute(a.cpu))/more)
	}
}

func (s sample) perMinute(n float64) float64 { return n / s.window.Minutes() }

// ratio of two counts, or a dash if there is none.
func ratio(n, of int) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(n)/float64(of))
}

const barLength = 40

// bar draws a part of a whole.
func bar(part, whole time.Duration) string {
	return strings.Repeat("#", int(part*barLength/max(whole, 1)))
}
