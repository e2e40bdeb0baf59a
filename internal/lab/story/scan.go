package story

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Scan looks for the secrets in every object of every kind that the API server lists, Events included, but for the objects that
// may hold them. It returns how many objects of how many kinds it looked at.
func (t Secrets) Scan(ctx context.Context, config *rest.Config, mayHold func(schema.GroupVersionResource, *unstructured.Unstructured) bool) (objects, kinds int, err error) {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{} // Every kind is listed, the deprecated ones as well.
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return 0, 0, fmt.Errorf("cannot make a client: %w", err)
	}
	all, err := dynamic.NewForConfig(config)
	if err != nil {
		return 0, 0, fmt.Errorf("cannot make a client: %w", err)
	}
	lists, err := disco.ServerPreferredResources()
	if err != nil {
		return 0, 0, fmt.Errorf("cannot list the kinds that there are: %w", err)
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return 0, 0, err
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") {
				continue
			}
			n, err := t.scanKind(ctx, all, gv.WithResource(r.Name), mayHold)
			if err != nil {
				return 0, 0, err
			}
			objects, kinds = objects+n, kinds+1
		}
	}
	return objects, kinds, nil
}

func (t Secrets) scanKind(
	ctx context.Context, all dynamic.Interface, kind schema.GroupVersionResource, mayHold func(schema.GroupVersionResource, *unstructured.Unstructured) bool,
) (int, error) {
	list, err := all.Resource(kind).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("cannot list %s: %w", kind.GroupResource(), err)
	}
	for i := range list.Items {
		o := &list.Items[i]
		if mayHold(kind, o) {
			continue
		}
		if path, secret := t.FindIn(o.Object); secret != "" {
			return 0, fmt.Errorf("%s %s/%s has %s at %s", kind.GroupResource(), o.GetNamespace(), o.GetName(), secret, strings.TrimSuffix(path, "."))
		}
	}
	return len(list.Items), nil
}
