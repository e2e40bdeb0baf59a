// Package lagging stands in for the cache of a process that is one write behind the API server, so that tests can tell
// whether anything is done that only holds if a cache is up to date. It must never be used by the product.
package lagging

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A key is an object of a kind.
type key struct {
	kind reflect.Type
	name client.ObjectKey
}

func keyOf(o client.Object) key { return key{reflect.TypeOf(o), client.ObjectKeyFromObject(o)} }

// A change is the last write of an object.
type change struct {
	number int
	// before is what the object was then; nil if it was not there.
	before client.Object
}

// A History knows of each object what it was before its last write, whoever wrote it. It is safe for concurrent use.
type History struct {
	mu     sync.Mutex
	number int
	last   map[key]change
}

// NewHistory knows of no write.
func NewHistory() *History { return &History{last: map[key]change{}} }

// Write does a write, and remembers what the object was before if that succeeds.
func (h *History) Write(ctx context.Context, server client.Reader, o client.Object, do func() error) error {
	before := reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object) //nolint:forcetypeassert // It is of the same type.
	k := keyOf(o)
	switch err := server.Get(ctx, k.name, before); {
	case kerrors.IsNotFound(err):
		before = nil
	case err != nil:
		return err
	}
	if err := do(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.number++
	h.last[k] = change{number: h.number, before: before}
	return nil
}

// Writes is how many there were.
func (h *History) Writes() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.number
}

// A Cache is the client of one process. It writes to the server, and reads objects of some kinds as they were before their
// last write, until it has caught up. All others it reads as they are.
type Cache struct {
	client.Client
	history *History
	kinds   map[reflect.Type]client.Object

	mu   sync.Mutex
	seen int // how many writes it has seen
}

// New makes the cache of a process that begins and has seen so many writes. Only the given kinds are cached.
func New(server client.Client, h *History, seen int, kinds ...client.Object) *Cache {
	c := &Cache{Client: server, history: h, kinds: map[reflect.Type]client.Object{}, seen: seen}
	for _, k := range kinds {
		c.kinds[reflect.TypeOf(k)] = k
	}
	return c
}

// CatchUp shows the first so many writes.
func (c *Cache) CatchUp(seen int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = seen
}

// behind returns what an object was before its last write, and whether it is to be shown as that still.
func (c *Cache) behind(k key) (client.Object, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history.mu.Lock()
	defer c.history.mu.Unlock()
	last, written := c.history.last[k]
	return last.before, written && last.number > c.seen
}

// Get reads an object.
func (c *Cache) Get(ctx context.Context, name client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	kind := reflect.TypeOf(o)
	if c.kinds[kind] == nil {
		return c.Client.Get(ctx, name, o, opts...)
	}
	before, behind := c.behind(key{kind, name})
	switch {
	case !behind:
		return c.Client.Get(ctx, name, o, opts...)
	case before == nil:
		return kerrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", o)}, name.Name)
	}
	copied := before.DeepCopyObject()
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(copied).Elem())
	return nil
}

// List reads objects of a kind, of one namespace or of all. No other choice is supported.
func (c *Cache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.Client.List(ctx, list, opts...); err != nil {
		return err
	}
	chosen := (&client.ListOptions{}).ApplyOptions(opts)
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	var shown []runtime.Object
	seen := map[key]bool{}
	for _, item := range items {
		o, ok := item.(client.Object)
		if !ok || c.kinds[reflect.TypeOf(o)] == nil {
			return nil
		}
		seen[keyOf(o)] = true
		before, behind := c.behind(keyOf(o))
		switch {
		case !behind:
			shown = append(shown, o)
		case before != nil:
			shown = append(shown, before.DeepCopyObject())
		}
	}
	return meta.SetList(list, append(shown, c.gone(list, chosen.Namespace, seen)...))
}

// gone are the objects that are there no more and are shown still.
func (c *Cache) gone(list client.ObjectList, namespace string, seen map[key]bool) []runtime.Object {
	element, err := meta.GetItemsPtr(list)
	if err != nil {
		return nil
	}
	kind := reflect.PointerTo(reflect.TypeOf(element).Elem().Elem())
	if c.kinds[kind] == nil {
		return nil
	}
	c.history.mu.Lock()
	var keys []key
	for k := range c.history.last {
		if k.kind == kind && !seen[k] && (namespace == "" || namespace == k.name.Namespace) {
			keys = append(keys, k)
		}
	}
	c.history.mu.Unlock()
	var out []runtime.Object
	for _, k := range keys {
		if before, behind := c.behind(k); behind && before != nil {
			out = append(out, before.DeepCopyObject())
		}
	}
	return out
}
