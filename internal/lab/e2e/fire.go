package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/maesh/provider-ichor/internal/lab/crossplane"
	"github.com/maesh/provider-ichor/internal/lab/story"
	"github.com/maesh/provider-ichor/internal/xpkg"
)

const (
	// kills is how many there are in the story, at most, and the pause before each is somewhere between two bounds: a provider
	// that was killed has to wait until its predecessor's leadership has expired.
	kills                 = 6
	shortPause, longPause = 5 * time.Second, 20 * time.Second
)

// replacesUnderFire replaces cp-3 by cp-5, and does to core and packages meanwhile what happens to them. Whoever comes next has
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
	ceasefire := e.openFire(ctx)
	err = e.goesOn(ctx, r)
	if err := errors.Join(err, ceasefire()); err != nil {
		return err
	}
	if err := e.forget(ctx, 4); err != nil {
		return err
	}
	return e.upgraded(ctx)
}

// goesOn waits for the removal, with a kill right after the step that cannot be taken back, and an upgrade from there on.
func (e *E2E) goesOn(ctx context.Context, r *removal) error {
	if err := e.await(ctx, r.name+" was told to leave etcd", func(ctx context.Context) error { return e.sent(ctx, r, story.CallLeave) }); err != nil {
		return err
	}
	if err := e.kill(xpkg.Provider.Name); err != nil {
		return err
	}
	// Whoever answers for the API of packages may just have been killed.
	if err := e.await(ctx, "the upgrade is accepted", e.upgrade); err != nil {
		return err
	}
	return e.ends(ctx, r)
}

// openFire kills core and what runs for packages, each as often as the others, in an order and after pauses that
// nobody knows. The function that it returns ends that, and returns when it has ended.
func (e *E2E) openFire(ctx context.Context) (cease func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		targets := []string{core, xpkg.Provider.Name, xpkg.Function.Name}
		for i := range kills {
			if i%len(targets) == 0 {
				rand.Shuffle(len(targets), func(a, b int) { targets[a], targets[b] = targets[b], targets[a] })
			}
			pause := time.NewTimer(shortPause + rand.N(longPause-shortPause)) //nolint:gosec // Nobody has to be unable to guess it.
			select {
			case <-ctx.Done():
				pause.Stop()
				done <- nil
				return
			case <-pause.C:
			}
			if err := e.kill(targets[i%len(targets)]); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	return func() error {
		cancel()
		return <-done
	}
}

// core is not a package.
const core = "core"

// kill core, or what runs for a package, as kill -9 does. What does not run just now needs no kill.
func (e *E2E) kill(what string) error {
	e.sayf("        killing %s\n", what)
	if what == core {
		return e.crossplane.KillCore()
	}
	if err := e.crossplane.Kill(what); !errors.Is(err, crossplane.ErrNotRunning) {
		return err
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
