package run

import (
	"context"
	"errors"
	"fmt"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/pace"
	"tapedeck.dev/tapedeck/shared/archive"
)

// What every target's execution shares, besides Plan.

// Failf makes a *Failure.
func Failf(format string, args ...any) error { return &Failure{fmt.Errorf(format, args...)} }

// Retry repeats f until it succeeds, fails for good (*Failure, ErrFenced), or has failed for the retry timeout. call is the label of the metric.
func Retry[T any](ctx context.Context, r *Runner, call string, f func(context.Context) (T, error)) (T, error) {
	return retry(ctx, r, call, f)
}

// Segment is a planned object that has been read in full and found sound.
type Segment struct {
	Name string // of the object, for errors
	// Body is an archive segment of the records to send. It may hold records outside of the range's offsets.
	Body  []byte
	Proof job.Proof // of the records to send
	MaxTs int64     // largest timestamp of these, −1 for none
	Parts []Part    // what of it goes at once, in order; one where nothing bounds it
}

// Part is a part of a segment's records to send.
type Part struct {
	Next    int64 // first offset after it
	Records int64
	Bytes   int64 // share of the object's size
	MaxTs   int64 // largest timestamp of the segment's records to send up to the end of this part, ms; −1 for none
}

// LoadSegment reads a planned object, checks every record of it, and finds its parts within the bounds; keep chooses among the records of the range. It
// repeats what may pass.
func (r *Runner) LoadSegment(ctx context.Context, rng *job.Range, keep *job.Keeper, index int, ps archive.PlannedSegment, b pace.Bounds) (*Segment, error) {
	return retry(ctx, r, "load", func(ctx context.Context) (*Segment, error) {
		l, err := load(ctx, r.Source(), rng, keep, index, ps, b)
		if err != nil {
			return nil, err
		}
		s := &Segment{Name: ps.Key, Body: l.body, Proof: l.proof, MaxTs: l.maxTs}
		for i := range l.spans {
			s.Parts = append(s.Parts, Part{Next: l.spans[i].next, Records: l.spans[i].records, Bytes: l.spans[i].bytes, MaxTs: l.spans[i].maxTs})
		}
		return s, nil
	})
}

// Sleep waits, at most until ctx ends: then its cause is the error.
func (b Backoff) Sleep(ctx context.Context, n int) error { return sleep(ctx, b.wait(n)) }

// IsUnreadable reports whether err is about one object of the archive that cannot be read.
func IsUnreadable(err error) bool {
	var bad *unreadable
	return errors.As(err, &bad)
}
