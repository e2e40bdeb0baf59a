// Package e2e goes the way of a user on a lab with real Crossplane: packages from a registry, one claim, edits of it, its
// delete. It checks each promise from outside of the product, at the machines and in both Kubernetes APIs. It must never
// touch a managed resource itself: everything is asked for through the topology.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/lab"
	"github.com/maesh/provider-ichor/internal/lab/crossplane"
)

const (
	// Machines is how many blank machines the story needs: those of the examples, and one to spare.
	Machines = 6

	// patience is how long the story waits for what takes a machine a few boots.
	patience = 5 * time.Minute
)

// An E2E is one run of the story on one lab.
type E2E struct {
	lab        *lab.Lab
	crossplane *crossplane.Crossplane
	out        io.Writer
	kube       client.Client

	// claim is the document as it was written last.
	claim *document
}

// A check is one promise that is shown.
type check struct {
	says string
	hold func(context.Context) error
}

// Run tells the story on a lab that was started bare, and returns an error unless every check held. What follows a check that
// does not hold is not shown, since it builds on it. The logs of a story that failed are kept: the cluster whose secrets may
// be in them is gone by then.
func Run(ctx context.Context, l *lab.Lab, out io.Writer) (err error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("cannot make a scheme: %w", err)
	}
	kube, err := client.New(l.Config(), client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	sayf(out, "starting Crossplane (core, RBAC manager, registry)\n")
	c, err := crossplane.Start(ctx, crossplane.Options{
		Config: l.Config(), Dir: filepath.Join(l.Dir, "crossplane"), Environment: environment(), Out: out,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	e := &E2E{lab: l, crossplane: c, out: out, kube: kube}
	err = show(ctx, e.story(), out)
	if err == nil || ctx.Err() != nil {
		return err
	}
	dir, kept := l.KeepLogs(func(text string) string { return text })
	if kept != nil {
		return errors.Join(err, kept)
	}
	return fmt.Errorf("%w; the logs are in %s", err, dir)
}

// show runs checks one after another until one does not hold, and counts those that did. What failed is told in one line.
func show(ctx context.Context, checks []check, out io.Writer) error {
	held, began := 0, time.Now()
	var failed error
	for _, c := range checks {
		from := time.Now()
		if err := c.hold(ctx); err != nil {
			failed = errors.New("a check did not hold")
			if ctx.Err() != nil {
				failed = ctx.Err()
				break
			}
			sayf(out, "FAIL  %s: %s\n", c.says, strings.ReplaceAll(err.Error(), "\n", "; "))
			break
		}
		held++
		sayf(out, "ok    %s (%s)\n", c.says, since(from))
	}
	sayf(out, "e2e: %d of %d checks held in %s\n", held, len(checks), since(began))
	return failed
}

func since(t time.Time) time.Duration { return time.Since(t).Round(100 * time.Millisecond) }

func (e *E2E) sayf(format string, args ...any) { sayf(e.out, format, args...) }

// sayf writes for whoever looks on. One who does not any more misses it.
func sayf(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }

// await asks until the answer is no error, and no longer than its patience. It gives up at once when a part of the lab has
// died; packages may die and are started again.
func (e *E2E) await(ctx context.Context, what string, ask func(context.Context) error) error {
	var died error
	err := lab.Await(ctx, what, patience, func(ctx context.Context) error {
		if died = e.lab.Err(); died != nil {
			return nil //nolint:nilerr // Returned below, without waiting any longer.
		}
		return ask(ctx)
	})
	if err != nil {
		err = errors.Join(err, e.crossplane.Err())
	}
	return errors.Join(died, err)
}

func (e *E2E) object(ctx context.Context, name string, into client.Object) error {
	return e.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
}
