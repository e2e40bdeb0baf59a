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
