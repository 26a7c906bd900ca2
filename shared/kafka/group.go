package kafka

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// rebalance runs within Poll and Close.
//
// librdkafka wants each rebalance confirmed by an (un)assign call. An assignment is confirmed with no partition, so that nothing
// is fetched; Start adds the partition later. A revocation takes out those that were started; the call returns when nothing
// fetched of them can come any more.
func (c *Consumer) rebalance(_ *kafka.Consumer, ev kafka.Event) error {
	switch e := ev.(type) {
	case kafka.AssignedPartitions:
		tps := namesOf(e.Partitions)
		err := c.c.IncrementalAssign(nil)
		c.mu.Lock()
		for _, tp := range tps {
			c.owned[tp] = true
		}
		c.mu.Unlock()
		c.assignments.Add(1)
		if len(tps) > 0 {
			c.emit(Assigned{Partitions: tps})
		}
		if err != nil {
			c.emit(GroupError{Err: wrap(err, "accept partitions of group %s", c.group)})
		}
	case kafka.RevokedPartitions:
		// Before the call below, which forgets it.
		lost := c.c.AssignmentLost()
		tps := namesOf(e.Partitions)
		c.mu.Lock()
		for _, tp := range tps {
			delete(c.owned, tp)
		}
		c.mu.Unlock()
		var assigned []TP
		for _, tp := range tps {
			if st := c.parts[tp]; st != nil {
				if st.assigned {
					assigned = append(assigned, tp)
				}
				// libPaused stays: librdkafka keeps that flag.
				st.active, st.paused, st.assigned = false, false, false
			}
		}
		err := c.c.IncrementalUnassign(parts(assigned))
		if len(tps) > 0 {
			c.emit(Revoked{Partitions: tps, Lost: lost})
		}
		if err != nil {
			c.emit(GroupError{Err: wrap(err, "give up partitions of group %s", c.group)})
		}
	}
	return nil
}

// Assignments counts the answers of the group to a join, those without a partition for this consumer included (Assigned is an event only
// where there is one).
func (c *Consumer) Assignments() int64 { return c.assignments.Load() }

func namesOf(ps []kafka.TopicPartition) []TP {
	tps := make([]TP, len(ps))
	for i, p := range ps {
		tps[i] = tpOf(p)
	}
	sort.Slice(tps, func(i, j int) bool { return tps[i].Less(tps[j]) })
	return tps
}

// mustOwn: a consumer that has never subscribed reads what it likes, and stores positions as long as the group has no member.
func (c *Consumer) mustOwn() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.subscribed
}

func (c *Consumer) isOwned(tp TP) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owned[tp]
}

// Commit stores positions for the group, synchronously. ErrFenced where the partition is no longer ours, ErrRebalancing where the
// group cannot take it now. When ctx ends first, the positions may be stored or not.
func (c *Consumer) Commit(ctx context.Context, offs map[TP]CommitOffset) error {
	if c.group == "" {
		return errors.New("commit: this consumer has no group")
	}
	if len(offs) == 0 {
		return nil
	}
	if err := c.mayCommit(offs); err != nil {
		return err
	}
	if err := c.begin(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	result := make(chan error, 1)
	go func() {
		defer c.ops.Done()
		res, err := c.c.CommitOffsets(commitParts(offs))
		for _, r := range res {
			if err == nil && r.Error != nil {
				err = fmt.Errorf("%s: %w", tpOf(r), r.Error)
			}
		}
		result <- err
	}()
	select {
	case err := <-result:
		return wrap(err, "commit positions of group %s", c.group)
	case <-ctx.Done():
		return fmt.Errorf("commit positions of group %s: %w", c.group, ctx.Err())
	}
}

// mayCommit refuses what cannot be right. The broker takes any partition from a current member, so that a member could set
// back a partition that another owns by now.
func (c *Consumer) mayCommit(offs map[TP]CommitOffset) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, tp := range sortedKeys(offs) {
		o := offs[tp]
		if o.Offset < 0 {
			return fmt.Errorf("commit position of %s: offset %d is negative", tp, o.Offset)
		}
		if len(o.Metadata) >= 4096 {
			return fmt.Errorf("commit position of %s: %d bytes of metadata, the broker takes less than 4096", tp, len(o.Metadata))
		}
		if c.subscribed && !c.owned[tp] {
			return fmt.Errorf("commit position of %s: %w: group %s has taken it back", tp, ErrFenced, c.group)
		}
	}
	return nil
}

// Committed reads the group's stored positions; a partition without one has Offset −1. It waits for pending transactions (stable offsets).
func (c *Consumer) Committed(ctx context.Context, tps []TP) (map[TP]CommitOffset, error) {
	if c.group == "" {
		return nil, errors.New("read committed offsets: this consumer has no group")
	}
	if err := c.begin(); err != nil {
		return nil, fmt.Errorf("read committed offsets: %w", err)
	}
	defer c.ops.Done()
	ctx, cancel := bounded(ctx)
	defer cancel()
	return committedOffsets(ctx, c.admin, c.group, tps)
}

// Watermarks asks the broker for log start and log end (the high watermark) of tp.
func (c *Consumer) Watermarks(ctx context.Context, tp TP) (logStart, logEnd int64, err error) {
	if err := c.begin(); err != nil {
		return 0, 0, fmt.Errorf("list offsets of %s: %w", tp, err)
	}
	defer c.ops.Done()
	ctx, cancel := bounded(ctx)
	defer cancel()
	rs, err := logRanges(ctx, c.admin, []TP{tp})
	if err != nil {
		return 0, 0, err
	}
	return rs[tp].Start, rs[tp].End, nil
}

// GroupMetadata is the opaque member and generation that fences SendOffsets.
type GroupMetadata struct{ m *kafka.ConsumerGroupMetadata }

// GroupMetadata returns the current membership; ErrFenced where the group has gone on without us.
func (c *Consumer) GroupMetadata() (*GroupMetadata, error) {
	if c.group == "" {
		return nil, errors.New("group metadata: this consumer has no group")
	}
	if err := c.begin(); err != nil {
		return nil, fmt.Errorf("group metadata: %w", err)
	}
	defer c.ops.Done()
	// A member that the group has thrown out and that has not polled since must not speak for its old generation.
	if c.c.AssignmentLost() {
		return nil, fmt.Errorf("group metadata of %s: %w", c.group, ErrFenced)
	}
	m, err := c.c.GetConsumerGroupMetadata()
	if err != nil {
		return nil, wrap(err, "group metadata of %s", c.group)
	}
	return &GroupMetadata{m}, nil
}
