package restore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tapedeck.dev/tapedeck/replayer/offsetmap"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
)

const pollBound = 100 * time.Millisecond

// Entries reads what every restore has committed to the target topic targetID, as the progress topic says it ("" for all topics): the offset maps. It
// waits for transactions that are open in the progress topic. kafka.ErrNotFound where there is no such progress topic: nothing was ever restored.
func Entries(ctx context.Context, cfg kafka.Client, progressTopic, targetID string) ([]offsetmap.Entry, error) {
	admin, err := kafka.NewAdmin(cfg)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	topics, err := admin.Topics(ctx, progressTopic)
	if err != nil {
		return nil, err
	}
	t, ok := topics[progressTopic]
	if !ok {
		return nil, fmt.Errorf("progress topic %s: %w", progressTopic, kafka.ErrNotFound)
	}
	l := newLedger()
	for p := range t.Partitions {
		if err := readLog(ctx, cfg, admin, kafka.TP{Topic: progressTopic, Partition: p}, l.add); err != nil {
			return nil, err
		}
	}
	all, err := l.entries()
	if err != nil || targetID == "" {
		return all, err
	}
	out := all[:0]
	for _, e := range all {
		if e.TargetID == targetID {
			out = append(out, e)
		}
	}
	return out, nil
}

// readLog hands over every committed record of a partition, as far as its log goes now. The log's end is asked for without regard to open
// transactions, and then waited for: behind another job's open transaction our own committed progress would be invisible.
func readLog(ctx context.Context, cfg kafka.Client, admin *kafka.Admin, tp kafka.TP, f func(*record.Record) error) error {
	ranges, err := admin.Offsets(ctx, []kafka.TP{tp})
	if err != nil {
		return err
	}
	r := ranges[tp]
	_, err = scan(ctx, cfg, tp, r.Start, r.End, func(rec *record.Record) (bool, error) { return true, f(rec) })
	return err
}

// scan reads the committed records of [from, until), waiting until all of that is decided, and calls f with each until it returns false. done
// tells whether f saw them all.
func scan(ctx context.Context, cfg kafka.Client, tp kafka.TP, from, until int64, f func(*record.Record) (bool, error)) (done bool, err error) {
	if from >= until {
		return true, nil
	}
	c, err := kafka.NewConsumer(kafka.ConsumerConfig{Client: cfg, QueuedMaxBytes: 8 << 20})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.Start(kafka.Position{TP: tp, Offset: from, LeaderEpoch: record.NoEpoch}); err != nil {
		return false, err
	}
	for {
		events, err := c.Poll(ctx, pollBound)
		if err != nil {
			return false, fmt.Errorf("read %s up to %d (an open transaction of another producer may hold it up): %w", tp, until, err)
		}
		for _, ev := range events {
			switch ev := ev.(type) {
			case kafka.Batch:
				for i := range ev.Records {
					if ev.Records[i].Offset >= until {
						return true, nil
					}
					if more, err := f(&ev.Records[i]); err != nil || !more {
						return false, err
					}
				}
				if ev.Records[len(ev.Records)-1].Offset+1 >= until {
					return true, nil
				}
			case kafka.EndOfPartition:
				if ev.Offset >= until {
					return true, nil
				}
			case kafka.OutOfRange:
				return false, fmt.Errorf("read %s: offset %d is outside of its log [%d, %d)", tp, ev.Offset, ev.LogStart, ev.LogEnd)
			case kafka.PartitionError:
				return false, fmt.Errorf("read %s: %w", tp, ev.Err)
			case kafka.GroupError:
				if errors.Is(ev.Err, kafka.ErrFatal) {
					return false, fmt.Errorf("read %s: %w", tp, ev.Err)
				}
			}
		}
	}
}
