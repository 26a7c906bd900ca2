package proof

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"

	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
)

// Sequence is what byte-equal speaks of: the records of one output partition in order. Offsets are left out, since
// transaction markers take some.
type Sequence []record.Record

// ReadTopic reads a topic from its log start to its end as a read_committed consumer sees it, per partition.
func ReadTopic(ctx context.Context, bootstrap, topic string) (map[int32]Sequence, error) {
	admin, err := kafka.NewAdmin(kafka.Client{Bootstrap: bootstrap, ClientID: "proof"})
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	topics, err := admin.Topics(ctx, topic)
	if err != nil {
		return nil, err
	}
	t, ok := topics[topic]
	if !ok {
		return nil, fmt.Errorf("read topic %s: %w", topic, kafka.ErrNotFound)
	}
	out := make(map[int32]Sequence)
	tps := make([]kafka.TP, t.Partitions)
	for p := range t.Partitions {
		tps[p] = kafka.TP{Topic: topic, Partition: p}
		out[p] = nil
	}
	ranges, err := admin.Offsets(ctx, tps)
	if err != nil {
		return nil, err
	}
	consumer, err := kafka.NewConsumer(kafka.ConsumerConfig{Client: kafka.Client{Bootstrap: bootstrap, ClientID: "proof"}})
	if err != nil {
		return nil, err
	}
	defer func() { _ = consumer.Close() }()
	open := make(map[kafka.TP]bool)
	for _, tp := range tps {
		if ranges[tp].Start == ranges[tp].End {
			continue
		}
		if err := consumer.Start(kafka.Position{TP: tp, Offset: ranges[tp].Start, LeaderEpoch: record.NoEpoch}); err != nil {
			return nil, err
		}
		open[tp] = true
	}
	for len(open) > 0 {
		events, err := consumer.Poll(ctx, pollWait)
		if err != nil {
			return nil, fmt.Errorf("read topic %s: %w", topic, err)
		}
		for _, ev := range events {
			switch e := ev.(type) {
			case kafka.Batch:
				out[e.Partition] = append(out[e.Partition], e.Records...)
			case kafka.EndOfPartition:
				if e.Offset >= ranges[e.TP].End {
					delete(open, e.TP)
				}
			case kafka.PartitionError:
				return nil, fmt.Errorf("read %s: %w", e.TP, e.Err)
			case kafka.OutOfRange:
				return nil, fmt.Errorf("read %s: offset %d is outside [%d, %d)", e.TP, e.Offset, e.LogStart, e.LogEnd)
			}
		}
	}
	return out, nil
}

// Count returns the number of records in all partitions.
func Count(topic map[int32]Sequence) (n int) {
	for _, s := range topic {
		n += len(s)
	}
	return n
}

// HashTopics is the SHA-256 over the topics' hashes, in the order given.
func HashTopics(topics ...map[int32]Sequence) string {
	h := sha256.New()
	for _, t := range topics {
		h.Write([]byte(HashTopic(t)))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// HashTopic is the SHA-256 over every partition's sequence of key, value, headers and timestamp, in partition order.
func HashTopic(topic map[int32]Sequence) string {
	h := sha256.New()
	parts := make([]int32, 0, len(topic))
	for p := range topic {
		parts = append(parts, p)
	}
	slices.Sort(parts)
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(p)))
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(topic[p]))))
		for i := range topic[p] {
			h.Write(comparable(&topic[p][i]))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// comparable encodes what must be equal, each field with its length, so that no two records share an encoding.
func comparable(r *record.Record) []byte {
	field := func(b, v []byte) []byte {
		if v == nil {
			return binary.BigEndian.AppendUint32(b, 1<<32-1)
		}
		return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
	}
	b := binary.BigEndian.AppendUint64(nil, uint64(r.Timestamp))
	b = field(field(b, r.Key), r.Value)
	b = binary.BigEndian.AppendUint32(b, uint32(len(r.Headers)))
	for _, h := range r.Headers {
		b = field(field(b, []byte(h.Key)), h.Value)
	}
	return b
}

// FirstDifference describes where two topics differ, "" where they are byte-equal.
func FirstDifference(a, b map[int32]Sequence) string {
	if len(a) != len(b) {
		return fmt.Sprintf("%d partitions against %d", len(a), len(b))
	}
	for p := range int32(len(a)) {
		x, y := a[p], b[p]
		for i := range min(len(x), len(y)) {
			if string(comparable(&x[i])) != string(comparable(&y[i])) {
				return fmt.Sprintf("partition %d, record %d: %s against %s", p, i, show(&x[i]), show(&y[i]))
			}
		}
		if len(x) != len(y) {
			return fmt.Sprintf("partition %d: %d records against %d", p, len(x), len(y))
		}
	}
	return ""
}

func show(r *record.Record) string {
	s := fmt.Sprintf("(timestamp %d, key %q, value %q", r.Timestamp, r.Key, r.Value)
	for _, h := range r.Headers {
		s += fmt.Sprintf(", %s=%q", h.Key, h.Value)
	}
	return s + ")"
}
