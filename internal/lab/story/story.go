// Package story holds what the stories that are shown on a lab have in common: checks that are told one after another, and
// looks at machines, Nodes and objects from outside
// of the product. It must never ask anybody to change anything.
package story

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// A Check is one promise that is shown: what it says, and whether it holds.
type Check struct {
	Says string
	Hold func(context.Context) error
}

// Tell runs checks one after another until one does not hold, and counts those that did, under the name of the story. What
// failed is told in one line. An interrupt is no failure of a check: the error is ctx's then.
func Tell(ctx context.Context, name string, checks []Check, out io.Writer) error {
	held, began := 0, time.Now()
	var failed error
	for _, c := range checks {
		from := time.Now()
		if err := c.Hold(ctx); err != nil {
			failed = errors.New("a check did not hold")
			if ctx.Err() != nil {
				failed = ctx.Err()
				break
			}
			Sayf(out, "FAIL  %s: %s\n", c.Says, strings.ReplaceAll(err.Error(), "\n", "; "))
			break
		}
		held++
		Sayf(out, "ok    %s (%s)\n", c.Says, since(from))
	}
	Sayf(out, "%s: %d of %d checks held in %s\n", name, held, len(checks), since(began))
	return failed
}

func since(t time.Time) time.Duration { return time.Since(t).Round(100 * time.Millisecond) }

// Sayf writes for whoever looks on. One who does not any more misses it.
func Sayf(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }
