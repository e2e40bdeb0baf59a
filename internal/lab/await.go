package lab

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// awaitInterval is how often Await asks: often enough to see the steps of a scaled machine go by.
const awaitInterval = 250 * time.Millisecond

// Await asks until the answer is no error. It returns an error that says what it waited for and the last answer once the
// limit is over, and ctx's error if that ends first.
func Await(ctx context.Context, what string, limit time.Duration, ask func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(awaitInterval)
	defer ticker.Stop()
	var answer error
	for {
		now := ask(within)
		if now == nil {
			return nil
		}
		if answer == nil || within.Err() == nil {
			answer = now // The one that the limit cut off says nothing but that.
		}
		select {
		case <-within.Done():
			if err := ctx.Err(); err != nil {
				return err
			}
			return fmt.Errorf("waited %s in vain until %s: %w", limit, what, answer)
		case <-ticker.C:
		}
	}
}

// Await asks as the function does, and gives up at once when a part of the lab has died.
func (l *Lab) Await(ctx context.Context, what string, limit time.Duration, ask func(context.Context) error) error {
	var died error
	err := Await(ctx, what, limit, func(ctx context.Context) error {
		if died = l.Err(); died != nil {
			return nil //nolint:nilerr // Returned below, without waiting any longer.
		}
		return ask(ctx)
	})
	return errors.Join(died, err)
}
