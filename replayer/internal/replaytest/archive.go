// Package replaytest holds what the replayer's tests share: an archive made to order, and a receiver that speaks the session protocol and
// can misbehave. No product package imports it.
package replaytest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

// Cluster and TopicID are what archives made here say of their logs.
const Cluster = "test-cluster"

// TopicID of a topic.
func TopicID(topic string) string { return "id-" + topic }

// Archive is one made for a test, with everything that is in it.
type Archive struct {
	*archive.Archive
	Mem     *mem.Store
	Records map[record.TopicPartition][]record.Record
	last    map[record.TopicPartition]*archive.Tail
}

// New makes an empty archive.
func New() *Archive {
	st := mem.New()
	return &Archive{Archive: archive.Open(st, "topics"), Mem: st, Records: map[record.TopicPartition][]record.Record{},
		last: map[record.TopicPartition]*archive.Tail{}}
}

// Segment appends one segment [next of the last, next) with the records; skips say why other offsets hold none.
func (a *Archive) Segment(t testing.TB, tp record.TopicPartition, next int64, recs []record.Record, skips ...segment.Skip) string {
	t.Helper()
	return a.SegmentWith(t, tp, next, recs, nil, skips...)
}

// SegmentWith is Segment with writer schemas.
func (a *Archive) SegmentWith(t testing.TB, tp record.TopicPartition, next int64, recs []record.Record, schemas []segment.Schema, skips ...segment.Skip) string {
	t.Helper()
	chain, start := segment.First(), int64(0)
	if l := a.last[tp]; l != nil {
		chain, start = segment.After(l.Header, l.Size), l.Header.Next
	}
	id := segment.LogIdentity{ClusterID: Cluster, TopicID: TopicID(tp.Topic), Topic: tp.Topic, Partition: tp.Partition, Isolation: "read_committed"}
	w, err := segment.NewWriter(id, start, "")
	must(t, err)
	for i := range recs {
		_, err := w.Append(&recs[i])
		must(t, err)
	}
	for _, s := range skips {
		must(t, w.Skip(s.From, s.To, s.Class))
	}
	data, h, err := w.Close(next, chain, schemas)
	must(t, err)
	out, err := a.Create(context.Background(), h, data, archive.RetryPolicy{Min: time.Millisecond, Max: time.Millisecond})
	must(t, err)
	a.last[tp] = &out.Tail
	a.Records[tp] = append(a.Records[tp], recs...)
	return segment.Name{TopicsDir: a.TopicsDir(), Topic: tp.Topic, Partition: tp.Partition, Start: start}.Format()
}

// Fill archives n records per partition, in segments of random length up to most, with gaps here and there and timestamps out of order.
func (a *Archive) Fill(t testing.TB, rng *rand.Rand, topic string, partitions int32, n, most int) {
	t.Helper()
	for p := range partitions {
		tp := record.TopicPartition{Topic: topic, Partition: p}
		offset := int64(0)
		for left := n; left > 0; {
			size := min(left, 1+rng.IntN(most))
			left -= size
			var recs []record.Record
			for range size {
				if rng.IntN(10) == 0 {
					offset++ // a marker
				}
				recs = append(recs, Record(tp, offset, 1000*offset+int64(rng.IntN(3000))))
				offset++
			}
			if rng.IntN(4) == 0 {
				offset++
			}
			a.Segment(t, tp, offset, recs)
		}
	}
}

// Record makes one whose value is its place.
func Record(tp record.TopicPartition, offset, timestamp int64) record.Record {
	return record.Record{Topic: tp.Topic, Partition: tp.Partition, Offset: offset, Timestamp: timestamp, LeaderEpoch: record.NoEpoch,
		Key: fmt.Appendf(nil, "k%d", offset%7), Value: fmt.Appendf(nil, "%s@%d", tp, offset)}
}

// Decide appends values to a decision log.
func (a *Archive) Decide(t testing.TB, topic string, values ...string) {
	t.Helper()
	tp, at := record.TopicPartition{Topic: topic}, int64(0)
	if a.last[tp] != nil {
		at = a.Header(tp).Next
	}
	var recs []record.Record
	for i, v := range values {
		r := Record(tp, at+int64(i), at)
		r.Value = []byte(v)
		recs = append(recs, r)
	}
	a.Segment(t, tp, at+int64(len(recs)), recs)
}

// Origin is a decision that begins a log: every partition from 0.
func Origin(topic string, partitions int) string {
	starts := ""
	for p := range partitions {
		if p > 0 {
			starts += ","
		}
		starts += fmt.Sprintf(`"%d":0`, p)
	}
	return fmt.Sprintf(`{"v":1,"kind":"origin","pipelineHash":"hash","topics":{%q:{"id":%q,"start":{%s}}}}`, topic, TopicID(topic), starts)
}

// Damage flips a bit among the last record's bytes of an object.
func (a *Archive) Damage(t testing.TB, key string) {
	t.Helper()
	data, err := a.Mem.Get(context.Background(), key)
	must(t, err)
	data = slices.Clone(data)
	data[len(data)-20] ^= 0x40 // the sync marker has 16 bytes
	a.Mem.Put(key, data)
}

// Keys lists the segments of a partition.
func (a *Archive) Keys(tp record.TopicPartition) []string {
	objs, _, err := a.Mem.List(context.Background(), segment.PartitionPrefix("topics", tp.Topic, tp.Partition), "", 1000)
	if err != nil {
		panic(err)
	}
	var keys []string
	for _, o := range objs {
		keys = append(keys, o.Key)
	}
	return keys
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Header of the newest segment of a partition.
func (a *Archive) Header(tp record.TopicPartition) *segment.Header { return a.last[tp].Header }
