package archiver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"tapedeck.dev/tapedeck/archiver/partition"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

const (
	parallelRecoveries = 16
	parallelPuts       = 64
	// goneTries is how often a topic may be missing from the cluster's answer before it is taken for deleted: a broker that has
	// just started, or just heard of a topic, answers so for a moment.
	goneTries = 5

	workerRetryMin = 200 * time.Millisecond
	workerRetryMax = 10 * time.Second
)

// workers do what waits for Kafka's admin API, the store or the registry.
type workers struct {
	cons      *kafka.Consumer
	admin     *kafka.Admin
	arc       *archive.Archive
	schemas   *schemas
	clusterID string
	isolation string
	start     Start
	first     *firstLook
	recreated partition.RecreatedPolicy
	policy    archive.RetryPolicy
	log       *zap.Logger
	m         *metrics
	trouble   *trouble

	recoveries   *semaphore.Weighted
	closing      *semaphore.Weighted // bytes of objects being made while their segments are there too
	closingBytes int64               // all of it
}

var errTopicGone = errors.New("the topic is not in Kafka")

// topicID reads the id that a topic has now.
func (w *workers) topicID(ctx context.Context, topic string) (string, error) {
	ts, err := w.admin.Topics(ctx, topic)
	if err != nil {
		return "", err
	}
	t, ok := ts[topic]
	switch {
	case !ok:
		return "", fmt.Errorf("%w: %s", errTopicGone, topic)
	case t.ID == "":
		return "", fmt.Errorf("no topic id of %s: brokers before 2.8 cannot be archived", topic)
	}
	return t.ID, nil
}

// backoff of the n-th failure in a row, n from 1: what the store has asked for, and full jitter, so that the partitions of many processes
// that failed together do not come back together.
func backoff(n int, err error) time.Duration {
	return store.RetryAfter(err) + rand.N(min(workerRetryMin<<min(n-1, 10), workerRetryMax))
}

// recover finds out where a partition goes on. It repeats what may pass until ctx ends; then it returns nil.
func (w *workers) recover(ctx context.Context, tp kafka.TP, after time.Duration) partition.Event {
	if pause(ctx, after) != nil {
		return nil
	}
	gone := 0
	for n := 1; ; n++ {
		ev, err := w.recoverOnce(ctx, tp)
		switch {
		case err == nil:
			w.trouble.clear(tp)
			return ev
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errTopicGone):
			if gone++; gone >= goneTries {
				return partition.RecoveryRefused{Reason: partition.Gone, Err: err}
			}
		}
		if why, final := finalReason(err); final {
			return partition.RecoveryRefused{Reason: why, Err: err}
		}
		w.trouble.set(tp, err)
		w.log.Warn("recover; trying again", zap.Stringer("partition", tp), zap.Int("attempt", n), zap.Error(err))
		if pause(ctx, backoff(n, err)) != nil {
			return nil
		}
	}
}

func (w *workers) recoverOnce(ctx context.Context, tp kafka.TP) (partition.Event, error) {
	if err := w.recoveries.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer w.recoveries.Release(1)
	// The id is read before anything is fetched. Read again before each create it tells that all in between is of one log.
	id, err := w.topicID(ctx, tp.Topic)
	if err != nil {
		return nil, err
	}
	committed, err := w.cons.Committed(ctx, []kafka.TP{tp})
	if err != nil {
		return nil, err
	}
	identity := segment.LogIdentity{ClusterID: w.clusterID, TopicID: id, Topic: tp.Topic, Partition: tp.Partition, Isolation: w.isolation}
	c, err := w.findChain(ctx, identity, committed[tp])
	if err != nil {
		return nil, fmt.Errorf("find the tail of %s in the archive: %w", tp, err)
	}
	var begin partition.Begin
	switch {
	case c.tail != nil:
	case c.incarnation > 1:
		begin.Source = "earliest: the topic was created again"
	default:
		if begin, err = w.begin(ctx, tp); err != nil {
			return nil, fmt.Errorf("find where %s begins: %w", tp, err)
		}
	}
	// The log's end is read after the tail: another archiver may be at work, and a tail beyond the end would look like a truncation.
	ranges, err := w.admin.Offsets(ctx, []kafka.TP{tp})
	if err != nil {
		return nil, err
	}
	if begin.Offset == atEnd {
		begin.Offset = ranges[tp].End
	}
	return partition.Recovered{Identity: identity, Incarnation: c.incarnation, Tail: c.tail, Committed: c.committed, Log: ranges[tp], Begin: begin}, nil
}

// finalReason says whether an error of the archive is one that repeating does not cure.
func finalReason(err error) (partition.Reason, bool) {
	switch {
	case errors.Is(err, archive.ErrOtherLog):
		return partition.OtherLog, true
	case errors.Is(err, archive.ErrForeign), errors.Is(err, archive.ErrBroken):
		return partition.BrokenChain, true
	case errors.Is(err, store.ErrInvalid):
		return partition.Refused, true
	case errors.Is(err, errStart):
		return partition.BadStart, true
	}
	return "", false
}

// put closes a sealed segment and brings it into the store. It repeats what may pass until ctx ends; then it returns nil, and the
// object may be there or not.
func (w *workers) put(ctx context.Context, s *partition.Sealed, with store.Attributes) partition.Event {
	tp := kafka.TP{Topic: s.ID.Topic, Partition: s.ID.Partition}
	began := time.Now()
	if ev, ok := w.sameTopic(ctx, s); !ok {
		return ev
	}
	schemas, lacking := w.schemas.of(ctx, s)
	data, h, err := w.close(ctx, s, schemas)
	if ctx.Err() != nil && data == nil {
		return nil
	}
	if err != nil {
		return partition.PutFailed{Reason: partition.Refused, Err: err}
	}
	policy := w.policy
	policy.OnRetry = func(key string, attempt int, err error) {
		w.m.retries.Inc()
		w.trouble.set(tp, err)
		if attempt&(attempt-1) == 0 { // 1, 2, 4, 8, …: an outage of hours must not fill the log
			w.log.Warn("create segment; trying again", zap.String("object", key), zap.Int("attempt", attempt), zap.Error(err))
		}
	}
	out, err := w.arc.CreateAs(ctx, segment.Incarnation(tp.Topic, s.Incarnation), h, data, policy, with)
	if err != nil {
		if why, final := finalReason(err); final {
			return partition.PutFailed{Reason: why, Err: err}
		}
		if ctx.Err() != nil {
			return nil
		}
		return partition.PutFailed{Reason: partition.Refused, Err: err}
	}
	w.trouble.clear(tp)
	w.m.putTime.Observe(time.Since(began).Seconds())
	if out.Adopted {
		w.m.adopted.Inc()
	} else {
		w.schemas.written(kafka.TP{Topic: segment.Incarnation(tp.Topic, s.Incarnation), Partition: tp.Partition}, s.Start, s.Next, lacking)
		w.m.records.WithLabelValues(tp.Topic).Add(float64(s.Records))
		w.m.segments.WithLabelValues(tp.Topic, string(s.Cause)).Inc()
		w.m.bytes.WithLabelValues(tp.Topic).Add(float64(out.Tail.Size))
		w.log.Debug("segment confirmed", zap.Stringer("partition", tp), zap.Int64("start", s.Start), zap.Int64("next", s.Next),
			zap.Int64("records", s.Records), zap.Int64("bytes", out.Tail.Size), zap.String("cause", string(s.Cause)))
	}
	return partition.PutDone{Adopted: out.Adopted, Tail: out.Tail}
}

// close makes the object. For a moment object and segment are both in memory; how much of that there is at a time is bounded.
func (w *workers) close(ctx context.Context, s *partition.Sealed, schemas []segment.Schema) ([]byte, *segment.Header, error) {
	n := min(s.MemBytes, w.closingBytes)
	if err := w.closing.Acquire(ctx, n); err != nil {
		return nil, nil, err
	}
	defer w.closing.Release(n)
	return s.Writer.Close(s.Next, s.Chain, schemas)
}

// sameTopic reads the topic's id once more. While Kafka does not answer nothing is created: an object of a topic that was created
// again could not be taken back.
func (w *workers) sameTopic(ctx context.Context, s *partition.Sealed) (partition.Event, bool) {
	tp := kafka.TP{Topic: s.ID.Topic, Partition: s.ID.Partition}
	gone := 0
	for n := 1; ; n++ {
		id, err := w.topicID(ctx, tp.Topic)
		switch {
		case err == nil && id == s.ID.TopicID:
			return nil, true
		case err == nil:
			return partition.PutFailed{Reason: partition.OtherLog, Err: fmt.Errorf("the topic was deleted and created again: its id is %s, archived is %s; "+
				"set topic.recreated to incarnation to archive it as the topic's next one, or archive it under another prefix of the store", id, s.ID.TopicID)}, false
		case ctx.Err() != nil:
			return nil, false
		case errors.Is(err, errTopicGone):
			if gone++; gone >= goneTries {
				return partition.PutFailed{Reason: partition.Gone, Err: err}, false
			}
		}
		w.trouble.set(tp, err)
		w.log.Warn("read topic id before a create; trying again", zap.Stringer("partition", tp), zap.Error(err))
		if pause(ctx, backoff(n, err)) != nil {
			return nil, false
		}
	}
}
