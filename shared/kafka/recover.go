package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

const (
	// refusals is how often in a row a position is refused before it is believed. A broker that has just become leader may
	// answer out of range for a valid offset until it has caught up.
	refusals = 4
	// refusalPause is the wait before the position is asked for again, times the number of refusals so far.
	refusalPause = 150 * time.Millisecond
	// lookBound bounds one look at the cluster from within Poll.
	lookBound = 5 * time.Second
)

// clientError handles an error of librdkafka's queue. The Go client gives code and text but not the partition, so that one is
// found by other means.
func (c *Consumer) clientError(e kafka.Error) {
	switch e.Code() {
	case kafka.ErrAutoOffsetReset:
		c.refused(e)
	case kafka.ErrUnknownTopicOrPart, kafka.ErrUnknownTopic, kafka.ErrUnknownPartition, kafka.ErrTopicAuthorizationFailed,
		kafka.ErrUnknownTopicID:
		c.topicTrouble(e)
	case kafka.ErrBadMsg, kafka.ErrBadCompression, kafka.ErrUnderflow, kafka.ErrInvalidMsg, kafka.ErrNotImplemented:
		c.unreadable(e)
	case kafka.ErrGroupAuthorizationFailed:
		if c.group != "" {
			c.emit(GroupError{Err: wrap(e, "group %s", c.group)})
		}
	default:
		c.emit(GroupError{Err: wrap(e, "kafka consumer")})
	}
}

// refused finds the partitions whose position a broker refused: those that librdkafka fetches no more and so does not let us
// seek. Seeking the others to where they are costs them their prefetch and nothing else.
func (c *Consumer) refused(cause kafka.Error) {
	var sts []*partition
	for _, tp := range sortedKeys(c.parts) {
		if st := c.parts[tp]; st.active && !st.paused && st.assigned && st.retryAt.IsZero() {
			sts = append(sts, st)
		}
	}
	failed, err := c.seek(sts)
	if err != nil {
		c.emit(GroupError{Err: wrap(err, "look for the partition of an error (%s)", cause)})
		return
	}
	for _, st := range failed {
		st.failures++
		st.reason = cause
		st.retryAt = time.Now().Add(time.Duration(st.failures) * refusalPause)
	}
}

// retryRefused asks again for refused positions whose wait is over, and reports those that were refused often enough.
func (c *Consumer) retryRefused(ctx context.Context) {
	now := time.Now()
	for _, st := range c.parts {
		if st.retryAt.IsZero() || st.retryAt.After(now) || !st.active || st.paused {
			continue
		}
		st.retryAt = time.Time{}
		if st.failures >= refusals && c.verdict(ctx, st) {
			continue
		}
		if err := c.position(st); err != nil {
			c.fail(st, wrap(err, "fetch %s again at %d", st.tp, st.next))
		}
	}
}

// verdict decides on a position that was refused again and again: true once it has been reported.
func (c *Consumer) verdict(ctx context.Context, st *partition) bool {
	ctx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	ranges, err := logRanges(ctx, c.admin, []TP{st.tp})
	switch {
	case errors.Is(err, ErrNotFound):
		c.fail(st, wrap(err, "fetch %s at %d", st.tp, st.next))
		return true
	case err != nil:
		return false // nobody to ask: try on
	}
	r := ranges[st.tp]
	if st.next < r.Start || st.next > r.End {
		c.halt(st)
		c.emit(OutOfRange{TP: st.tp, Offset: st.next, LogStart: r.Start, LogEnd: r.End})
		return true
	}
	if st.epoch >= 0 {
		// The position lies in the log and is refused all the same: the leader knows the epoch of the record before it, and that
		// epoch ended earlier.
		c.fail(st, fmt.Errorf("fetch %s at %d (leader epoch %d): %w: %w", st.tp, st.next, st.epoch, ErrTruncated, st.reason))
		return true
	}
	st.failures = 0 // the log has come back to the position
	return false
}

// topicTrouble reports the partitions that are gone or forbidden, and the topics of the subscription that are. librdkafka tells
// more than once, so that there may be nothing left to report.
func (c *Consumer) topicTrouble(cause kafka.Error) {
	names := slices.Clone(c.topics)
	for tp, st := range c.parts {
		if st.active && !slices.Contains(names, tp.Topic) {
			names = append(names, tp.Topic)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookBound)
	defer cancel()
	found := map[string]kafka.TopicDescription{}
	err := eachDescription(ctx, c.admin, names, func(t kafka.TopicDescription) error {
		found[t.Name] = t
		return nil
	})
	if err != nil {
		c.emit(GroupError{Err: wrap(cause, "kafka consumer")})
		return
	}
	for _, tp := range sortedKeys(c.parts) {
		st, t := c.parts[tp], found[tp.Topic]
		if !st.active {
			continue
		}
		switch code := t.Error.Code(); {
		case isTopicTrouble(code):
			c.fail(st, wrap(t.Error, "fetch %s", tp))
		case code == kafka.ErrNoError && int(tp.Partition) >= len(t.Partitions):
			c.fail(st, fmt.Errorf("fetch %s: %w: the topic has %d partitions", tp, ErrNotFound, len(t.Partitions)))
		}
	}
	for _, name := range c.topics {
		if t := found[name]; isTopicTrouble(t.Error.Code()) {
			c.emit(GroupError{Err: wrap(t.Error, "subscribed topic %s", name)})
		}
	}
	if errors.Is(wrap(cause, ""), ErrUnauthorized) {
		// The right to describe the topic may be there while the right to read is not; then none is named above.
		c.emit(GroupError{Err: wrap(cause, "kafka consumer")})
	}
}

func isTopicTrouble(code kafka.ErrorCode) bool {
	k := kindOfCode(code)
	return k == ErrNotFound || k == ErrTopicUnauthorized
}

// unreadable stops what a damaged batch may belong to. librdkafka goes on behind such a batch, which would look like a hole
// without data; the text alone tells the offset. Every partition that has been handed over up to there is stopped: stopping one
// too many is repaired by Start, handing over a hole is not.
func (c *Consumer) unreadable(cause kafka.Error) {
	var offset int64
	if n, _ := fmt.Sscanf(afterWord(cause.Error(), "offset "), "%d", &offset); n != 1 {
		offset = -1
	}
	var all, exact []*partition
	for _, tp := range sortedKeys(c.parts) {
		st := c.parts[tp]
		if !st.active || st.paused {
			continue
		}
		all = append(all, st)
		if st.next == offset {
			exact = append(exact, st)
		}
	}
	if len(exact) > 0 {
		all = exact
	}
	for _, st := range all {
		c.fail(st, fmt.Errorf("fetch %s at %d: %w: %w", st.tp, st.next, ErrCorrupt, cause))
	}
}

// fail stops a partition and reports why.
func (c *Consumer) fail(st *partition, err error) {
	c.halt(st)
	c.emit(PartitionError{TP: st.tp, Err: err})
}

func (c *Consumer) halt(st *partition) {
	st.active, st.paused, st.retryAt = false, false, time.Time{}
	if err := c.hold(st); err != nil {
		c.emit(GroupError{Err: wrap(err, "stop %s", st.tp)})
	}
}

// afterWord returns what follows the first word in s, or "".
func afterWord(s, word string) string {
	if _, after, ok := strings.Cut(s, word); ok {
		return after
	}
	return ""
}
