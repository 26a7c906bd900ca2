package segment_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// shapes are records of every shape, of a topic named x.avro.
func shapes() (segment.LogIdentity, []record.Record) {
	id := identity()
	id.Topic = "x.avro"
	big := make([]byte, 1<<20)
	for i := range big {
		big[i] = byte(i * i >> 7)
	}
	binary := []byte{0, 0xff, 0xfe, 0x80, 'O', 'b', 'j', 1, 0xed, 0xa0, 0x80}
	bodies := [][]byte{nil, {}, []byte("text"), binary, {0, 0, 0, 0, 7, 2, 'a'}}
	var recs []record.Record
	add := func(r record.Record) {
		r.Topic, r.Partition, r.Offset, r.LeaderEpoch = id.Topic, id.Partition, int64(len(recs)), 7
		recs = append(recs, r)
	}
	for _, key := range bodies {
		for _, value := range bodies {
			add(record.Record{Key: key, Value: value, Timestamp: 1_700_000_000_000})
		}
	}
	for _, ts := range []int64{0, -1, 1, -62_135_596_800_001, 253_402_300_800_000, math.MinInt64, math.MinInt64 + 1, math.MaxInt64 - 1, math.MaxInt64} {
		for _, tt := range []record.TimestampType{record.CreateTime, record.LogAppendTime, -1} {
			add(record.Record{Key: []byte("k"), Value: []byte("v"), Timestamp: ts, TimestampType: tt})
		}
	}
	add(record.Record{Headers: []record.Header{{Key: "a", Value: []byte("1")}, {Key: "x-id", Value: []byte("2")}, {Key: "a", Value: []byte("3")}, {Key: "b", Value: nil}, {Key: "c", Value: []byte{}}}})
	for _, value := range bodies {
		add(record.Record{Headers: []record.Header{{Key: "h", Value: value}, {Key: "h", Value: value}, {Key: "", Value: value}}})
	}
	add(record.Record{Headers: []record.Header{{Key: "naïve ☃", Value: binary}, {Key: "not utf-8 \xff", Value: nil}}})
	var many []record.Header
	for i := range 200 {
		many = append(many, record.Header{Key: "k" + string(rune('0'+i%150)), Value: bodies[i%len(bodies)]})
	}
	add(record.Record{Headers: many})
	add(record.Record{Key: big, Value: big, Headers: []record.Header{{Key: "big", Value: big}}})
	add(record.Record{Value: bytes.Repeat([]byte{'z'}, 1<<20)})
	add(record.Record{})
	return id, recs
}

func TestRoundTripShapes(t *testing.T) {
	id, recs := shapes()
	for _, codec := range append(codecNames, "") {
		data, h := write(t, id, 0, int64(len(recs)), codec, segment.First(), recs)
		if codec == "" {
			codec = segment.CodecZstd
		}
		if h.Codec != codec || h.MinTimestamp != math.MinInt64 || h.MaxTimestamp != math.MaxInt64 || h.RunningMaxTimestamp != math.MaxInt64 || h.Skipped != nil {
			t.Errorf("%s: header %+v", codec, h)
		}
		_, got := mustReadAll(t, data)
		wantRecords(t, got, recs)
		for i := range got {
			if got[i].LeaderEpoch != record.NoEpoch {
				t.Fatalf("%s: record %d has a leader epoch, which the format does not keep", codec, i)
			}
		}
	}
}

// TestRecordsStayValid: the records of earlier calls are not touched by later ones, nor by an append to them.
func TestRecordsStayValid(t *testing.T) {
	id, recs := shapes()
	data, _ := write(t, id, 0, int64(len(recs)), segment.CodecNull, segment.First(), recs)
	before := bytes.Clone(data)
	r, err := segment.NewReader("object", data)
	if err != nil {
		t.Fatal(err)
	}
	var got []record.Record
	var x record.Record
	for {
		if err := r.Next(&x); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		got = append(got, x)
		_ = append(x.Key, "overwritten"...)
		_ = append(x.Value, "overwritten"...)
		_ = append(x.Headers, record.Header{Key: "overwritten"})
		_ = append(r.Datum(), "overwritten"...)
	}
	for i := range got {
		_ = append(got[i].Headers, record.Header{Key: "overwritten"})
	}
	wantRecords(t, got, recs)
	if !bytes.Equal(data, before) {
		t.Error("reading changed the object")
	}
}

func TestDatumAndChecksum(t *testing.T) {
	recs := randomRecords(4, 0, 2000)
	data, h := write(t, identity(), 0, recs[len(recs)-1].Offset+1, "", segment.First(), recs)
	r, err := segment.NewReader("object", data)
	if err != nil {
		t.Fatal(err)
	}
	var sum uint64
	var size int64
	for i := range recs {
		var x record.Record
		if err := r.Next(&x); err != nil {
			t.Fatal(err)
		}
		if want := segment.AppendDatum(nil, &recs[i]); !bytes.Equal(r.Datum(), want) {
			t.Fatalf("datum %d is %x, want %x", i, r.Datum(), want)
		}
		sum += segment.Checksum(r.Datum())
		size += int64(len(r.Datum()))
	}
	if sum != h.Checksum || size != h.DatumBytes || sum == 0 {
		t.Errorf("checksum %x of %d bytes, the header says %x of %d", sum, size, h.Checksum, h.DatumBytes)
	}
	if err := r.Next(new(record.Record)); !errors.Is(err, io.EOF) {
		t.Errorf("after the last record: %v", err)
	}
	if err := r.Next(new(record.Record)); !errors.Is(err, io.EOF) {
		t.Errorf("again after the last record: %v", err)
	}
}

// TestDatumBytes pins the encoding to bytes worked out by hand from the Avro specification.
func TestDatumBytes(t *testing.T) {
	r := record.Record{
		Topic: "t", Partition: 1, Offset: 300, Timestamp: -1, TimestampType: record.LogAppendTime, Key: nil, Value: []byte{},
		Headers: []record.Header{{Key: "a", Value: nil}, {Key: "bc", Value: []byte{9}}},
	}
	want := []byte{
		0,    // key: null
		2, 0, // value: bytes of length 0
		2, 't', // topic
		2,          // partition 1
		0xd8, 0x04, // offset 300
		1,         // timestamp −1
		2,         // timestamp type 1
		4,         // two headers
		2, 'a', 0, // a: null
		4, 'b', 'c', 2, 2, 9, // bc: one byte
		0, // end of headers
	}
	if got := segment.AppendDatum(nil, &r); !bytes.Equal(got, want) {
		t.Errorf("datum\n%x, want\n%x", got, want)
	}
	if segment.Size(&r) != len(want) {
		t.Errorf("size %d, want %d", segment.Size(&r), len(want))
	}
}
