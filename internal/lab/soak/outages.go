package soak

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/internal/lab"
)

// thief is who steals the lock.
const thief = "Somebody/1"

// stopManagement stops the API server of the management cluster for a while: it accepts connections and says nothing.
func (c *campaign) stopManagement(ctx context.Context, e Event) (string, error) {
	if !c.management.TryLock() {
		return "not now: it is stopped already, or the provider starts", nil
	}
	pid := c.lab.ManagementPID()
	return "", c.lasts(ctx, e, func(_ context.Context, on bool) error {
		if on {
			return syscall.Kill(pid, syscall.SIGSTOP)
		}
		defer c.management.Unlock()
		return syscall.Kill(pid, syscall.SIGCONT)
	})
}

// lease of the cluster. If nobody holds the lock there is none, and it is only named.
func (c *campaign) lease(ctx context.Context) (lease *coordinationv1.Lease, there bool, err error) {
	lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaseName}}
	err = c.kube.Get(ctx, client.ObjectKeyFromObject(lease), lease)
	return lease, err == nil, client.IgnoreNotFound(err)
}

// unlock deletes the Lease, as somebody does who thinks that it is in the way.
func (c *campaign) unlock(ctx context.Context, e Event) (string, error) {
	lease, there, err := c.lease(ctx)
	if !there || err != nil {
		return "not now: there is no Lease", err
	}
	at := time.Now()
	if err := c.kube.Delete(ctx, lease); err != nil {
		return "of " + holder(lease), err
	}
	c.throw(e.name(0), at, at)
	return "of " + holder(lease), nil
}

// steal writes another holder into the Lease, which never renews it and gives it back after a while. Every other time it leaves
// what the holder before has written down besides.
func (c *campaign) steal(ctx context.Context, e Event) (string, error) {
	return "", c.lasts(ctx, e, func(ctx context.Context, on bool) error {
		persist := c.persist
		if !on {
			persist = c.surely
		}
		return persist(ctx, func(ctx context.Context) error {
			lease, there, err := c.lease(ctx)
			if err != nil {
				return err
			}
			if !on {
				return c.giveBack(ctx, lease)
			}
			c.tellf("        the Lease is taken from %q", holder(lease))
			return c.rob(ctx, lease, there, e.Pick%4 < 2)
		})
	})
}

func (c *campaign) rob(ctx context.Context, lease *coordinationv1.Lease, there, clean bool) error {
	now := metav1.NewMicroTime(time.Now())
	lease.Spec.HolderIdentity, lease.Spec.AcquireTime, lease.Spec.RenewTime = ptr.To(thief), &now, &now
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(lifetime / time.Second))
	if clean {
		lease.Annotations = nil
	}
	if !there {
		return c.kube.Create(ctx, lease)
	}
	return c.kube.Update(ctx, lease)
}

// giveBack deletes the Lease if it is still the thief's.
func (c *campaign) giveBack(ctx context.Context, lease *coordinationv1.Lease) error {
	if holder(lease) != thief {
		return nil
	}
	return client.IgnoreNotFound(c.kube.Delete(ctx, lease, client.Preconditions{UID: ptr.To(lease.GetUID()), ResourceVersion: ptr.To(lease.GetResourceVersion())}))
}

// surely does what must be done in the end, however long the API server or the provider's webhooks are away.
func (c *campaign) surely(ctx context.Context, do func(context.Context) error) error {
	return lab.Await(ctx, "what lasted has ended", patience, func(ctx context.Context) error { return c.persist(ctx, do) })
}

// unanswered tells whether an error says that nobody was there to answer: the API server is stopped, or the provider is, which
// its webhooks do not get on without.
func unanswered(err error) bool {
	return kerrors.IsInternalError(err) || kerrors.IsTimeout(err) || kerrors.IsServerTimeout(err) || errors.Is(err, context.DeadlineExceeded) || isTimeout(err)
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// name of what an event did, in a tally: whether it lasted for longer than a lock lives is a kind of its own.
func (e Event) name(lasted time.Duration) string {
	what := verbs[e.Do]
	if e.Fault != "" {
		what = fmt.Sprintf("%s %s", what, e.Fault)
	}
	if lasted > lifetime {
		what += ", for longer than a lease"
	}
	return what
}
