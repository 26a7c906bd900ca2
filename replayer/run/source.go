package run

import (
	"context"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
)

// Source is where the records of replays come from: our own archive (archive.Archive), or one that others wrote and that is read as if it were ours
// (connect.Source).
type Source interface {
	// List returns the partitions that there are, of all topics or of those named, sorted.
	List(ctx context.Context, topics ...string) ([]record.TopicPartition, error)
	// Incarnations are the numbers of a topic's later logs; none where it was never created again.
	Incarnations(ctx context.Context, topic string) ([]int, error)
	// Plan says which segments hold a range. Errors are those of archive.Archive.Plan, or have a method Definite where repeating is of no use.
	Plan(ctx context.Context, r archive.Request) (*archive.PartitionPlan, error)
	// Segment returns a planned segment's bytes. Errors are those of store.Store.Get, or as of Plan.
	Segment(ctx context.Context, p archive.PlannedSegment) ([]byte, error)
	// Where names the place, for messages.
	Where() string
}

// Source is where the records of this runner's jobs come from.
func (r *Runner) Source() Source {
	if r.Foreign != nil {
		return r.Foreign
	}
	return r.Archive
}

// lossy says why a source does not hold what was in Kafka, byte for byte; "" where it does.
func lossy(s Source) string {
	if l, ok := s.(interface{ Lossy() string }); ok {
		return l.Lossy()
	}
	return ""
}

// checkTimes refuses what goes by the records' timestamps where a source has none: a clock would have nothing to run by, and an order nothing to keep.
func checkTimes(s Source, r *job.Request) error {
	t, ok := s.(interface{ Timeless() string })
	if !ok || t.Timeless() == "" {
		return nil
	}
	switch _, ordered := r.Skew(); {
	case ordered:
		return failf("order %q: %s", r.Order, t.Timeless())
	case r.Limits().Speed > 0:
		return failf(`speed %g: %s, or take speed "max"`, float64(r.Speed), t.Timeless())
	}
	return nil
}
