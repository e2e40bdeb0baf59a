// Command provider is the Crossplane provider: it turns Talos Linux machines into Kubernetes clusters, keeps them as they
// are declared and removes machines through a gate that keeps etcd's quorum. It must never hold more than flags and wiring.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/maesh/provider-ichor/internal/version"
)

func main() {
	f, err := parse(os.Args[1:], os.Getenv)
	if err == nil {
		err = run(ctrl.SetupSignalHandler(), f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "provider-ichor:", err)
		os.Exit(1)
	}
}

// run the provider until ctx is done or anything without which it cannot work fails.
func run(ctx context.Context, f *flags) error {
	zl := zap.New(zap.UseDevMode(f.debug))
	ctrl.SetLogger(zl)
	log := logging.NewLogrLogger(zl.WithName("provider-ichor"))
	log.Info("Starting", "version", version.Version, "leader-election", f.leaderElection, "webhooks", f.webhookCertDir != "",
		"poll", f.poll.String(), "max-reconcile-rate", f.maxReconcileRate)

	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	p, err := newProvider(ctx, f, log, stop)
	if err != nil {
		return err
	}
	defer p.pool.Close()
	if err := p.mgr.Start(ctx); err != nil {
		return errors.Wrap(err, "cannot run the controllers")
	}
	// A signal is no failure; a controller that could not be added after the start is.
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}
