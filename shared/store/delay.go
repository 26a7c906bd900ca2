package store

import (
	"errors"
	"time"
)

// MaxRetryAfter bounds what RetryAfter answers: a store, or a proxy in front of it, that asks for more is asked again then.
const MaxRetryAfter = 5 * time.Minute

// RetryAfter is how long the store has asked to be left alone (the Retry-After of a 503 or 429) by the error of a call: from 0, for
// nothing asked, to MaxRetryAfter.
func RetryAfter(err error) time.Duration {
	var e interface{ RetryAfter() time.Duration }
	if !errors.As(err, &e) {
		return 0
	}
	return min(max(e.RetryAfter(), 0), MaxRetryAfter)
}
