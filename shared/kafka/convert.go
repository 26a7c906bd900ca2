package kafka

import (
	"sort"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"tapedeck.dev/tapedeck/shared/record"
)

// toRecord converts a fetched message; its bytes are already a copy of librdkafka's. The Go client keeps null and empty
// apart for key, value and header value. It knows a timestamp of −1 only as "not available", without its type.
func toRecord(m *kafka.Message, topic string) record.Record {
	r := record.Record{
		Topic:       topic,
		Partition:   m.TopicPartition.Partition,
		Offset:      int64(m.TopicPartition.Offset),
		Timestamp:   -1,
		Key:         m.Key,
		Value:       m.Value,
		LeaderEpoch: record.NoEpoch,
	}
	switch m.TimestampType {
	case kafka.TimestampCreateTime:
		r.Timestamp = m.Timestamp.UnixMilli()
	case kafka.TimestampLogAppendTime:
		r.Timestamp, r.TimestampType = m.Timestamp.UnixMilli(), record.LogAppendTime
	}
	if len(m.Headers) > 0 {
		r.Headers = make([]record.Header, len(m.Headers))
		for i, h := range m.Headers {
			r.Headers[i] = record.Header{Key: h.Key, Value: h.Value}
		}
	}
	if e := m.TopicPartition.LeaderEpoch; e != nil {
		r.LeaderEpoch = *e
	}
	return r
}

// part converts a position. Epochs below 0 mean "unknown" and are left out.
func part(tp TP, offset int64, epoch int32) kafka.TopicPartition {
	p := kafka.TopicPartition{Topic: &tp.Topic, Partition: tp.Partition, Offset: kafka.Offset(offset)}
	if epoch >= 0 {
		p.LeaderEpoch = &epoch
	}
	return p
}

// parts converts names alone.
func parts(tps []TP) []kafka.TopicPartition {
	out := make([]kafka.TopicPartition, len(tps))
	for i, tp := range tps {
		out[i] = part(tp, int64(kafka.OffsetInvalid), record.NoEpoch)
	}
	return out
}

func tpOf(p kafka.TopicPartition) TP {
	tp := TP{Partition: p.Partition}
	if p.Topic != nil {
		tp.Topic = *p.Topic
	}
	return tp
}

// commitParts converts positions to be committed, in order of topic and partition.
func commitParts(offs map[TP]CommitOffset) []kafka.TopicPartition {
	out := make([]kafka.TopicPartition, 0, len(offs))
	for _, tp := range sortedKeys(offs) {
		o := offs[tp]
		p := part(tp, o.Offset, o.LeaderEpoch)
		p.Metadata = &o.Metadata
		out = append(out, p)
	}
	return out
}

// committed converts a stored position; no offset is −1.
func committed(p kafka.TopicPartition) CommitOffset {
	c := CommitOffset{Offset: -1, LeaderEpoch: record.NoEpoch}
	if p.Offset >= 0 {
		c.Offset = int64(p.Offset)
	}
	if p.LeaderEpoch != nil {
		c.LeaderEpoch = *p.LeaderEpoch
	}
	if p.Metadata != nil {
		c.Metadata = *p.Metadata
	}
	return c
}

func sortedKeys[V any](m map[TP]V) []TP {
	out := make([]TP, 0, len(m))
	for tp := range m {
		out = append(out, tp)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Less(out[j]) })
	return out
}
