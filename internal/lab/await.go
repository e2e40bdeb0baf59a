package lab

import (
	"context"
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
	for {
		answer := ask(within)
		if answer == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-within.Done():
			return fmt.Errorf("waited %s in vain until %s: %w", limit, what, answer)
		case <-ticker.C:
		}
	}
}
