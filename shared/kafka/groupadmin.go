package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// ErrGroupBusy: the group has members; what its positions are is theirs to say.
var ErrGroupBusy = errors.New("the group has members")

// GroupMembers returns how many members a group has; 0 where it is not known.
func (a *Admin) GroupMembers(ctx context.Context, group string) (int, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := a.reachable(ctx); err != nil {
		return 0, err
	}
	members := 0
	err := await(ctx, "ask the coordinator", func() (bool, error) {
		res, err := a.a.DescribeConsumerGroups(ctx, []string{group})
		if err != nil {
			return false, err
		}
		for _, g := range res.ConsumerGroupDescriptions {
			switch g.Error.Code() {
			case kafka.ErrNoError:
				members = len(g.Members)
			case kafka.ErrGroupIDNotFound:
			default:
				return false, g.Error
			}
		}
		return true, nil
	}, isRetriableOffsetFetch)
	return members, wrap(err, "describe group %s", group)
}

// SetGroupOffsets sets positions of a group without members, which need not be there yet; others of its positions stay. ErrGroupBusy.
func (a *Admin) SetGroupOffsets(ctx context.Context, group string, offs map[TP]CommitOffset) error {
	if len(offs) == 0 {
		return nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := a.reachable(ctx); err != nil {
		return err
	}
	req := []kafka.ConsumerGroupTopicPartitions{{Group: group, Partitions: commitParts(offs)}}
	err := await(ctx, "ask the coordinator", func() (bool, error) {
		res, err := a.a.AlterConsumerGroupOffsets(ctx, req)
		if err != nil {
			return false, err
		}
		for _, g := range res.ConsumerGroupsTopicPartitions {
			for _, p := range g.Partitions {
				if p.Error != nil {
					return false, fmt.Errorf("%s: %w", tpOf(p), p.Error)
				}
			}
		}
		return true, nil
	}, isRetriableOffsetFetch)
	action := fmt.Sprintf("set positions of group %s", group)
	switch errorCode(err) {
	// A broker answers a commit from outside of a group that has members as it does one of a member that it does not know.
	case kafka.ErrUnknownMemberID, kafka.ErrNonEmptyGroup, kafka.ErrGroupSubscribedToTopic, kafka.ErrIllegalGeneration, kafka.ErrRebalanceInProgress:
		return fmt.Errorf("%s: %w: %w", action, ErrGroupBusy, err)
	}
	return wrap(err, "%s", action)
}
