package controller

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	xpcontroller "github.com/crossplane/crossplane-runtime/v2/pkg/controller"
	"github.com/crossplane/crossplane-runtime/v2/pkg/feature"
	"github.com/crossplane/crossplane-runtime/v2/pkg/gate"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/ratelimiter"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// A full manager takes nothing more once it has an error to say so.
type full struct {
	ctrl.Manager
	err error
}

func (f *full) Add(r manager.Runnable) error {
	if f.err != nil {
		return f.err
	}
	return f.Manager.Add(r)
}

// TestControllersThatCannotBeAdded: nobody waits for the controllers of kinds that appear later, so a failure to add them has to
// be told, or the provider would look well and do nothing.
func TestControllersThatCannotBeAdded(t *testing.T) {
	scheme, err := NewScheme()
	if err != nil {
		t.Fatalf("NewScheme(): %v", err)
	}
	idle, err := ctrl.NewManager(&rest.Config{Host: "https://127.0.0.1:1"}, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatalf("cannot create the manager: %v", err)
	}
	mgr, g, told := &full{Manager: idle}, new(gate.Gate[schema.GroupVersionKind]), make(chan error, 1)
	err = SetupGated(mgr, Options{
		Options: xpcontroller.Options{Logger: logging.NewNopLogger(), GlobalRateLimiter: ratelimiter.NewGlobal(1), Features: &feature.Flags{}, Gate: g},
		Clock:   clock.RealClock{},
	}, func(err error) { told <- err })
	if err != nil {
		t.Fatalf("SetupGated(...): %v", err)
	}
	mgr.err = errors.New("it is full")
	for _, kind := range kinds() {
		g.Set(kind, true)
	}
	select {
	case err := <-told:
		if !errors.Is(err, mgr.err) {
			t.Errorf("told: %v, want %v", err, mgr.err)
		}
	case <-time.After(10 * time.Second):
		t.Error("nobody was told that the controllers could not be added")
	}
}

// TestControllersWaitForEveryKind: a controller that is started before a kind that it watches exists fails with all others.
func TestControllersWaitForEveryKind(t *testing.T) {
	scheme, err := NewScheme()
	if err != nil {
		t.Fatalf("NewScheme(): %v", err)
	}
	own := reflect.TypeFor[v1alpha1.TalosMachine]().PkgPath() // And none of the kinds that every group has, as its options of a list.
	var want []string
	for name, of := range scheme.KnownTypes(v1alpha1.SchemeGroupVersion) {
		if of.PkgPath() == own && !strings.HasSuffix(name, "List") {
			want = append(want, name)
		}
	}
	var got []string
	for _, kind := range kinds() {
		got = append(got, kind.Kind)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kinds(): -want, +got:\n%s", diff)
	}
}
