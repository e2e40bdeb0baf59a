package lab

import (
	"context"
	"errors"

	"github.com/maesh/provider-ichor/internal/lab/controlplane"
)

// StartSecondProvider starts another one beside it, as two may run where a node is lost: neither asks to be the only one. Nobody
// calls the webhooks of this one until AskSecondProvider.
func (l *Lab) StartSecondProvider(context.Context) error {
	port, err := controlplane.ReservePort()
	if err != nil {
		return err
	}
	l.later(func() error { port.Release(); return nil })
	l.besides = port
	l.second, err = l.startProvider(port.Loopback())
	return err
}

// AwaitSecondProvider waits until it serves its webhooks.
func (l *Lab) AwaitSecondProvider(ctx context.Context) error {
	return serves(ctx, l.second, l.besides.Loopback())
}

// AskSecondProvider has the management cluster call its webhooks instead of those of the first one, as a Service does.
func (l *Lab) AskSecondProvider(ctx context.Context) error {
	return l.askWebhooksAt(ctx, l.besides.Loopback())
}

// AskProvider has it call those of the first one again.
func (l *Lab) AskProvider(ctx context.Context) error { return l.askWebhooksAt(ctx, l.webhook) }

// StopSecondProvider ends it. An error says so if it had ended by itself.
func (l *Lab) StopSecondProvider() error { return l.endSecond((*controlplane.Process).Stop) }

// KillSecondProvider ends it at once, as kill -9 does. An error says so if it had ended by itself.
func (l *Lab) KillSecondProvider() error { return l.endSecond((*controlplane.Process).Kill) }

func (l *Lab) endSecond(end func(*controlplane.Process) error) error {
	err := errors.Join(l.second.Err(), end(l.second))
	l.besides.Release()
	l.second = nil
	return err
}
