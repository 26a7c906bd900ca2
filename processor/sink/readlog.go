package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
)

// ReadLog returns every committed record of a partition, from its log start to the log end as it was when the call began.
//
// The end is the high watermark, not the last stable offset: a transaction whose offsets are visible already may still be
// writing its markers here. Stopping at the stable offset would miss its records, so ReadLog waits until no transaction is open below
// the end (at most the writer's transaction timeout).
func ReadLog(ctx context.Context, client kafka.Client, admin *kafka.Admin, tp kafka.TP) (recs []record.Record, err error) {
	ends, err := admin.Offsets(ctx, []kafka.TP{tp})
	if err != nil {
		return nil, fmt.Errorf("read the log end of %s: %w", tp, err)
	}
	r, ok := ends[tp]
	if !ok {
		return nil, fmt.Errorf("read the log end of %s: %w", tp, kafka.ErrNotFound)
	}
	if r.Start >= r.End {
		return nil, nil
	}
	c, err := kafka.NewConsumer(kafka.ConsumerConfig{Client: client, Isolation: "read_committed"})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", tp, err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	start := kafka.Position{TP: tp, Offset: r.Start, LeaderEpoch: record.NoEpoch}
	if err := c.Start(start); err != nil {
		return nil, fmt.Errorf("read %s: %w", tp, err)
	}
	for pos := r.Start; pos < r.End; {
		events, err := c.Poll(ctx, 200*time.Millisecond)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", tp, err)
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("read %s up to %d of %d: %w", tp, pos, r.End, err)
		}
		for _, ev := range events {
			switch ev := ev.(type) {
			case kafka.Batch:
				recs = append(recs, ev.Records...)
				pos = ev.Records[len(ev.Records)-1].Offset + 1
			case kafka.EndOfPartition:
				pos = max(pos, ev.Offset)
			case kafka.OutOfRange:
				return nil, fmt.Errorf("read %s: offset %d is out of range [%d, %d)", tp, ev.Offset, ev.LogStart, ev.LogEnd)
			case kafka.PartitionError:
				return nil, fmt.Errorf("read %s: %w", tp, ev.Err)
			}
		}
	}
	return recs, nil
}

// Values returns the values of recs, in order.
func Values(recs []record.Record) [][]byte {
	vs := make([][]byte, len(recs))
	for i := range recs {
		vs[i] = recs[i].Value
	}
	return vs
}
