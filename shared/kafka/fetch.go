package kafka

import (
	"fmt"
	"slices"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"tapedeck.dev/tapedeck/shared/record"
)

// Start begins (or begins again) to fetch a partition at a position; it ends a Pause. Once subscribed, the group must have assigned it
// (ErrFenced). The first record handed over is the first that the log holds at or after p.Offset. A position that does not exist
// is reported by Poll.
func (c *Consumer) Start(p Position) error {
	if p.Offset < 0 {
		return fmt.Errorf("start %s: offset %d is negative", p.TP, p.Offset)
	}
	if c.mustOwn() && !c.isOwned(p.TP) {
		return fmt.Errorf("start %s: %w: group %s has not assigned it to this consumer", p.TP, ErrFenced, c.group)
	}
	st := c.parts[p.TP]
	if st == nil {
		st = &partition{tp: p.TP}
		c.parts[p.TP] = st
	}
	st.next, st.epoch = p.Offset, p.LeaderEpoch
	st.active, st.paused = true, false
	st.failures, st.retryAt, st.reason = 0, time.Time{}, nil
	if err := c.position(st); err != nil {
		st.active = false
		return wrap(err, "start %s at %d", p.TP, p.Offset)
	}
	return nil
}

// Stop ends fetching of a partition and drops what was prefetched; no Batch of it follows. It stays assigned in the group.
// Stopping what is not started does nothing.
func (c *Consumer) Stop(tp TP) error {
	st := c.parts[tp]
	if st == nil || !st.active {
		return nil
	}
	st.active, st.paused, st.retryAt = false, false, time.Time{}
	return wrap(c.hold(st), "stop %s", tp)
}

// Pause and Resume hold back and go on at the next record not yet handed over. Pausing what is paused (or resuming what is
// not) does nothing, and neither does pausing what is not started. What was prefetched is dropped and fetched again.
func (c *Consumer) Pause(tps ...TP) error {
	var sts []*partition
	for _, tp := range tps {
		if st := c.parts[tp]; st != nil && st.active && !st.paused {
			st.paused = true
			sts = append(sts, st)
		}
	}
	return wrap(c.hold(sts...), "pause %v", tps)
}

// Resume is described at Pause.
func (c *Consumer) Resume(tps ...TP) error {
	var sts []*partition
	for _, tp := range tps {
		if st := c.parts[tp]; st != nil && st.active && st.paused {
			st.paused = false
			sts = append(sts, st)
		}
	}
	return wrap(c.position(sts...), "resume %v", tps)
}

// hold makes librdkafka fetch no more of these partitions. When it returns, nothing prefetched of them can come any more.
func (c *Consumer) hold(sts ...*partition) error {
	var ps []kafka.TopicPartition
	for _, st := range sts {
		if st.assigned && !st.libPaused {
			st.libPaused = true
			ps = append(ps, part(st.tp, int64(kafka.OffsetInvalid), record.NoEpoch))
		}
	}
	if len(ps) == 0 {
		return nil
	}
	return c.c.Pause(ps)
}

// position makes librdkafka fetch these partitions from next, whatever it did before.
//
// A partition that librdkafka has is sought; one whose position it gave up (out of range, truncated) cannot be sought and is
// assigned anew. Seeking comes before resuming: resumed first, it would fetch from where it was.
func (c *Consumer) position(sts ...*partition) error {
	var seek, assign []*partition
	for _, st := range sts {
		if st.assigned {
			seek = append(seek, st)
		} else {
			assign = append(assign, st)
		}
	}
	refused, err := c.seek(seek)
	if err != nil {
		return err
	}
	for _, st := range refused {
		if err := c.c.IncrementalUnassign(parts([]TP{st.tp})); err != nil {
			return err
		}
		st.assigned = false
		assign = append(assign, st)
	}
	for _, st := range assign {
		if err := c.c.IncrementalAssign([]kafka.TopicPartition{part(st.tp, st.next, st.epoch)}); err != nil {
			return err
		}
		st.assigned = true
	}
	if err := c.release(sts); err != nil {
		return err
	}
	return c.validate(assign...)
}

// seek seeks each partition to its next and returns those that librdkafka has given up.
func (c *Consumer) seek(sts []*partition) (refused []*partition, err error) {
	if len(sts) == 0 {
		return nil, nil
	}
	ps := make([]kafka.TopicPartition, len(sts))
	for i, st := range sts {
		ps[i] = part(st.tp, st.next, st.epoch)
	}
	res, err := c.c.SeekPartitions(ps)
	if err != nil {
		return nil, err
	}
	byTP := make(map[TP]error, len(res))
	for _, r := range res {
		byTP[tpOf(r)] = r.Error
	}
	for _, st := range sts {
		switch err := byTP[st.tp]; {
		case err == nil:
			st.unvalidated = false
		case errorCode(err) == kafka.ErrState:
			refused = append(refused, st)
		default:
			return nil, fmt.Errorf("seek %s to %d: %w", st.tp, st.next, err)
		}
	}
	return refused, nil
}

// release lifts librdkafka's pause, which outlives an assignment.
func (c *Consumer) release(sts []*partition) error {
	var ps []kafka.TopicPartition
	for _, st := range sts {
		if st.libPaused {
			st.libPaused = false
			ps = append(ps, part(st.tp, int64(kafka.OffsetInvalid), record.NoEpoch))
		}
	}
	if len(ps) == 0 {
		return nil
	}
	return c.c.Resume(ps)
}

// validate makes librdkafka ask the leader whether the log still has the records before next, which it does on a seek but not
// on an assignment. Nothing can have been handed over in between: only Poll hands over.
//
// The seek is refused while the partition is still being taken out of its previous assignment, and also when the broker has refused
// the position already. So nobody waits here: a partition that stays unvalidated is sought when its first record arrives.
func (c *Consumer) validate(sts ...*partition) error {
	var todo []*partition
	for _, st := range sts {
		st.unvalidated = st.epoch >= 0 && st.next > 0
		if st.unvalidated {
			todo = append(todo, st)
		}
	}
	refused, err := c.seek(todo)
	if err != nil {
		return err
	}
	for _, st := range todo {
		st.unvalidated = slices.Contains(refused, st)
	}
	return nil
}

// validated tells whether what has been fetched of st may be handed over; if not, its position is validated now, and what has
// been fetched comes again behind that.
func (c *Consumer) validated(st *partition) bool {
	if !st.unvalidated {
		return true
	}
	// The rest of what has been polled with it is as old, and would look like a hole without data once the position is valid.
	st.stale = c.polls
	if err := c.validate(st); err != nil {
		c.fail(st, wrap(err, "fetch %s at %d", st.tp, st.next))
	}
	return false
}
