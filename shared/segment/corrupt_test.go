package segment_test

import (
	"bytes"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// wantCorrupt reads data to its end or first error and expects a *CorruptError that names the object and a position in it.
func wantCorrupt(t *testing.T, what string, data []byte, want string) {
	t.Helper()
	r, err := segment.NewReader("bucket/object", data)
	n := int64(0)
	for err == nil {
		var x record.Record
		err = r.Next(&x)
		if n++; n > 1_000_000 {
			t.Fatalf("%s: reading does not end", what)
		}
	}
	var corrupt *segment.CorruptError
	if !errors.As(err, &corrupt) || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: error %v, want …%s…", what, err, want)
		return
	}
	if corrupt.Object != "bucket/object" || corrupt.Offset < 0 || corrupt.Offset > int64(len(data)) {
		t.Errorf("%s: %+v", what, corrupt)
	}
	if r != nil {
		if again := r.Next(new(record.Record)); !errors.Is(again, err) {
			t.Errorf("%s: then %v after %v", what, again, err)
		}
		if r.Datum() != nil {
			t.Errorf("%s: a datum after an error", what)
		}
	}
}

func TestTruncatedAnywhere(t *testing.T) {
	for _, codec := range codecNames {
		data, _ := fullSegment(t, codec)
		for n := range data {
			wantCorrupt(t, "truncated", data[:n], "truncated")
		}
	}
}

// TestTruncatedAtBlock: without a whole block an object looks like a shorter one; only the header tells.
func TestTruncatedAtBlock(t *testing.T) {
	recs := benchRecords(2000)
	data, h := write(t, identity(), 0, 2000, "", segment.First(), recs)
	sync := segment.SyncMarker(h.ClusterID, h.TopicID, h.Partition, h.Start)
	blocks := 0
	for at := 0; ; blocks++ {
		i := bytes.Index(data[at:], sync[:])
		if i < 0 {
			break
		}
		at += i + len(sync)
		if at < len(data) {
			wantCorrupt(t, "truncated at a block", data[:at], "truncated")
		}
	}
	if blocks < 4 {
		t.Fatalf("only %d sync markers", blocks)
	}
}

// TestFlippedAnywhere: no flipped bit gives other records. Some change nothing (an unused bit of a compressor's frame).
func TestFlippedAnywhere(t *testing.T) {
	for _, codec := range codecNames {
		data, _ := fullSegment(t, codec)
		_, body, err := segment.ParseHeader("object", data)
		if err != nil {
			t.Fatal(err)
		}
		_, want := mustReadAll(t, data)
		harmless := 0
		for i := range data {
			for bit := range 8 {
				flipped := bytes.Clone(data)
				flipped[i] ^= 1 << bit
				_, got, err := readAll(flipped)
				var corrupt *segment.CorruptError
				if err == nil && int64(i) >= body && codec != segment.CodecNull {
					wantRecords(t, got, want)
					harmless++
				} else if !errors.As(err, &corrupt) {
					t.Fatalf("%s: bit %d of byte %d flipped: %v", codec, bit, i, err)
				}
			}
		}
		if harmless > 16 {
			t.Errorf("%s: %d bits can be flipped unnoticed", codec, harmless)
		}
	}
}

func TestTrailingGarbage(t *testing.T) {
	for _, codec := range codecNames {
		data, h := fullSegment(t, codec)
		_, body, err := segment.ParseHeader("object", data)
		if err != nil {
			t.Fatal(err)
		}
		for _, tail := range [][]byte{{0}, {0xff}, {2}, data, data[body:], bytes.Repeat([]byte{0}, 100)} {
			wantCorrupt(t, codec, append(bytes.Clone(data), tail...), "")
		}
		empty, _ := write(t, identity(), 0, 5, codec, segment.First(), nil)
		wantCorrupt(t, codec, append(empty, data[body:]...), "")
		_ = h
	}
}

// block frames datums as a block of a segment with codec null.
func block(h *segment.Header, count byte, datums ...[]byte) []byte {
	payload := slices.Concat(datums...)
	b := []byte{2 * count}
	n := uint64(len(payload)) << 1
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	b = append(b, byte(n))
	sync := segment.SyncMarker(h.ClusterID, h.TopicID, h.Partition, h.Start)
	return append(append(b, payload...), sync[:]...)
}

// TestHeaderAgainstRecords: each thing that the header says about the records is checked while reading.
func TestHeaderAgainstRecords(t *testing.T) {
	recs := []record.Record{rec(0), rec(1), rec(3)}
	data, h := write(t, identity(), 0, 5, segment.CodecNull, segment.First(), recs)
	_, body, err := segment.ParseHeader("object", data)
	if err != nil {
		t.Fatal(err)
	}
	with := func(edit func(h *segment.Header), blocks []byte) []byte {
		c := *h
		c.Skipped = slices.Clone(h.Skipped)
		c.LastHash = slices.Clone(h.LastHash)
		edit(&c)
		head, err := segment.EncodeHeader(&c)
		if err != nil {
			t.Fatal(err)
		}
		return append(head, blocks...)
	}
	same := func(*segment.Header) {}
	blocks := data[body:]
	if _, _, err := readAll(with(same, blocks)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		edit func(h *segment.Header)
		want string
	}{
		{"more records", func(h *segment.Header) { h.Next++; h.Count++; h.LastOffset = 5 }, "want 4"},
		{"fewer records", func(h *segment.Header) {
			h.Next = 3
			h.Count = 2
			h.Skipped = []segment.Skip{{From: 2, To: 3, Class: segment.NoData}}
			h.LastOffset = 1
		}, "3 records, where the header leaves 2"},
		{"another gap", func(h *segment.Header) {
			h.Skipped = []segment.Skip{{From: 1, To: 2, Class: segment.NoData}, {From: 4, To: 5, Class: segment.NoData}}
		}, "offset 1, want 2"},
		{"another start", func(h *segment.Header) { h.Ordinal, h.Start, h.Rows = 1, 1, []segment.Row{{Bytes: 1}} }, ""},
		{"size", func(h *segment.Header) { h.DatumBytes++ }, "bytes with blocks up to"},
		{"largest block", func(h *segment.Header) { h.DatumBytes++; h.MaxBlockBytes++ }, "bytes with blocks up to"},
		{"smaller block", func(h *segment.Header) { h.MaxBlockBytes-- }, "larger than"},
		{"checksum", func(h *segment.Header) { h.Checksum++ }, "checksum"},
		{"minimum timestamp", func(h *segment.Header) { h.MinTimestamp-- }, "timestamps"},
		{"maximum timestamp", func(h *segment.Header) { h.MaxTimestamp++; h.RunningMaxTimestamp++ }, "timestamps"},
		{"hash", func(h *segment.Header) { h.LastHash[31] ^= 1 }, "hash of the last record"},
		{"topic", func(h *segment.Header) { h.Topic = "other" }, `topic "trips"`},
	} {
		wantCorrupt(t, c.name, with(c.edit, blocks), c.want)
	}

	d := func(r record.Record) []byte { return segment.AppendDatum(nil, &r) }
	wrong := func(edit func(*record.Record)) []byte {
		r := rec(3)
		edit(&r)
		return d(r)
	}
	a, b, e := d(recs[0]), d(recs[1]), d(recs[2])
	for _, c := range []struct {
		name   string
		blocks []byte
		want   string
	}{
		{"swapped", block(h, 3, b, a, e), "offset 1, want 0"},
		{"twice", block(h, 3, a, a, e), "offset 0, want 1"},
		{"left out", block(h, 2, a, e), "offset 3, want 1"},
		{"in a skipped range", block(h, 3, a, b, wrong(func(r *record.Record) { r.Offset = 2 })), "offset 2, want 3"},
		{"beyond next", block(h, 3, a, b, wrong(func(r *record.Record) { r.Offset = 5 })), "offset 5, want 3"},
		{"partition", block(h, 3, a, b, wrong(func(r *record.Record) { r.Partition = 4 })), "partition 4"},
		{"topic", block(h, 3, a, b, wrong(func(r *record.Record) { r.Topic = "tripz" })), `topic "tripz"`},
		{"timestamp type", block(h, 3, a, b, wrong(func(r *record.Record) { r.TimestampType = 2 })), "timestamp type 2"},
		{"value", block(h, 3, a, wrong(func(r *record.Record) { *r = rec(1); r.Value[0] ^= 1 }), e), "checksum"},
		{"fewer than it says", block(h, 3, a, b), "value ends too early"},
		{"more than it says", block(h, 2, a, b, e), "after the block's last record"},
		{"empty block", append(block(h, 0), blocks...), "0 records"},
		{"negative count", append([]byte{1}, blocks[1:]...), "-1 records"},
		{"count too large for its bytes", block(h, 3, []byte("tiny")), "3 records in 4 bytes"},
		{"union branch", block(h, 3, append([]byte{4}, a[1:]...), b, e), "union branch"},
		{"absurd length", block(h, 3, []byte{2, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, a, b), "too early"},
		{"negative length", block(h, 3, append([]byte{2, 1}, a...), b), "length -1"},
		{"padded number", block(h, 3, append([]byte{2, 0x80, 0}, a...), b), "padding"},
		{"endless number", block(h, 3, append([]byte{2}, bytes.Repeat([]byte{0xff}, 11)...), a, b), "more than 64 bits"},
		{"absurd headers", block(h, 3, append(slices.Clone(a[:len(a)-1]), 0xfe, 0xff, 0xff, 0xff, 0x0f), b), "headers in"},
		{"headers do not end", block(h, 3, append(slices.Clone(a[:len(a)-1]), 2, 0, 0, 2), b), "does not end"},
		{"wrong sync marker", append(bytes.Clone(blocks[:len(blocks)-1]), blocks[len(blocks)-1]^1), "no sync marker"},
		{"absurd block length", append([]byte{6, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, blocks[3:]...), "truncated"},
	} {
		wantCorrupt(t, c.name, with(same, c.blocks), c.want)
	}
}

// TestBomb: a block that decompresses to more than the header says is refused before it has taken the memory.
func TestBomb(t *testing.T) {
	bomb := []record.Record{{Topic: "trips", Partition: 3, Offset: 0, Value: make([]byte, 16<<20)}}
	for _, codec := range codecNames[1:] {
		large, _ := write(t, identity(), 0, 1, codec, segment.First(), bomb)
		_, body, err := segment.ParseHeader("object", large)
		if err != nil {
			t.Fatal(err)
		}
		small, h := write(t, identity(), 0, 1, codec, segment.First(), []record.Record{rec(0)})
		_, smallBody, err := segment.ParseHeader("object", small)
		if err != nil {
			t.Fatal(err)
		}
		data := append(bytes.Clone(small[:smallBody]), large[body:]...)
		wantCorrupt(t, codec, data, "larger than")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 10 {
			if _, _, err := readAll(data); err == nil {
				t.Fatal("the bomb was read")
			}
		}
		runtime.ReadMemStats(&after)
		allocated := (after.TotalAlloc - before.TotalAlloc) / 10
		if allocated > 1<<20 {
			t.Errorf("%s: %d bytes allocated for a block of %d", codec, allocated, h.MaxBlockBytes)
		}
	}
}

func TestCodecTrailingGarbage(t *testing.T) {
	// Bytes behind the compressed stream, inside the block, with a right block length.
	for _, codec := range codecNames {
		data, h := write(t, identity(), 0, 1, codec, segment.First(), []record.Record{rec(0)})
		_, body, err := segment.ParseHeader("object", data)
		if err != nil {
			t.Fatal(err)
		}
		n := int(data[body+1]) / 2 // payload shorter than 64 bytes
		if data[body+1] >= 0x80 {
			t.Fatal("payload is too long for this test")
		}
		payload := append(bytes.Clone(data[body+2:int(body)+2+n]), 0)
		wantCorrupt(t, codec, append(bytes.Clone(data[:body]), block(h, 1, payload)...), "")
	}
}
