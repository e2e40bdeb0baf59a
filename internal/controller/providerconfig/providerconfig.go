// Package providerconfig keeps ProviderConfigs and ClusterProviderConfigs from going while managed resources use them. It
// must never look into a configuration: that is what connect is for.
package providerconfig

import (
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/controller"
	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/ratelimiter"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/providerconfig"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// Setup adds a controller for each of the two kinds of configuration. Usages of both are ProviderConfigUsages, in the
// namespace of the managed resource: a controller that watched anything else would count no users and let a
// configuration go that is in use.
func Setup(mgr ctrl.Manager, o controller.Options) error {
	kinds := []struct {
		config client.Object
		gvk    schema.GroupVersionKind
	}{
		{config: &v1alpha1.ProviderConfig{}, gvk: v1alpha1.ProviderConfigGroupVersionKind},
		{config: &v1alpha1.ClusterProviderConfig{}, gvk: v1alpha1.ClusterProviderConfigGroupVersionKind},
	}
	for _, k := range kinds {
		name := providerconfig.ControllerName(k.gvk.Kind)
		r := providerconfig.NewReconciler(mgr, resource.ProviderConfigKinds{
			Config:    k.gvk,
			Usage:     v1alpha1.ProviderConfigUsageGroupVersionKind,
			UsageList: v1alpha1.ProviderConfigUsageListGVK,
		},
			providerconfig.WithLogger(o.Logger.WithValues("controller", name)),
			providerconfig.WithRecorder(event.NewAPIRecorder(mgr.GetEventRecorderFor(name)))) //nolint:staticcheck // Crossplane grants providers core events, not those of events.k8s.io.

		err := ctrl.NewControllerManagedBy(mgr).
			Named(name).
			WithOptions(o.ForControllerRuntime()).
			For(k.config).
			Watches(&v1alpha1.ProviderConfigUsage{}, &resource.EnqueueRequestForProviderConfig{Kind: k.gvk.Kind}).
			Complete(ratelimiter.NewReconciler(name, r, o.GlobalRateLimiter))
		if err != nil {
			return fmt.Errorf("cannot set up the controller of %s: %w", k.gvk.Kind, err)
		}
	}
	return nil
}
