// Package demo shows the main job on a lab, as an operator would read it, and checks each promise from outside of the
// product: at the machines, in etcd, in both Kubernetes APIs. It must never take the product's word where the world can
// be asked, nor know how the product works.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/lab"
	"github.com/maesh/provider-ichor/internal/lab/story"
)

// Options of a demo.
type Options struct {
	// Only these chapters are shown, besides those that the others stand on. Empty means all; Chapters has their names.
	Only []string
	// Out gets what is done and what it showed.
	Out io.Writer
}

// A Demo is one run of the story on one lab.
type Demo struct {
	lab  *lab.Lab
	out  io.Writer
	kube client.Client

	etcd   *etcdWatch
	secret story.Secrets

	// joined counts the control planes that were added besides that of the examples.
	joined int
	// second is the removal of the second control plane, and quiet that of the machine that stops answering: each takes
	// more than one check.
	second, quiet *removal
}

// A chapter is what belongs together. Each stands on nothing but the base, so that it can be shown alone.
type chapter struct {
	name string
	// base chapters are always shown: without them there is no cluster, or it is not taken down.
	base   bool
	checks []story.Check
}

// Short are the chapters of a demo that shows the main road only.
func Short() []string { return []string{"refusal", "replace"} }

// Chapters are the names of all chapters, in the order in which they are shown.
func Chapters() []string {
	return names((&Demo{}).story())
}

func names(story []chapter) []string {
	out := make([]string, 0, len(story))
	for _, c := range story {
		out = append(out, c.name)
	}
	return out
}

// Run shows the main job and returns an error unless every check held. What follows a check that does not hold is not
// shown, since it builds on it.
func Run(ctx context.Context, l *lab.Lab, o Options) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("cannot make a scheme: %w", err)
	}
	kube, err := client.New(l.Config(), client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	d := &Demo{lab: l, out: o.Out, kube: kube}
	checks, err := choose(d.story(), o.Only)
	if err != nil {
		return err
	}
	err = story.Tell(ctx, "demo", checks, o.Out)
	if d.etcd != nil {
		d.etcd.stop()
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	dir, kept := d.keepLogs(ctx)
	if kept != nil {
		return errors.Join(err, kept)
	}
	return fmt.Errorf("%w; the logs are in %s", err, dir)
}

// keepLogs keeps the logs of a demo that failed, without the cluster's secrets as far as they can be known.
func (d *Demo) keepLogs(ctx context.Context) (string, error) {
	if err := d.learnSecrets(ctx); err != nil {
		d.sayf("        the secrets of the cluster are not all known: %v\n", err)
	}
	return d.lab.KeepLogs(d.secret.Hide)
}

// choose picks the checks of the named chapters and of those that every other stands on.
func choose(all []chapter, only []string) ([]story.Check, error) {
	for _, name := range only {
		if known := names(all); !slices.Contains(known, name) {
			return nil, fmt.Errorf("there is no chapter %q; there are %s", name, strings.Join(known, ", "))
		}
	}
	var checks []story.Check
	for _, c := range all {
		if c.base || len(only) == 0 || slices.Contains(only, c.name) {
			checks = append(checks, c.checks...)
		}
	}
	return checks, nil
}

func (d *Demo) sayf(format string, args ...any) { story.Sayf(d.out, format, args...) }

// patience is how long the demo waits for what takes a machine a few boots.
const patience = 4 * time.Minute

// await asks until the answer is no error, and no longer than its patience. It gives up at once when a part of the lab has
// died.
func (d *Demo) await(ctx context.Context, what string, ask func(context.Context) error) error {
	return d.lab.Await(ctx, what, patience, ask)
}
