package kafka

import (
	"context"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// TopicDetails is what it takes to create a topic again.
type TopicDetails struct {
	Topic
	Replication int               // replicas of the partition that has most
	Config      map[string]string // what is set on the topic itself; not what it has from its brokers
}

// TopicDetails describes topics by name; one that is not there is left out of the answer. It needs the right to describe the topics' configurations.
func (a *Admin) TopicDetails(ctx context.Context, names ...string) (map[string]TopicDetails, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := a.reachable(ctx); err != nil {
		return nil, err
	}
	out := make(map[string]TopicDetails, len(names))
	err := eachDescription(ctx, a.a, names, func(t kafka.TopicDescription) error {
		switch t.Error.Code() {
		case kafka.ErrNoError:
		case kafka.ErrUnknownTopicOrPart, kafka.ErrUnknownTopic:
			return nil
		default:
			return wrap(t.Error, "describe topic %s", t.Name)
		}
		d := TopicDetails{Topic: Topic{Name: t.Name, ID: uuidString(t.TopicID), Partitions: int32(len(t.Partitions)), Internal: t.IsInternal}, Config: map[string]string{}}
		for _, p := range t.Partitions {
			d.Replication = max(d.Replication, len(p.Replicas))
		}
		out[t.Name] = d
		return nil
	})
	if err != nil || len(out) == 0 {
		return out, err
	}
	for len(names) > 0 {
		var ask []kafka.ConfigResource
		for ; len(names) > 0 && len(ask) < describeChunk; names = names[1:] {
			if _, ok := out[names[0]]; ok {
				ask = append(ask, kafka.ConfigResource{Type: kafka.ResourceTopic, Name: names[0]})
			}
		}
		if len(ask) == 0 {
			break
		}
		res, err := a.a.DescribeConfigs(ctx, ask)
		if err != nil {
			return nil, wrap(err, "read configurations of %d topics", len(ask))
		}
		for _, r := range res {
			switch r.Error.Code() {
			case kafka.ErrNoError:
			case kafka.ErrUnknownTopicOrPart, kafka.ErrUnknownTopic: // deleted since
				delete(out, r.Name)
				continue
			default:
				return nil, wrap(r.Error, "read configuration of topic %s", r.Name)
			}
			for k, v := range r.Config {
				if v.Source == kafka.ConfigSourceDynamicTopic && !v.IsSensitive {
					out[r.Name].Config[k] = v.Value
				}
			}
		}
	}
	return out, nil
}
