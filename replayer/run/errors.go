// Package run plans and executes replay jobs: it reads segments from the archive, checks them, hands them to the target in order per
// partition, and proves at the end that the target took exactly what was planned.
package run

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

// ErrFenced: another replayer runs this job under a higher epoch. Whoever gets it must stop, and write nothing about the job.
var ErrFenced = errors.New("another replayer runs this job now")

// Failure is a reason for a job to be FAILED: repeating the call is of no use, or has been tried for long enough.
type Failure struct{ Err error }

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

func failf(format string, args ...any) error { return &Failure{fmt.Errorf(format, args...)} }

// definite reports whether an error of the archive will be the same the next time.
func definite(err error) bool {
	var corrupt *segment.CorruptError
	var foreign interface{ Definite() bool }
	if errors.As(err, &foreign) && foreign.Definite() {
		return true
	}
	return errors.Is(err, archive.ErrNotArchived) || errors.Is(err, archive.ErrEmptyRange) || errors.Is(err, archive.ErrBeyond) ||
		errors.Is(err, archive.ErrBadBound) || errors.Is(err, archive.ErrOtherLog) || errors.Is(err, archive.ErrForeign) || errors.Is(err, archive.ErrBroken) ||
		errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrInvalid) || errors.As(err, &corrupt)
}

// Backoff bounds the waits between tries.
type Backoff struct{ Min, Max time.Duration }

// wait returns how long to wait after the n-th failure in a row (1, 2, …): doubling, between half and the whole, so that
// senders that failed together do not come back together.
func (b Backoff) wait(n int) time.Duration {
	d := b.Max
	if n < 20 {
		d = min(b.Max, b.Min<<max(n-1, 0))
	}
	return d/2 + rand.N(d/2+1)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
