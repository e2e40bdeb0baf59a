package act

import (
	"context"
	"sync"
)

// maxBackground bounds how many long calls run at once. There is one disruption per cluster at a time, so this is a
// number of clusters; a call beyond it waits for a later pass.
const maxBackground = 64

// Background runs calls that take longer than a reconcile pass, at most one for each key. The outcome of a call that has
// ended is read from the world, which is all that a restarted process has, too. What a call failed with is remembered only so
// that a person can be told.
type Background struct {
	base   context.Context //nolint:containedctx // The calls outlive the passes that start them; this ends them.
	cancel context.CancelFunc

	mu      sync.Mutex
	stopped bool
	running map[string]struct{}
	failed  map[string]error
	calls   sync.WaitGroup
}

// NewBackground returns a Background without calls. It must be added to a manager, or be stopped with Stop.
func NewBackground() *Background {
	ctx, cancel := context.WithCancel(context.Background())
	return &Background{base: ctx, cancel: cancel, running: map[string]struct{}{}, failed: map[string]error{}}
}

// Running tells whether a call for this key runs.
func (b *Background) Running(key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.running[key]
	return ok
}

// Failed is what the last call for this key failed with; nil if it did not, or if none has ended yet. It proves nothing.
func (b *Background) Failed(key string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed[key]
}

// Go runs fn unless a call for this key runs already, too many run, or everything was stopped. It tells whether it did.
func (b *Background) Go(key string, fn func(ctx context.Context) error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.running[key]; ok || b.stopped || len(b.running) >= maxBackground {
		return false
	}
	b.running[key] = struct{}{}
	b.calls.Go(func() { b.ended(key, fn(b.base)) })
	return true
}

func (b *Background) ended(key string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.running, key)
	delete(b.failed, key)
	if err != nil {
		b.failed[key] = err
	}
}

// Start waits until ctx is done and stops everything: it makes Background a runnable of a manager.
func (b *Background) Start(ctx context.Context) error {
	<-ctx.Done()
	b.Stop()
	return nil
}

// Stop cancels every call and waits for their ends.
func (b *Background) Stop() {
	b.mu.Lock()
	b.stopped = true
	b.mu.Unlock()
	b.cancel()
	b.calls.Wait()
}
