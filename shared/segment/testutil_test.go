package segment_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

func identity() segment.LogIdentity {
	return segment.LogIdentity{
		ClusterID: "MkU3OEVBNTcwNTJENDM2Qg", TopicID: "Xn2k0sYhQ0O7tQpVq2v3yA", Topic: "trips", Partition: 3,
		Isolation: segment.ReadCommitted,
	}
}

// rec returns a plain record of identity's log.
func rec(offset int64) record.Record {
	return record.Record{
		Topic: "trips", Partition: 3, Offset: offset, Timestamp: 1_700_000_000_000 + offset,
		Key: fmt.Appendf(nil, "key-%d", offset%10), Value: fmt.Appendf(nil, "value-%d", offset), LeaderEpoch: 5,
	}
}

// write makes a segment of records from start to next.
func write(t testing.TB, id segment.LogIdentity, start, next int64, codec string, c segment.Chain, recs []record.Record, schemas ...segment.Schema) ([]byte, *segment.Header) {
	t.Helper()
	w, err := segment.NewWriter(id, start, codec)
	if err != nil {
		t.Fatal(err)
	}
	for i := range recs {
		n, err := w.Append(&recs[i])
		if err != nil {
			t.Fatal(err)
		}
		if size := segment.Size(&recs[i]); n != size {
			t.Fatalf("Append returned %d, Size %d", n, size)
		}
	}
	data, h, err := w.Close(next, c, schemas)
	if err != nil {
		t.Fatal(err)
	}
	return data, h
}

// readAll returns all records of data.
func readAll(data []byte) (*segment.Header, []record.Record, error) {
	r, err := segment.NewReader("object", data)
	if err != nil {
		return nil, nil, err
	}
	var recs []record.Record
	for {
		var x record.Record
		err := r.Next(&x)
		if errors.Is(err, io.EOF) {
			return r.Header(), recs, nil
		}
		if err != nil {
			return r.Header(), recs, err
		}
		recs = append(recs, x)
	}
}

func mustReadAll(t testing.TB, data []byte) (*segment.Header, []record.Record) {
	t.Helper()
	h, recs, err := readAll(data)
	if err != nil {
		t.Fatal(err)
	}
	return h, recs
}

func wantRecords(t testing.TB, got, want []record.Record) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range want {
		if !record.Equal(&got[i], &want[i]) {
			t.Fatalf("record %d:\n got %+.300v\nwant %+.300v", i, got[i], want[i])
		}
	}
}

// randomRecords returns n records from start on, of many shapes, with gaps, the same ones for the same seed.
func randomRecords(seed uint64, start int64, n int) []record.Record {
	r := rand.New(rand.NewPCG(seed, 1))
	blob := func() []byte {
		switch r.IntN(5) {
		case 0:
			return nil
		case 1:
			return []byte{}
		}
		b := make([]byte, r.IntN(200))
		for i := range b {
			b[i] = byte(r.IntN(256) & r.IntN(256))
		}
		return b
	}
	var recs []record.Record
	offset := start
	for range n {
		offset += int64(r.IntN(3) / 2 * r.IntN(5))
		x := record.Record{
			Topic: "trips", Partition: 3, Offset: offset, Timestamp: 1_700_000_000_000 + r.Int64N(100_000) - 50_000,
			TimestampType: record.TimestampType(r.IntN(2)), Key: blob(), Value: blob(), LeaderEpoch: 5,
		}
		for range r.IntN(4) {
			x.Headers = append(x.Headers, record.Header{Key: fmt.Sprint("h", r.IntN(3)), Value: blob()})
		}
		recs = append(recs, x)
		offset++
	}
	return recs
}
