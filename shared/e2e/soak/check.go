package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/e2e/proof"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// Comparison is what the archive holds against what a plain consumer reads from the log.
type Comparison struct {
	Records     int64 // of the log
	Segments    int64
	Lost        int64 // in the log and not in the archive
	Duplicated  int64 // in the archive more than once
	Overlapping int64 // segments that begin before the one before them ends
	Different   int64 // in both, not equal
	Invented    int64 // in the archive and not in the log
	Findings    int   // of verify
	First       string
}

// Err is nil where all is as it must be.
func (c *Comparison) Err() error {
	if c.Lost+c.Duplicated+c.Overlapping+c.Different+c.Invented == 0 && c.Findings == 0 {
		return nil
	}
	return fmt.Errorf("lost %d, duplicated %d, overlapping %d, different %d, invented %d, findings of verify %d; the first: %s",
		c.Lost, c.Duplicated, c.Overlapping, c.Different, c.Invented, c.Findings, c.First)
}

func (c *Comparison) note(n *int64, format string, args ...any) {
	*n++
	if c.First == "" {
		c.First = fmt.Sprintf(format, args...)
	}
}

// Compare verifies the archive and compares it, record by record, with the log.
func Compare(ctx context.Context, bootstrap string, arc *archive.Archive, topics []Topic) (*Comparison, error) {
	var c Comparison
	report, err := arc.Verify(ctx)
	if err != nil {
		return nil, err
	}
	if c.Findings = len(report.Findings); c.Findings > 0 {
		c.First = "verify: " + report.Findings[0].String()
	}
	for _, t := range topics {
		log, err := proof.ReadTopic(ctx, bootstrap, t.Name)
		if err != nil {
			return nil, err
		}
		for part := range t.Partitions {
			if err := c.partition(ctx, arc, record.TopicPartition{Topic: t.Name, Partition: part}, log[part]); err != nil {
				return nil, err
			}
		}
	}
	return &c, nil
}

func (c *Comparison) partition(ctx context.Context, arc *archive.Archive, tp record.TopicPartition, log []record.Record) error {
	want := make(map[int64]*record.Record, len(log))
	for i := range log {
		want[log[i].Offset] = &log[i]
	}
	c.Records += int64(len(log))
	seen := make(map[int64]bool, len(log))
	next := int64(0)
	st, prefix := arc.Store(), segment.PartitionPrefix(arc.TopicsDir(), tp.Topic, tp.Partition)
	for after, more := "", true; more; {
		objs, m, err := st.List(ctx, prefix, after, 0)
		if err != nil {
			return err
		}
		for _, o := range objs {
			data, err := st.Get(ctx, o.Key)
			if err != nil {
				return err
			}
			rd, err := segment.NewReader(o.Key, data)
			if err != nil {
				return err
			}
			h := rd.Header()
			c.Segments++
			if h.Start < next {
				c.note(&c.Overlapping, "%s begins at %d, the one before it ends at %d", o.Key, h.Start, next)
			}
			next = max(next, h.Next)
			for {
				var r record.Record
				if err := rd.Next(&r); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					return err
				}
				switch w := want[r.Offset]; {
				case seen[r.Offset]:
					c.note(&c.Duplicated, "%s@%d", tp, r.Offset)
				case w == nil:
					c.note(&c.Invented, "%s@%d", tp, r.Offset)
				case !record.Equal(w, &r):
					c.note(&c.Different, "%s@%d", tp, r.Offset)
				}
				seen[r.Offset] = true
			}
			after = o.Key
		}
		more = m
	}
	for i := range log {
		if !seen[log[i].Offset] {
			c.note(&c.Lost, "%s@%d", tp, log[i].Offset)
		}
	}
	return nil
}

// partitionsOf names the partitions of topics.
func partitionsOf(topics []Topic) (tps []kafka.TP) {
	for _, t := range topics {
		for part := range t.Partitions {
			tps = append(tps, kafka.TP{Topic: t.Name, Partition: part})
		}
	}
	return tps
}

// CommitsWithinArchive checks that no position that the group has stored lies beyond the newest segment of its partition.
func CommitsWithinArchive(ctx context.Context, admin *kafka.Admin, arc *archive.Archive, group string, topics []Topic) error {
	tps := partitionsOf(topics)
	// The commits are read first: the archive only grows.
	commits, err := admin.CommittedOffsets(ctx, group, tps)
	if err != nil {
		return nil // the broker is away for a moment; the next look sees it
	}
	for _, tp := range tps {
		at := commits[tp].Offset
		if at <= 0 {
			continue
		}
		tail, err := arc.Tail(ctx, tp.Topic, tp.Partition, -1)
		if err != nil {
			return err
		}
		if tail == nil || tail.Header.Next < at {
			return fmt.Errorf("group %s has stored position %d of %s, beyond the archive", group, at, tp)
		}
	}
	return nil
}

// AwaitArchived waits until the archive holds everything below the log's end, as it is now.
func AwaitArchived(ctx context.Context, admin *kafka.Admin, arc *archive.Archive, topics []Topic) error {
	tps := partitionsOf(topics)
	ranges, err := admin.Offsets(ctx, tps)
	if err != nil {
		return err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := 0; i < len(tps); {
		tp := tps[i]
		next := int64(0)
		tail, err := arc.Tail(ctx, tp.Topic, tp.Partition, -1)
		if err == nil && tail != nil {
			next = tail.Header.Next
		}
		if err == nil && next >= ranges[tp].End {
			i++
			continue
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is archived up to %d of %d: %w", tp, next, ranges[tp].End, errors.Join(ctx.Err(), err))
		case <-tick.C:
		}
	}
	return nil
}
