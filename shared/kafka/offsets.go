package kafka

import (
	"context"
	"fmt"
	"slices"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"tapedeck.dev/tapedeck/shared/record"
)

// DeleteRecords deletes every record below the given offsets.
func (a *Admin) DeleteRecords(ctx context.Context, before map[TP]int64) error {
	if len(before) == 0 {
		return nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := a.reachable(ctx); err != nil {
		return err
	}
	ps := make([]kafka.TopicPartition, 0, len(before))
	for _, tp := range sortedKeys(before) {
		if before[tp] < 0 {
			return fmt.Errorf("delete records of %s: offset %d is negative", tp, before[tp])
		}
		ps = append(ps, part(tp, before[tp], -1))
	}
	res, err := a.a.DeleteRecords(ctx, ps)
	if err != nil {
		return wrap(err, "delete records")
	}
	for _, r := range res.DeleteRecordsResults {
		if e := r.TopicPartition.Error; e != nil {
			tp := tpOf(r.TopicPartition)
			return wrap(e, "delete records of %s below %d", tp, before[tp])
		}
	}
	return nil
}

// Offsets returns log start and log end (high watermark) per partition.
func (a *Admin) Offsets(ctx context.Context, tps []TP) (map[TP]LogRange, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := a.reachable(ctx); err != nil {
		return nil, err
	}
	return logRanges(ctx, a.a, tps)
}

// StableOffsets returns per partition the offset up to which a consumer with that isolation level reads now: under read_committed the last
// stable offset, which an open transaction holds back, else the log end.
func (a *Admin) StableOffsets(ctx context.Context, tps []TP, isolation string) (map[TP]int64, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := a.reachable(ctx); err != nil {
		return nil, err
	}
	level := kafka.IsolationLevelReadCommitted
	if isolation == "read_uncommitted" {
		level = kafka.IsolationLevelReadUncommitted
	}
	return listOffsetsAs(ctx, a.a, tps, kafka.LatestOffsetSpec, level)
}

// logRanges works on any client's connections. The end is asked first: were the start asked first, a deletion in between
// could give a start above the end.
func logRanges(ctx context.Context, a *kafka.AdminClient, tps []TP) (map[TP]LogRange, error) {
	ends, err := listOffsets(ctx, a, tps, kafka.LatestOffsetSpec)
	if err != nil {
		return nil, err
	}
	starts, err := listOffsets(ctx, a, tps, kafka.EarliestOffsetSpec)
	if err != nil {
		return nil, err
	}
	out := make(map[TP]LogRange, len(tps))
	for _, tp := range tps {
		out[tp] = LogRange{Start: starts[tp], End: max(ends[tp], starts[tp])}
	}
	return out, nil
}

// listOffsets asks the leaders for one offset per partition, past the last stable offset too.
func listOffsets(ctx context.Context, a *kafka.AdminClient, tps []TP, spec kafka.OffsetSpec) (map[TP]int64, error) {
	return listOffsetsAs(ctx, a, tps, spec, kafka.IsolationLevelReadUncommitted)
}

func listOffsetsAs(ctx context.Context, a *kafka.AdminClient, tps []TP, spec kafka.OffsetSpec, isolation kafka.IsolationLevel) (map[TP]int64, error) {
	out := make(map[TP]int64, len(tps))
	if len(tps) == 0 {
		return out, nil
	}
	req := make(map[kafka.TopicPartition]kafka.OffsetSpec, len(tps))
	for _, tp := range tps {
		req[kafka.TopicPartition{Topic: &tp.Topic, Partition: tp.Partition}] = spec
	}
	res, err := a.ListOffsets(ctx, req, kafka.SetAdminIsolationLevel(isolation))
	if errorCode(err) == kafka.ErrNoent {
		// librdkafka's answer when it finds no leader for any of them, as for what does not exist.
		return nil, noLeaders(ctx, a, tps, err)
	}
	if err != nil {
		return nil, wrap(err, "list offsets")
	}
	for p, info := range res.ResultInfos {
		tp := tpOf(p)
		if info.Error.Code() != kafka.ErrNoError {
			return nil, wrap(info.Error, "list offsets of %s", tp)
		}
		out[tp] = int64(info.Offset)
	}
	for _, tp := range tps {
		if _, ok := out[tp]; !ok {
			return nil, fmt.Errorf("list offsets of %s: %w: no answer", tp, ErrNotFound)
		}
	}
	return out, nil
}

// noLeaders tells a partition that does not exist from one that has no leader at the moment.
func noLeaders(ctx context.Context, a *kafka.AdminClient, tps []TP, cause error) error {
	var names []string
	for _, tp := range tps {
		if !slices.Contains(names, tp.Topic) {
			names = append(names, tp.Topic)
		}
	}
	found, err := describeTopics(ctx, a, names)
	if err != nil {
		return err
	}
	for _, tp := range tps {
		if tp.Partition >= found[tp.Topic].Partitions {
			return fmt.Errorf("list offsets of %s: %w", tp, ErrNotFound)
		}
	}
	return wrap(cause, "list offsets")
}

// OffsetsForTime returns per partition the first offset whose timestamp is ≥ ms, or the log end.
func (a *Admin) OffsetsForTime(ctx context.Context, tps []TP, ms int64) (map[TP]int64, error) {
	if ms < 0 {
		return nil, fmt.Errorf("find offsets for time %d: the time is negative", ms)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := a.reachable(ctx); err != nil {
		return nil, err
	}
	out, err := listOffsets(ctx, a.a, tps, kafka.NewOffsetSpecForTimestamp(ms))
	if err != nil {
		return nil, err
	}
	var none []TP
	for tp, o := range out {
		if o < 0 {
			none = append(none, tp)
		}
	}
	ends, err := listOffsets(ctx, a.a, none, kafka.LatestOffsetSpec)
	if err != nil {
		return nil, err
	}
	for tp, o := range ends {
		out[tp] = o
	}
	return out, nil
}

// CommittedOffsets reads a group's stored positions without joining it (only partitions that have one). It waits for
// pending transactions (stable offsets).
func (a *Admin) CommittedOffsets(ctx context.Context, group string, tps []TP) (map[TP]CommitOffset, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := a.reachable(ctx); err != nil {
		return nil, err
	}
	reader, err := a.groups.admin()
	if err != nil {
		return nil, wrap(err, "read committed offsets of group %s", group)
	}
	all, err := committedOffsets(ctx, reader, group, tps)
	if err != nil {
		return nil, err
	}
	for tp, o := range all {
		if o.Offset < 0 {
			delete(all, tp)
		}
	}
	return all, nil
}

// GroupOffsets reads all stored positions of a group without joining it; none where the group is not known. It waits for pending transactions
// (stable offsets).
func (a *Admin) GroupOffsets(ctx context.Context, group string) (map[TP]CommitOffset, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := a.reachable(ctx); err != nil {
		return nil, err
	}
	reader, err := a.groups.admin()
	if err != nil {
		return nil, wrap(err, "read committed offsets of group %s", group)
	}
	out := map[TP]CommitOffset{}
	if err := groupOffsets(ctx, reader, kafka.ConsumerGroupTopicPartitions{Group: group}, out); err != nil {
		return nil, err
	}
	for tp, o := range out {
		if o.Offset < 0 {
			delete(out, tp)
		}
	}
	return out, nil
}

// committedOffsets works on a consumer's connections (see groupReader for why on no others); a partition without a stored position has Offset −1.
func committedOffsets(ctx context.Context, a *kafka.AdminClient, group string, tps []TP) (map[TP]CommitOffset, error) {
	out := make(map[TP]CommitOffset, len(tps))
	if len(tps) == 0 {
		return out, nil
	}
	for _, tp := range tps { // the answer of an unknown group names none
		out[tp] = CommitOffset{Offset: -1, LeaderEpoch: record.NoEpoch}
	}
	err := groupOffsets(ctx, a, kafka.ConsumerGroupTopicPartitions{Group: group, Partitions: parts(tps)}, out)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// groupOffsets adds to out what the coordinator answers.
func groupOffsets(ctx context.Context, a *kafka.AdminClient, req kafka.ConsumerGroupTopicPartitions, out map[TP]CommitOffset) error {
	err := await(ctx, "ask the coordinator", func() (bool, error) {
		res, err := a.ListConsumerGroupOffsets(ctx, []kafka.ConsumerGroupTopicPartitions{req}, kafka.SetAdminRequireStableOffsets(true))
		if errorCode(err) == kafka.ErrGroupIDNotFound {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		for _, g := range res.ConsumerGroupsTopicPartitions {
			for _, p := range g.Partitions {
				if p.Error != nil {
					return false, fmt.Errorf("%s: %w", tpOf(p), p.Error)
				}
				out[tpOf(p)] = committed(p)
			}
		}
		return true, nil
	}, isRetriableOffsetFetch)
	return wrap(err, "read committed offsets of group %s", req.Group)
}

// isRetriableOffsetFetch: a transaction with offsets of this group is open, or its coordinator is being found.
func isRetriableOffsetFetch(err error) bool {
	switch errorCode(err) {
	case kafka.ErrUnstableOffsetCommit, kafka.ErrCoordinatorLoadInProgress, kafka.ErrCoordinatorNotAvailable,
		kafka.ErrNotCoordinator, kafka.ErrWaitCoord:
		return true
	}
	return false
}
