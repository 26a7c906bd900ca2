package segment_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

func wantErr(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want …%s…", err, want)
	}
}

func newWriter(t testing.TB, start int64) *segment.Writer {
	t.Helper()
	w, err := segment.NewWriter(identity(), start, "")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestNewWriterRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		edit  func(*segment.LogIdentity)
		start int64
		codec string
		want  string
	}{
		{"codec", func(*segment.LogIdentity) {}, 0, "lz4", `unknown codec "lz4": use`},
		{"negative start", func(*segment.LogIdentity) {}, -1, "", "start is not an offset"},
		{"start without a next", func(*segment.LogIdentity) {}, math.MaxInt64, "", "start is not an offset"},
		{"no topic", func(id *segment.LogIdentity) { id.Topic = "" }, 0, "", "not a topic name"},
		{"partition", func(id *segment.LogIdentity) { id.Partition = -1 }, 0, "", "partition -1"},
		{"isolation", func(id *segment.LogIdentity) { id.Isolation = "" }, 0, "", "isolation"},
		{"cluster id not UTF-8", func(id *segment.LogIdentity) { id.ClusterID = "\xff" }, 0, "", "cluster id"},
		{"topic id too long", func(id *segment.LogIdentity) { id.TopicID = strings.Repeat("x", 5000) }, 0, "", "topic id"},
	} {
		id := identity()
		c.edit(&id)
		_, err := segment.NewWriter(id, c.start, c.codec)
		t.Run(c.name, func(t *testing.T) { wantErr(t, err, c.want) })
	}
}

func TestAppendRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*record.Record)
		want string
	}{
		{"before start", func(r *record.Record) { r.Offset = 9 }, "before the segment's start"},
		{"negative offset", func(r *record.Record) { r.Offset = -1 }, "before the segment's start"},
		{"largest offset", func(r *record.Record) { r.Offset = math.MaxInt64 }, "largest"},
		{"topic", func(r *record.Record) { r.Topic = "other" }, "another log"},
		{"partition", func(r *record.Record) { r.Partition++ }, "another log"},
		{"timestamp type", func(r *record.Record) { r.TimestampType = 2 }, "timestamp type 2"},
		{"timestamp type", func(r *record.Record) { r.TimestampType = -2 }, "timestamp type -2"},
		{"epoch", func(r *record.Record) { r.LeaderEpoch = -2 }, "leader epoch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWriter(t, 10)
			r := rec(10)
			c.edit(&r)
			_, err := w.Append(&r)
			wantErr(t, err, c.want)
			wantErr(t, err, fmt.Sprintf("append %s-%d@%d", r.Topic, r.Partition, r.Offset))
			if w.Count() != 0 {
				t.Errorf("count %d after a refused record", w.Count())
			}
		})
	}
	w := newWriter(t, 10)
	for _, offset := range []int64{12, 14} {
		r := rec(offset)
		if _, err := w.Append(&r); err != nil {
			t.Fatal(err)
		}
	}
	for _, offset := range []int64{14, 13, 10} {
		r := rec(offset)
		_, err := w.Append(&r)
		wantErr(t, err, "not above the last record's 14")
	}
	if w.Count() != 2 {
		t.Errorf("count %d, want 2", w.Count())
	}
}

func TestCloseRefuses(t *testing.T) {
	w := newWriter(t, 0)
	_, _, err := w.Close(0, segment.First(), nil)
	wantErr(t, err, "no offset")
	_, _, err = w.Close(-5, segment.First(), nil)
	wantErr(t, err, "no offset")
	r := rec(5)
	if _, err := w.Append(&r); err != nil {
		t.Fatal(err)
	}
	_, _, err = w.Close(5, segment.First(), nil)
	wantErr(t, err, "next is not above the last record's offset 5")
	if err := w.Skip(6, 9, segment.Lost); err != nil {
		t.Fatal(err)
	}
	_, _, err = w.Close(8, segment.First(), nil)
	wantErr(t, err, "ends after next 8")
	// None of these has harmed the writer.
	data, _, err := w.Close(9, segment.First(), nil)
	if err != nil {
		t.Fatal(err)
	}
	h, got := mustReadAll(t, data)
	wantRecords(t, got, []record.Record{rec(5)})
	if want := []segment.Skip{{0, 5, segment.NoData}, {6, 9, segment.Lost}}; !slices.Equal(h.Skipped, want) {
		t.Errorf("skipped %v, want %v", h.Skipped, want)
	}
	_, _, err = w.Close(9, segment.First(), nil)
	wantErr(t, err, "closed")
	_, err = w.Append(&r)
	wantErr(t, err, "closed")
	wantErr(t, w.Skip(20, 21, segment.Lost), "closed")
}

// TestLargestOffsets: a segment may reach to the largest offset.
func TestLargestOffsets(t *testing.T) {
	_, first := write(t, identity(), 0, math.MaxInt64-10, "", segment.First(), nil)
	recs := []record.Record{rec(math.MaxInt64 - 7), rec(math.MaxInt64 - 1)}
	for i := range recs {
		recs[i].Timestamp = 1
	}
	data, h := write(t, identity(), math.MaxInt64-10, math.MaxInt64, "", segment.After(first, 10), recs)
	got, back := mustReadAll(t, data)
	wantRecords(t, back, recs)
	want := []segment.Skip{{math.MaxInt64 - 10, math.MaxInt64 - 7, segment.NoData}, {math.MaxInt64 - 6, math.MaxInt64 - 1, segment.NoData}}
	if !slices.Equal(got.Skipped, want) || h.LastOffset != math.MaxInt64-1 {
		t.Errorf("skipped %v, last offset %d", got.Skipped, h.LastOffset)
	}
}

// TestSameBytes: the bytes depend on records, ranges, chain and schemas alone, not on how and when they came.
func TestSameBytes(t *testing.T) {
	recs := randomRecords(9, 3, 4000)
	next := recs[len(recs)-1].Offset + 5
	schemas := []segment.Schema{{ID: 1, Type: "AVRO", Text: `"int"`}, {ID: 1, GUID: "b", Type: "AVRO", Text: `"int"`}, {ID: -1, GUID: "a", Type: "JSON", Text: "{}"},
		{ID: 7, Type: "AVRO", Text: `"long"`}, {ID: 7, Type: "AVRO", Text: `"string"`}}
	gap := slices.IndexFunc(recs[1:], func(r record.Record) bool { return r.Offset%7 == 0 }) // some record
	at := recs[gap].Offset
	for recs[gap+1].Offset == at+1 {
		gap++
		at = recs[gap].Offset
	}
	build := func(codec string, seed uint64) []byte {
		r := rand.New(rand.NewPCG(seed, 3))
		w, err := segment.NewWriter(identity(), 0, codec)
		if err != nil {
			t.Error(err)
			return nil
		}
		skips := []segment.Skip{{0, 2, segment.Lost}, {at + 1, recs[gap+1].Offset, segment.Replayed}, {next - 2, next, segment.NotArchived}}
		r.Shuffle(len(skips), func(i, j int) { skips[i], skips[j] = skips[j], skips[i] })
		var order []segment.Schema
		for _, i := range r.Perm(len(schemas)) {
			order = append(order, schemas[i], schemas[i])
		}
		for i := range recs {
			for len(skips) > 0 && r.IntN(1000) == 0 {
				if err := w.Skip(skips[0].From, skips[0].To, skips[0].Class); err != nil {
					t.Error(err)
				}
				skips = skips[1:]
			}
			if r.IntN(100) == 0 { // a refused record changes nothing
				if _, err := w.Append(&record.Record{Topic: "other"}); err == nil {
					t.Error("record of another log was taken")
				}
				w.MemBytes()
			}
			x := recs[i]
			x.Key, x.Value = bytes.Clone(x.Key), bytes.Clone(x.Value)
			if _, err := w.Append(&x); err != nil {
				t.Error(err)
			}
			for j := range x.Value {
				x.Value[j] = 0 // the writer has copied it
			}
		}
		for _, s := range skips {
			if err := w.Skip(s.From, s.To, s.Class); err != nil {
				t.Error(err)
			}
		}
		data, _, err := w.Close(next, segment.First(), order)
		if err != nil {
			t.Error(err)
		}
		return data
	}
	for _, codec := range codecNames {
		want := build(codec, 0)
		var wg sync.WaitGroup
		for seed := range uint64(8) { // at once, so that pooled encoders are shared and come with a past
			wg.Go(func() {
				if got := build(codec, seed); !bytes.Equal(got, want) {
					t.Errorf("%s: other bytes with seed %d", codec, seed)
				}
			})
		}
		wg.Wait()
		h, got := mustReadAll(t, want)
		wantRecords(t, got, recs)
		if len(h.Schemas) != len(schemas) || h.Schemas[0].GUID != "a" || h.Schemas[1].GUID != "" || h.Schemas[2].GUID != "b" {
			t.Errorf("schemas %+v", h.Schemas)
		}
	}
}

// TestSyncMarkerTellsSegmentsApart: blocks of one segment must not look like blocks of another.
func TestSyncMarkerTellsSegmentsApart(t *testing.T) {
	seen := map[string]string{}
	for _, id := range []segment.LogIdentity{
		{ClusterID: "a", TopicID: "bc"}, {ClusterID: "ab", TopicID: "c"}, {ClusterID: "a", TopicID: "bc", Partition: 1}, {TopicID: "abc"}, {ClusterID: "abc"},
	} {
		id.Topic, id.Isolation = "t", segment.ReadCommitted
		data, _ := write(t, id, 0, 1, "", segment.First(), nil)
		marker := string(data[len(data)-16:])
		if other, ok := seen[marker]; ok {
			t.Errorf("%+v has the sync marker of %s", id, other)
		}
		seen[marker] = fmt.Sprintf("%+v", id)
	}
}

func TestMemBytes(t *testing.T) {
	w, err := segment.NewWriter(identity(), 0, segment.CodecNull)
	if err != nil {
		t.Fatal(err)
	}
	if m := w.MemBytes(); m > 4096 {
		t.Errorf("an empty writer holds %d bytes", m)
	}
	var size int64
	for i := range int64(50_000) {
		r := rec(i * 2) // a gap before each
		n, err := w.Append(&r)
		if err != nil {
			t.Fatal(err)
		}
		size += int64(n)
	}
	gaps := int64(49_999 * 16)
	if m := w.MemBytes(); m < size+gaps || m > 2*(size+gaps)+1<<18 {
		t.Errorf("%d bytes for %d bytes of records and %d of gaps", m, size, gaps)
	}
	big := record.Record{Topic: "trips", Partition: 3, Offset: 200_000, Value: make([]byte, 32<<20)}
	before := w.MemBytes()
	if _, err := w.Append(&big); err != nil {
		t.Fatal(err)
	}
	if m := w.MemBytes() - before; m > 34<<20 {
		t.Errorf("a record of 32 MiB holds %d bytes", m)
	}
}

// TestBlockEnds: a block ends with the record that fills it exactly, and the last record's hash is right where a block ends with it.
func TestBlockEnds(t *testing.T) {
	for _, c := range []struct {
		size   int // of the first record's datum
		blocks int // with one more record behind
		max    int64
	}{{segment.BlockBytes - 1, 1, 0}, {segment.BlockBytes, 2, segment.BlockBytes}, {segment.BlockBytes + 1, 2, segment.BlockBytes + 1}} {
		recs := []record.Record{rec(0), rec(1)}
		recs[0].Value = make([]byte, 60_000)
		recs[0].Value = make([]byte, 60_000+c.size-segment.Size(&recs[0]))
		second := int64(segment.Size(&recs[1]))
		if c.blocks == 1 {
			c.max = int64(c.size) + second
		}
		data, h := write(t, identity(), 0, 2, segment.CodecNull, segment.First(), recs)
		sync := segment.SyncMarker(h.ClusterID, h.TopicID, h.Partition, h.Start)
		if n := bytes.Count(data, sync[:]) - 1; n != c.blocks || h.MaxBlockBytes != c.max {
			t.Errorf("first record of %d bytes: %d blocks, the largest of %d", c.size, n, h.MaxBlockBytes)
		}
		_, got := mustReadAll(t, data)
		wantRecords(t, got, recs)
		_, h = write(t, identity(), 0, 1, segment.CodecNull, segment.First(), recs[:1])
		if want := segment.Hash(&recs[0]); !bytes.Equal(h.LastHash, want[:]) {
			t.Errorf("first record of %d bytes alone: another hash", c.size)
		}
	}
}
