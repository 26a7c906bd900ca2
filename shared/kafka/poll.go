package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"tapedeck.dev/tapedeck/shared/record"
)

const (
	// pollSlice bounds how late Poll sees the end of its context.
	pollSlice = 25 * time.Millisecond
	// pollRecords and pollBytes bound what one Poll returns, in all partitions together.
	pollRecords = 10_000
	pollBytes   = 32 << 20
)

// Poll waits up to bound for events and returns them in order; none is not an error. It must be called at least every
// max.poll.interval.ms, or the group goes on without us. When ctx ends while there is nothing to return, its error is returned.
func (c *Consumer) Poll(ctx context.Context, bound time.Duration) ([]Event, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c.c.IsClosed() {
		return nil, fmt.Errorf("poll: %w", ErrClosed)
	}
	c.out = &collector{maxBatch: c.maxBatch, open: map[*partition]int{}}
	defer func() { c.out = nil }()
	for _, e := range c.left {
		c.out.add(e)
	}
	c.left = nil

	for deadline := time.Now().Add(bound); ; {
		c.retryRefused(ctx)
		wait := time.Duration(0)
		if c.out.empty() {
			// Never negative: to librdkafka that means for ever, and the deadline may have passed by a millisecond.
			wait = max(0, min(pollSlice, time.Until(deadline)))
		}
		// Rebalances are handled within this call and give nil.
		ev := c.c.Poll(int(wait.Milliseconds()))
		if ev != nil {
			c.handle(ev)
			if c.out.full() {
				return c.out.events(), nil
			}
			continue
		}
		if !c.out.empty() {
			return c.out.events(), nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !time.Now().Before(deadline) {
			return nil, nil
		}
	}
}

func (c *Consumer) handle(ev kafka.Event) {
	switch e := ev.(type) {
	case *kafka.Message:
		c.message(e)
	case kafka.PartitionEOF:
		c.endOfPartition(kafka.TopicPartition(e))
	case kafka.Error:
		c.clientError(e)
	}
}

// message hands over a record, unless the partition is not being fetched or the record lies below the position: librdkafka
// drops what a seek or a pause made stale, and this makes sure.
func (c *Consumer) message(m *kafka.Message) {
	st := c.lookup(m.TopicPartition)
	if st == nil || !st.active || st.paused {
		return
	}
	if err := m.TopicPartition.Error; err != nil {
		c.fail(st, wrap(err, "fetch %s at %d", st.tp, st.next))
		return
	}
	if int64(m.TopicPartition.Offset) < st.next || !c.validated(st) {
		return
	}
	r := toRecord(m, st.tp.Topic)
	st.next, st.epoch = r.Offset+1, r.LeaderEpoch
	st.failures, st.reason = 0, nil
	c.out.addRecord(st, r)
}

func (c *Consumer) endOfPartition(p kafka.TopicPartition) {
	st := c.lookup(p)
	if st == nil || !st.active || st.paused || int64(p.Offset) < st.next || !c.validated(st) {
		return
	}
	if int64(p.Offset) > st.next {
		// Past markers, which may be of a later epoch than the last record's: with that one the position would look truncated.
		st.next, st.epoch = int64(p.Offset), record.NoEpoch
	}
	st.failures, st.reason = 0, nil
	c.out.addFor(st, EndOfPartition{TP: st.tp, Offset: st.next})
}

func (c *Consumer) lookup(p kafka.TopicPartition) *partition {
	if l := c.last; l != nil && l.tp.Partition == p.Partition && p.Topic != nil && l.tp.Topic == *p.Topic {
		return l
	}
	c.last = c.parts[tpOf(p)]
	return c.last
}
