package archiver

import (
	"context"
	"fmt"

	"golang.org/x/sync/semaphore"

	"tapedeck.dev/tapedeck/shared/store"
)

// turnstile is a store that lets a bounded number of creates through at a time. A place is taken for one request and not for a segment: one that the
// store refuses for hours, and that is tried again and again, must not keep those of other topics out.
type turnstile struct {
	store.Store
	places *semaphore.Weighted
}

func newTurnstile(st store.Store) *turnstile {
	return &turnstile{st, semaphore.NewWeighted(parallelPuts)}
}

// Create implements store.Store.
func (t *turnstile) Create(ctx context.Context, key string, data []byte, with ...store.Attributes) error {
	if err := t.places.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("create %s: %w", key, err) // nothing was sent
	}
	defer t.places.Release(1)
	return t.Store.Create(ctx, key, data, with...)
}
