// Package record holds one Kafka record as plain data.
//
// It imports the standard library only and takes no clock, logger or context.
package record

import (
	"bytes"
	"fmt"
)

// TimestampType says who set a record's timestamp. The values are Kafka's.
type TimestampType int32

// The two timestamp types of Kafka.
const (
	CreateTime    TimestampType = 0
	LogAppendTime TimestampType = 1
)

// NoEpoch is the leader epoch of a record whose source does not tell it.
const NoEpoch int32 = -1

// Header is one record header. A nil Value and an empty Value are different.
type Header struct {
	Key   string
	Value []byte
}

// Record is what Kafka stores. For Key, Value and a header's Value, nil means null and is different from empty.
// Headers keep their order and may repeat a key.
type Record struct {
	Topic         string
	Partition     int32
	Offset        int64 // ≥ 0
	Timestamp     int64 // milliseconds since the Unix epoch; −1 is "none"
	TimestampType TimestampType
	Key           []byte
	Value         []byte
	Headers       []Header
	LeaderEpoch   int32 // of the batch it was fetched in, NoEpoch where unknown; not stored per record
}

// TopicPartition names one log of one cluster.
type TopicPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

func (tp TopicPartition) String() string { return fmt.Sprintf("%s-%d", tp.Topic, tp.Partition) }

// Less orders by topic, then partition.
func (tp TopicPartition) Less(o TopicPartition) bool {
	if tp.Topic != o.Topic {
		return tp.Topic < o.Topic
	}
	return tp.Partition < o.Partition
}

// TP returns the log that r belongs to.
func (r *Record) TP() TopicPartition { return TopicPartition{r.Topic, r.Partition} }

// Equal reports whether a and b are the same record, byte for byte. Leader epochs are not compared.
func Equal(a, b *Record) bool {
	if a.Topic != b.Topic || a.Partition != b.Partition || a.Offset != b.Offset || a.Timestamp != b.Timestamp ||
		a.TimestampType != b.TimestampType || !same(a.Key, b.Key) || !same(a.Value, b.Value) || len(a.Headers) != len(b.Headers) {
		return false
	}
	for i := range a.Headers {
		if a.Headers[i].Key != b.Headers[i].Key || !same(a.Headers[i].Value, b.Headers[i].Value) {
			return false
		}
	}
	return true
}

// Clone returns a copy of r that shares no bytes with it.
func (r *Record) Clone() Record {
	c := *r
	c.Key, c.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
	if r.Headers != nil {
		c.Headers = make([]Header, len(r.Headers))
		for i, h := range r.Headers {
			c.Headers[i] = Header{Key: h.Key, Value: bytes.Clone(h.Value)}
		}
	}
	return c
}

func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
