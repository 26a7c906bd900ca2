package archive

import (
	"context"
	"math/rand/v2"
	"time"

	"tapedeck.dev/tapedeck/shared/store"
)

// RetryPolicy bounds the waits between tries; retries end only with ctx.
type RetryPolicy struct {
	// Min is the bound of the first wait, doubled for each one after it up to Max. Zero: 100 ms and 30 s.
	Min, Max time.Duration
	// OnRetry, if set, is told of every failed try (for metrics, logs and pausing).
	OnRetry func(key string, attempt int, err error)
}

// Bounds of a RetryPolicy that sets none.
const (
	defaultMinWait = 100 * time.Millisecond
	defaultMaxWait = 30 * time.Second
)

// bound returns the longest wait after the given failed attempt (1 = the first).
func (p RetryPolicy) bound(attempt int) time.Duration {
	lo, hi := p.Min, p.Max
	if lo <= 0 {
		lo = defaultMinWait
	}
	if hi <= 0 {
		hi = defaultMaxWait
	}
	for range attempt - 1 {
		if lo >= hi/2 {
			return hi
		}
		lo *= 2
	}
	return min(lo, hi)
}

func (p RetryPolicy) tell(key string, attempt int, err error) {
	if p.OnRetry != nil {
		p.OnRetry(key, attempt, err)
	}
}

// waiter waits between tries. Its parts are replaced in tests.
type waiter struct {
	sleep func(ctx context.Context, d time.Duration) error
	// draw returns a number in [0, n); n > 0.
	draw func(n int64) int64
}

func realWaiter() waiter { return waiter{sleep: sleep, draw: rand.Int64N} }

// backoff waits after a failed attempt: full jitter, any duration from 0 to the bound, so that many writers that were
// refused together do not come back together; and before that as long as the store has asked for with its failure. The error is the
// context's.
func (w waiter) backoff(ctx context.Context, p RetryPolicy, attempt int, failure error) error {
	return w.sleep(ctx, store.RetryAfter(failure)+time.Duration(w.draw(int64(p.bound(attempt))+1)))
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return ctx.Err()
	}
}
