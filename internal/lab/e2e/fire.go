package e2e

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/maesh/provider-ichor/internal/lab/story"
	"github.com/maesh/provider-ichor/internal/xpkg"
)

// replacesUnderFire replaces cp-3 by cp-5, and does to the packages meanwhile what happens to packages. Whoever comes next has
// to go on from what the world says.
func (e *E2E) replacesUnderFire(ctx context.Context) error {
	r, err := e.begin(ctx, "cp-3")
	if err != nil {
		return err
	}
	if err := e.publish(ctx, xpkg.Provider, nextVersion); err != nil {
		return err
	}
	list(&e.claim.Spec.ControlPlanes.Machines, "cp-5", freed)
	unlist(&e.claim.Spec.ControlPlanes.Machines, r.name)
	e.claim.Spec.Removals = []string{r.name}
	if err := e.write(ctx, e.claim); err != nil {
		return err
	}
	if err := e.kill(xpkg.Provider, xpkg.Function); err != nil {
		return err
	}
	if err := e.await(ctx, "four voters are healthy", func(ctx context.Context) error { return e.voters(ctx, 4) }); err != nil {
		return err
	}
	if err := e.kill(xpkg.Function); err != nil {
		return err
	}
	if err := e.await(ctx, r.name+" was told to leave etcd", func(ctx context.Context) error { return e.sent(ctx, r, story.CallLeave) }); err != nil {
		return err
	}
	if err := e.kill(xpkg.Provider); err != nil {
		return err
	}
	if err := e.upgrade(ctx); err != nil {
		return err
	}
	if err := e.ends(ctx, r); err != nil {
		return err
	}
	if err := e.forget(ctx, 4); err != nil {
		return err
	}
	return e.upgraded(ctx)
}

// kill what runs for packages, as kill -9 does.
func (e *E2E) kill(packages ...xpkg.Package) error {
	for _, p := range packages {
		e.sayf("        killing %s\n", p.Name)
		if err := e.crossplane.Kill(p.Name); err != nil {
			return err
		}
	}
	return nil
}

// sent wants a call to have reached the machine of a removal.
func (e *E2E) sent(ctx context.Context, r *removal, method string) error {
	gone := e.gone(ctx, r) // Shows what it says.
	calls, err := e.lab.Fleet.Changes(ctx, r.before.Name, r.from)
	if err != nil {
		return err
	}
	if count(calls, method) == 0 {
		return fmt.Errorf("%s was not sent; %w", method, gone)
	}
	return nil
}

// upgrade the provider as a user does: another version in the address of its package.
func (e *E2E) upgrade(ctx context.Context) error {
	p, err := e.only(ctx, "Provider")
	if err != nil {
		return err
	}
	_, err = e.kubectl(ctx, "patch", "provider.pkg.crossplane.io", p.GetName(), "--type=merge", "-p", `{"spec":{"package":"`+e.next()+`"}}`)
	return err
}

// next is the address of the version that is upgraded to.
func (e *E2E) next() string {
	return e.crossplane.Registry.Address + "/" + organisation + "/" + xpkg.Provider.Name + ":" + nextVersion
}

// upgraded wants the new version to be what is installed and healthy, and to be what runs.
func (e *E2E) upgraded(ctx context.Context) error {
	return e.await(ctx, "the upgraded provider is healthy", func(ctx context.Context) error {
		p, err := e.installed(ctx, "Provider")
		if err != nil {
			return err
		}
		if is, _, _ := unstructured.NestedString(p.Object, "status", "currentIdentifier"); is != e.next() {
			return fmt.Errorf("%q is installed, want %q", is, e.next())
		}
		return e.crossplane.Serves(ctx, xpkg.Provider.Name)
	})
}
