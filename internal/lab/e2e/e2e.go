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
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/lab"
	"github.com/maesh/provider-ichor/internal/lab/crossplane"
	"github.com/maesh/provider-ichor/internal/lab/story"
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
	// secrets of the clusters that there were.
	secrets story.Secrets
}

// Options of a story.
type Options struct {
	// Short tells the main road only.
	Short bool
	// Out gets what is told.
	Out io.Writer
}

// Run tells the story on a lab that was started bare, and returns an error unless every check held. What follows a check that
// does not hold is not shown, since it builds on it. The logs of a story that failed are kept, without the secrets of its clusters as far as they can be
// known.
func Run(ctx context.Context, l *lab.Lab, o Options) (err error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("cannot make a scheme: %w", err)
	}
	kube, err := client.New(l.Config(), client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	story.Sayf(o.Out, "starting Crossplane (core, RBAC manager, registry)\n")
	c, err := crossplane.Start(ctx, crossplane.Options{
		Config: l.Config(), Dir: filepath.Join(l.Dir, "crossplane"), Args: hurry(), Environment: environment(), Out: o.Out,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	e := &E2E{lab: l, crossplane: c, out: o.Out, kube: kube, secrets: story.Secrets{}}
	err = story.Tell(ctx, "e2e", e.checks(o.Short), o.Out)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if unknown := e.learnSecrets(ctx); unknown != nil {
		e.sayf("        the secrets of the cluster are not all known: %v\n", unknown)
	}
	dir, kept := l.KeepLogs(e.secrets.Hide)
	if kept != nil {
		return errors.Join(err, kept)
	}
	return fmt.Errorf("%w; the logs are in %s", err, dir)
}

func (e *E2E) sayf(format string, args ...any) { story.Sayf(e.out, format, args...) }

// await asks until the answer is no error, and no longer than its patience. It gives up at once when a part of the lab has
// died; packages may die and are started again.
func (e *E2E) await(ctx context.Context, what string, ask func(context.Context) error) error {
	err := e.lab.Await(ctx, what, patience, ask)
	if err != nil {
		err = errors.Join(err, e.crossplane.Err())
	}
	return err
}

func (e *E2E) object(ctx context.Context, name string, into client.Object) error {
	return e.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
}
