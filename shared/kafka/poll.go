package kafka

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"tapedeck.dev/tapedeck/shared/record"
)

const (
	// pollSlice bounds how late Poll sees the end of its context.
	pollSlice = 25 * time.Millisecond
	// pollRecords and pollBytes (unless configured) bound what one Poll returns, in all partitions together.
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
	c.out = &collector{maxBatch: c.maxBatch, maxBytes: c.maxBytes, open: map[*partition]int{}}
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
		if c.poll(int(wait.Milliseconds())) {
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

// poll waits up to waitMs for events, handles them, and reports whether there was one.
func (c *Consumer) poll(waitMs int) bool {
	c.polls++
	if c.bulk != nil {
		return c.bulk.poll(waitMs, c.bulkMessage, c.handle)
	}
	ev := c.c.Poll(waitMs) // rebalances are handled within this call and give nil
	if ev != nil {
		c.handle(ev)
	}
	return ev != nil
}

func (c *Consumer) handle(ev kafka.Event) {
	switch e := ev.(type) {
	case *kafka.Message:
		tp := tpOf(e.TopicPartition)
		c.message(tp, toRecord(e, tp.Topic), e.TopicPartition.Error)
	case kafka.AssignedPartitions, kafka.RevokedPartitions:
		_ = c.rebalance(c.c, ev) // always nil: what goes wrong is an event
	case kafka.PartitionEOF:
		c.endOfPartition(kafka.TopicPartition(e))
	case kafka.Error:
		c.clientError(e)
	}
}

// bulkMessage hands over a record whose bytes are in memory that it shares with others. They are copied, unless the consumer's user has
// said that it keeps none: one record that is kept would hold the memory of hundreds.
func (c *Consumer) bulkMessage(m *bulkMessage) {
	r := m.rec
	if !c.shareMemory && m.err == nil {
		both := append(append(make([]byte, 0, len(r.Key)+len(r.Value)), r.Key...), r.Value...)
		if r.Key != nil {
			r.Key = both[:len(r.Key):len(r.Key)]
		}
		if r.Value != nil {
			r.Value = both[len(r.Key):]
		}
		for i := range r.Headers {
			r.Headers[i].Value = bytes.Clone(r.Headers[i].Value)
		}
	}
	c.message(TP{Topic: m.topic, Partition: r.Partition}, r, m.err)
}

// message hands over a record, unless the partition is not being fetched or the record lies below the position: librdkafka
// drops what a seek or a pause made stale, and this makes sure.
func (c *Consumer) message(tp TP, r record.Record, err error) {
	st := c.lookup(tp)
	if st == nil || !st.active || st.paused || st.stale == c.polls {
		return
	}
	if err != nil {
		c.fail(st, wrap(err, "fetch %s at %d", st.tp, st.next))
		return
	}
	if r.Offset < st.next || !c.validated(st) {
		return
	}
	r.Topic = st.tp.Topic
	st.next, st.epoch = r.Offset+1, r.LeaderEpoch
	st.failures, st.reason = 0, nil
	c.out.addRecord(st, r)
}

func (c *Consumer) endOfPartition(p kafka.TopicPartition) {
	st := c.lookup(tpOf(p))
	if st == nil || !st.active || st.paused || st.stale == c.polls || int64(p.Offset) < st.next || !c.validated(st) {
		return
	}
	if int64(p.Offset) > st.next {
		// Past markers, which may be of a later epoch than the last record's: with that one the position would look truncated.
		st.next, st.epoch = int64(p.Offset), record.NoEpoch
	}
	st.failures, st.reason = 0, nil
	c.out.addFor(st, EndOfPartition{TP: st.tp, Offset: st.next})
}

func (c *Consumer) lookup(tp TP) *partition {
	if l := c.last; l != nil && l.tp == tp {
		return l
	}
	c.last = c.parts[tp]
	return c.last
}
