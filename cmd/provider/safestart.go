package main

import (
	"context"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// reviewTimeout is how long the provider waits for the right to watch kinds. Crossplane's RBAC manager grants rights
	// about when it starts the provider, in any order, and is done within seconds.
	reviewTimeout = 30 * time.Second

	// reviewInterval is how often the provider asks meanwhile.
	reviewInterval = 250 * time.Millisecond
)

// mayWatchKinds tells whether the provider may watch CustomResourceDefinitions, and waits up to limit for that right.
// Crossplane grants it to providers with the capability safe-start, whose kinds may not exist yet. Without waiting, a provider
// that starts before its rights arrive would start the controllers of kinds that do not exist, and fail.
func mayWatchKinds(ctx context.Context, c client.Client, limit time.Duration) (bool, error) {
	answered := false
	err := wait.PollUntilContextTimeout(ctx, reviewInterval, limit, true, func(ctx context.Context) (allowed bool, err error) {
		allowed, err = reviewWatch(ctx, c)
		answered = answered || err == nil
		return allowed, err
	})
	if err == nil {
		return true, nil
	}
	if answered && wait.Interrupted(err) && ctx.Err() == nil {
		return false, nil
	}
	return false, errors.Wrap(err, "cannot ask what the provider is allowed to watch")
}

// reviewWatch asks the API server once.
func reviewWatch(ctx context.Context, c client.Client) (bool, error) {
	for _, verb := range []string{"get", "list", "watch"} {
		r := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions", Verb: verb,
			},
		}}
		if err := c.Create(ctx, r); err != nil || !r.Status.Allowed {
			return false, err
		}
	}
	return true, nil
}
