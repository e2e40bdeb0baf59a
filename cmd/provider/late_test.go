package main

import (
	"context"
	"errors"
	"testing"
	"time"

	xpcontroller "github.com/crossplane/crossplane-runtime/v2/pkg/controller"
	"github.com/crossplane/crossplane-runtime/v2/pkg/feature"
	"github.com/crossplane/crossplane-runtime/v2/pkg/gate"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/ratelimiter"
	"github.com/crossplane/crossplane-runtime/v2/pkg/test"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/controller"
)

// A permitted manager may watch kinds, and takes nothing more once it has an error to say so.
type permitted struct {
	ctrl.Manager
	err error
}

func (p *permitted) GetClient() client.Client {
	return &test.MockClient{MockCreate: func(_ context.Context, o client.Object, _ ...client.CreateOption) error {
		o.(*authorizationv1.SelfSubjectAccessReview).Status.Allowed = true //nolint:forcetypeassert // Nothing else is created before the start.
		return nil
	}}
}

func (p *permitted) Add(r manager.Runnable) error {
	if p.err != nil {
		return p.err
	}
	return p.Manager.Add(r)
}

// TestControllersThatFailLaterEndTheProvider: a pod that went on without its controllers would look well and do nothing.
func TestControllersThatFailLaterEndTheProvider(t *testing.T) {
	scheme, err := controller.NewScheme()
	if err != nil {
		t.Fatalf("NewScheme(): %v", err)
	}
	idle, err := ctrl.NewManager(&rest.Config{Host: "https://127.0.0.1:1"}, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatalf("cannot create the manager: %v", err)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	mgr, g := &permitted{Manager: idle}, new(gate.Gate[schema.GroupVersionKind])
	o := controller.Options{
		Options: xpcontroller.Options{Logger: logging.NewNopLogger(), GlobalRateLimiter: ratelimiter.NewGlobal(1), Features: &feature.Flags{}, Gate: g},
		Clock:   clock.RealClock{},
	}
	if err := setupControllers(ctx, mgr, o, stop); err != nil {
		t.Fatalf("setupControllers(...): %v", err)
	}
	mgr.err = errors.New("it is full")
	for name := range scheme.KnownTypes(v1alpha1.SchemeGroupVersion) {
		g.Set(v1alpha1.SchemeGroupVersion.WithKind(name), true)
	}
	select {
	case <-ctx.Done():
		if err := context.Cause(ctx); !errors.Is(err, mgr.err) {
			t.Errorf("it ended with %v, want %v", err, mgr.err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it goes on")
	}
}
