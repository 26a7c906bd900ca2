package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

var trips = record.TopicPartition{Topic: "trips", Partition: 0}

func identity(tp record.TopicPartition) segment.LogIdentity {
	return segment.LogIdentity{ClusterID: "cluster-1", TopicID: "topic-id-" + tp.Topic, Topic: tp.Topic, Partition: tp.Partition, Isolation: segment.ReadCommitted}
}

// at is the log's record at an offset: the same for every writer that reads it.
func at(tp record.TopicPartition, offset, timestamp int64) record.Record {
	return record.Record{Topic: tp.Topic, Partition: tp.Partition, Offset: offset, Timestamp: timestamp,
		Key: fmt.Appendf(nil, "k%d", offset%7), Value: fmt.Appendf(nil, "value %d", offset), LeaderEpoch: 3}
}

// cut is what goes into one segment.
type cut struct {
	next  int64
	skips []segment.Skip
	// ts gives the timestamps of the records; nil: 1,000 ms × offset.
	ts func(offset int64) int64
	// without leaves out an offset, as no data.
	without func(offset int64) bool
	id      *segment.LogIdentity
}

// encode makes the segment that follows tail (nil: the first).
func encode(t testing.TB, tp record.TopicPartition, tail *Tail, c cut) (*segment.Header, []byte) {
	t.Helper()
	start, chain := int64(0), segment.First()
	if tail != nil {
		start, chain = tail.Header.Next, segment.After(tail.Header, tail.Size)
	}
	id := identity(tp)
	if c.id != nil {
		id = *c.id
	}
	w, err := segment.NewWriter(id, start, "null")
	if err != nil {
		t.Fatal(err)
	}
	skipped := func(o int64) bool {
		for _, s := range c.skips {
			if s.From <= o && o < s.To {
				return true
			}
		}
		return c.without != nil && c.without(o)
	}
	for _, s := range c.skips {
		if err := w.Skip(s.From, s.To, s.Class); err != nil {
			t.Fatal(err)
		}
	}
	for o := start; o < c.next; o++ {
		if skipped(o) {
			continue
		}
		ts := 1000 * o
		if c.ts != nil {
			ts = c.ts(o)
		}
		r := at(tp, o, ts)
		if _, err := w.Append(&r); err != nil {
			t.Fatal(err)
		}
	}
	data, h, err := w.Close(c.next, chain, nil)
	if err != nil {
		t.Fatal(err)
	}
	return h, data
}

// grow creates n segments of size records each behind tail, with their index objects, by the real Create.
func grow(t testing.TB, a *Archive, tp record.TopicPartition, tail *Tail, n int, size int64) *Tail {
	t.Helper()
	for range n {
		from := int64(0)
		if tail != nil {
			from = tail.Header.Next
		}
		tail = create(t, a, tp, tail, cut{next: from + size})
	}
	return tail
}

// create writes one segment behind tail by the real Create, which must not be adopted.
func create(t testing.TB, a *Archive, tp record.TopicPartition, tail *Tail, c cut) *Tail {
	t.Helper()
	h, data := encode(t, tp, tail, c)
	out, err := a.Create(context.Background(), h, data, RetryPolicy{})
	if err != nil {
		t.Fatal(err)
	}
	if out.Adopted {
		t.Fatalf("segment at %d was adopted", h.Start)
	}
	return &out.Tail
}

// open gives an archive on an empty store in memory, which does not wait between tries. It fails the test where a try is
// repeated more often than any test needs.
func open(t testing.TB) (*Archive, *mem.Store) {
	st := mem.New()
	a := Open(st, "topics")
	waits := 0
	a.wait = waiter{
		sleep: func(ctx context.Context, _ time.Duration) error {
			if waits++; waits > 1000 {
				return errors.New("waited too often")
			}
			return ctx.Err()
		},
		draw: func(n int64) int64 { return n - 1 },
	}
	return a, st
}

// records reads every record of the chain of tp in order, and checks that each offset below the end is there at most once.
func records(t testing.TB, st *mem.Store, tp record.TopicPartition) []record.Record {
	t.Helper()
	var recs []record.Record
	for _, key := range st.Keys() {
		n, err := segment.ParseName("topics", key)
		if err != nil || n.Topic != tp.Topic || n.Partition != tp.Partition {
			continue
		}
		data, err := st.Get(context.Background(), key)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(key, data)
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, got...)
	}
	for i := 1; i < len(recs); i++ {
		if recs[i].Offset <= recs[i-1].Offset {
			t.Fatalf("offset %d after %d", recs[i].Offset, recs[i-1].Offset)
		}
	}
	return recs
}

func decode(key string, data []byte) ([]record.Record, error) {
	rd, err := segment.NewReader(key, data)
	if err != nil {
		return nil, err
	}
	var recs []record.Record
	for {
		var r record.Record
		err := rd.Next(&r)
		if err == io.EOF {
			return recs, nil
		}
		if err != nil {
			return nil, err
		}
		recs = append(recs, r)
	}
}

// kinds of the findings, in order.
func kinds(r *VerifyReport) []string {
	var k []string
	for _, f := range r.Findings {
		k = append(k, f.Kind)
	}
	return k
}

func mustVerify(t testing.TB, a *Archive, topics ...string) *VerifyReport {
	t.Helper()
	r, err := a.Verify(context.Background(), topics...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// mustBeClean verifies the archive and fails on any finding.
func mustBeClean(t testing.TB, a *Archive) *VerifyReport {
	t.Helper()
	r := mustVerify(t, a)
	if len(r.Findings) > 0 {
		t.Fatalf("findings: %+v", r.Findings)
	}
	return r
}

// storeOf returns the store in memory below a.
func storeOf(a *Archive) *mem.Store { return a.Store().(*mem.Store) }
