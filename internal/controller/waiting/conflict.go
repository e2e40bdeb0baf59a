package waiting

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Manager returns mgr for a managed reconciler, and what writes for it, to be made from. The reconciler answers a write that
// met a conflict in the same way as a pass that is to be repeated after its backoff. All that such a pass needs is a cache that
// has caught up, so through this manager's client a conflict is a hint to go on soon. It takes the place of a hint given
// earlier in that pass, which would put off for a whole wait what was found out and never written; and a few conflicts in a row,
// as a slow cache has them, do not add up to a backoff of a minute.
func (h *Hints) Manager(mgr manager.Manager) manager.Manager {
	return noticing{Manager: mgr, client: conflictClient{Client: mgr.GetClient(), hints: h}}
}

type noticing struct {
	manager.Manager

	client client.Client
}

func (m noticing) GetClient() client.Client { return m.client }

type conflictClient struct {
	client.Client

	hints *Hints
}

func (c conflictClient) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return c.hints.notice(o, c.Client.Update(ctx, o, opts...))
}

func (c conflictClient) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return c.hints.notice(o, c.Client.Patch(ctx, o, p, opts...))
}

func (c conflictClient) Status() client.SubResourceWriter {
	return conflictWriter{SubResourceWriter: c.Client.Status(), client: c.Client, hints: c.hints}
}

type conflictWriter struct {
	client.SubResourceWriter

	client client.Client
	hints  *Hints
}

// Update writes a status unless it is what stands there: the reconciler writes at the end of every pass, and hundreds of
// machines at rest would keep the API server busy with nothing.
func (w conflictWriter) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	if w.stands(ctx, o) {
		return nil
	}
	return w.hints.notice(o, w.SubResourceWriter.Update(ctx, o, opts...))
}

// stands tells whether o is, to the last field, the version that was read last. If the cache is behind or cannot tell, it is
// not: a write too many does no harm.
func (w conflictWriter) stands(ctx context.Context, o client.Object) bool {
	last, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return false
	}
	err := w.client.Get(ctx, client.ObjectKeyFromObject(o), last)
	return err == nil && equality.Semantic.DeepEqual(last, o)
}

func (w conflictWriter) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	return w.hints.notice(o, w.SubResourceWriter.Patch(ctx, o, p, opts...))
}

// notice gives a hint for o if writing it met a conflict, and returns err as it is.
func (h *Hints) notice(o client.Object, err error) error {
	if kerrors.IsConflict(err) {
		h.GiveSoon(client.ObjectKeyFromObject(o))
	}
	return err
}
