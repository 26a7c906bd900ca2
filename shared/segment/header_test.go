package segment_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// fullSegment is a segment with something in every field of its header.
func fullSegment(t testing.TB, codec string) ([]byte, *segment.Header) {
	t.Helper()
	data, h := write(t, identity(), 0, 10, codec, segment.First(), []record.Record{rec(0), rec(7)})
	data2, h2 := write(t, identity(), 10, 20, codec, segment.After(h, int64(len(data))), nil)
	w, err := segment.NewWriter(identity(), 20, codec)
	if err != nil {
		t.Fatal(err)
	}
	for _, offset := range []int64{22, 23, 29, 40} {
		r := rec(offset)
		r.Headers = []record.Header{{Key: "h", Value: []byte("1")}, {Key: "h"}}
		if _, err := w.Append(&r); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []segment.Skip{{From: 20, To: 22, Class: segment.NotArchived}, {From: 30, To: 35, Class: segment.Lost}, {From: 35, To: 36, Class: segment.Replayed}} {
		if err := w.Skip(s.From, s.To, s.Class); err != nil {
			t.Fatal(err)
		}
	}
	data3, h3, err := w.Close(42, segment.After(h2, int64(len(data2))), []segment.Schema{
		{ID: 4, Type: "PROTOBUF", Text: "syntax = \"proto3\"; // <&>\u2028", References: []segment.Reference{{Name: "a.proto", Subject: "a", Version: 3, Text: "x"}}, Subject: "s", Version: 9},
		{ID: -1, GUID: "89791762-2336-4186-9674-299b90a802e2", Type: "AVRO", Text: `"string"`},
	})
	if err != nil {
		t.Fatal(err)
	}
	return data3, h3
}

func TestFullHeader(t *testing.T) {
	data, h := fullSegment(t, segment.CodecZstd)
	got, body, err := segment.ParseHeader("object", data)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(h, got); d != "" {
		t.Errorf("-Close +ParseHeader:\n%s", d)
	}
	head, err := segment.EncodeHeader(got)
	if err != nil || !bytes.Equal(head, data[:body]) {
		t.Errorf("the parsed header encodes to other bytes: %v", err)
	}
	hash := func() []byte {
		r := rec(40)
		r.Headers = []record.Header{{Key: "h", Value: []byte("1")}, {Key: "h"}}
		s := segment.Hash(&r)
		return s[:]
	}()
	want := &segment.Header{
		FormatVersion: 1, ClusterID: identity().ClusterID, TopicID: identity().TopicID, Topic: "trips", Partition: 3,
		Start: 20, Next: 42, Ordinal: 2, Count: 4, MinTimestamp: 1_700_000_000_022, MaxTimestamp: 1_700_000_000_040,
		RunningMaxTimestamp: 1_700_000_000_040, Isolation: "read_committed",
		Skipped: []segment.Skip{
			{From: 20, To: 22, Class: segment.NotArchived}, {From: 24, To: 29, Class: segment.NoData}, {From: 30, To: 35, Class: segment.Lost},
			{From: 35, To: 36, Class: segment.Replayed}, {From: 36, To: 40, Class: segment.NoData}, {From: 41, To: 42, Class: segment.NoData},
		},
		LastOffset: 40, LastEpoch: 5, LastHash: hash,
		Rows: []segment.Row{
			{Start: 0, Count: 2, Bytes: got.Rows[0].Bytes, MinTimestamp: 1_700_000_000_000, MaxTimestamp: 1_700_000_000_007},
			{Start: 10, Count: 0, Bytes: got.Rows[1].Bytes},
		},
		Schemas: []segment.Schema{
			{ID: -1, GUID: "89791762-2336-4186-9674-299b90a802e2", Type: "AVRO", Text: `"string"`},
			{ID: 4, Type: "PROTOBUF", Text: "syntax = \"proto3\"; // <&>\u2028", References: []segment.Reference{{Name: "a.proto", Subject: "a", Version: 3, Text: "x"}}, Subject: "s", Version: 9},
		},
		Codec: "zstandard", DatumBytes: got.DatumBytes, MaxBlockBytes: got.DatumBytes, Checksum: got.Checksum,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestEmptySegment(t *testing.T) {
	data, h := write(t, identity(), 0, 1000, "", segment.First(), nil)
	got, recs := mustReadAll(t, data)
	if d := cmp.Diff(h, got); d != "" {
		t.Errorf("-Close +NewReader:\n%s", d)
	}
	if len(recs) != 0 || got.Count != 0 || got.Next != 1000 || got.MinTimestamp != 0 || got.MaxTimestamp != 0 || got.RunningMaxTimestamp != -1 {
		t.Errorf("%d records, header %+v", len(recs), got)
	}
	if want := []segment.Skip{{From: 0, To: 1000, Class: segment.NoData}}; !slices.Equal(got.Skipped, want) {
		t.Errorf("skipped %v, want %v", got.Skipped, want)
	}
}

// TestParseHeaderNeedsMore: with any beginning of an object ParseHeader says how much it needs, and then that is enough.
func TestParseHeaderNeedsMore(t *testing.T) {
	small, h := fullSegment(t, "")
	w, err := segment.NewWriter(identity(), 20, "")
	if err != nil {
		t.Fatal(err)
	}
	c := segment.Chain{Ordinal: 2, RunningMaxTimestamp: h.RunningMaxTimestamp, LastOffset: 7, LastHash: h.LastHash, Rows: h.Rows}
	large, _, err := w.Close(30, c, []segment.Schema{{ID: 1, Type: "AVRO", Text: strings.Repeat("x", 3*segment.HeadBytes)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range [][]byte{small, large} {
		_, body, err := segment.ParseHeader("object", data)
		if err != nil {
			t.Fatal(err)
		}
		for n := int64(0); n < int64(len(data)); n++ {
			if n > 2000 && n < body-1010 {
				n += 997
			}
			_, got, err := segment.ParseHeader("object", data[:n])
			if n >= body {
				if err != nil || got != body {
					t.Fatalf("with %d of %d bytes: body at %d, %v", n, body, got, err)
				}
				continue
			}
			var more *segment.ErrNeedMore
			if !errors.As(err, &more) || more.Bytes <= n || more.Bytes > max(body, segment.HeadBytes) {
				t.Fatalf("with %d of %d bytes: %v", n, body, err)
			}
		}
		// One more request is enough from the usual first one.
		_, _, err = segment.ParseHeader("object", data[:min(len(data), segment.HeadBytes)])
		var more *segment.ErrNeedMore
		if body > segment.HeadBytes && (!errors.As(err, &more) || more.Bytes != body) {
			t.Errorf("with the first %d bytes: %v, want %d", segment.HeadBytes, err, body)
		}
	}
}

// TestLargeSchemas: a schema beyond what Avro readers take for one metadata value is written in pieces between characters.
func TestLargeSchemas(t *testing.T) {
	schemas := []segment.Schema{
		{ID: 1, Type: "JSON", Text: strings.Repeat("a☃", segment.MaxMetaValue)},
		{ID: 2, Type: "JSON", Text: strings.Repeat("ä", segment.MaxMetaValue/2)},
		{ID: 3, Type: "JSON", Text: "b" + strings.Repeat("ä", segment.MaxMetaValue/2)},
		{ID: 4, Type: "JSON", Text: "{}"},
	}
	data, h := write(t, identity(), 0, 1, "", segment.First(), nil, schemas...)
	got, body, err := segment.ParseHeader("object", data)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(h, got); d != "" {
		t.Errorf("-Close +ParseHeader:\n%s", d)
	}
	count, rest := segment.Unseal(data[:body])
	entries, _ := segment.Entries(count, rest)
	n := 0
	for _, e := range entries {
		if len(e.Value) > segment.MaxMetaValue {
			t.Errorf("metadata %s has %d bytes", e.Key, len(e.Value))
		}
		if strings.ToValidUTF8(e.Value, "") != e.Value {
			t.Errorf("metadata %s is not UTF-8", e.Key)
		}
		if strings.HasPrefix(e.Key, "tapedeck.schema.") {
			n++
		}
	}
	if want := (4*segment.MaxMetaValue/segment.MaxMetaValue + 1) + 2 + 2 + 1; n != want {
		t.Errorf("%d pieces, want %d", n, want)
	}
}

// TestMetadataIsText: fastavro takes every metadata value for UTF-8.
func TestMetadataIsText(t *testing.T) {
	data, _ := fullSegment(t, "")
	_, body, err := segment.ParseHeader("object", data)
	if err != nil {
		t.Fatal(err)
	}
	entries, _ := segment.Entries(segment.Unseal(data[:body]))
	var keys []string
	for _, e := range entries {
		keys = append(keys, e.Key)
		if strings.ToValidUTF8(e.Value, "") != e.Value {
			t.Errorf("metadata %s is not UTF-8: %q", e.Key, e.Value)
		}
	}
	want := strings.Fields(`tapedeck.cluster.id tapedeck.topic.id tapedeck.topic tapedeck.partition tapedeck.isolation tapedeck.start
		tapedeck.next tapedeck.ordinal tapedeck.count tapedeck.datum.bytes tapedeck.block.bytes.max tapedeck.checksum tapedeck.timestamp.min
		tapedeck.timestamp.max tapedeck.timestamp.running.max tapedeck.last.offset tapedeck.last.epoch tapedeck.last.hash tapedeck.rows
		tapedeck.skips.000000 tapedeck.schema.000000 tapedeck.schema.000001 avro.schema avro.codec`)
	if !slices.Equal(keys, want) {
		t.Errorf("keys\n%q, want\n%q", keys, want)
	}
}

// TestParseHeaderRefuses edits a valid header, keeps its checksum right, and expects a refusal.
func TestParseHeaderRefuses(t *testing.T) {
	data, _ := fullSegment(t, "")
	_, body, err := segment.ParseHeader("object", data)
	if err != nil {
		t.Fatal(err)
	}
	entries, end := segment.Entries(segment.Unseal(data[:body]))
	at := func(key string) int {
		i := slices.IndexFunc(entries, func(e segment.Meta) bool { return e.Key == key })
		if i < 0 {
			t.Fatal(key)
		}
		return i
	}
	refused := func(name string, head []byte, want string) {
		t.Helper()
		_, _, err := segment.ParseHeader("bucket/object", head)
		var corrupt *segment.CorruptError
		if !errors.As(err, &corrupt) || !strings.Contains(err.Error(), want) || corrupt.Object != "bucket/object" || !strings.Contains(err.Error(), "bucket/object") {
			t.Errorf("%s: error %v, want …%s…", name, err, want)
		}
	}
	if _, _, err := segment.ParseHeader("object", segment.Join(entries, end)); err != nil {
		t.Fatalf("unedited: %v", err)
	}
	for _, c := range []struct{ key, value, want string }{
		{"tapedeck.partition", "03", "not a number"},
		{"tapedeck.partition", "+3", "not a number"},
		{"tapedeck.partition", "-1", "sync marker"},
		{"tapedeck.partition", "2147483648", "not a number"},
		{"tapedeck.partition", "4", "sync marker"},
		{"tapedeck.cluster.id", "other", "sync marker"},
		{"tapedeck.topic.id", "other", "sync marker"},
		{"tapedeck.topic.id", strings.Repeat("x", 5000), "length 5000"},
		{"tapedeck.topic", "a/b", "not a topic name"},
		{"tapedeck.isolation", "serializable", "isolation"},
		{"tapedeck.start", "19", "sync marker"},
		{"tapedeck.start", "", "not a number"},
		{"tapedeck.next", "20", "range"},
		{"tapedeck.next", "9223372036854775808", "not a number"},
		{"tapedeck.next", "43", "holds 5 offsets, but count is 4"},
		{"tapedeck.next", "41", "out of place"},
		{"tapedeck.count", "3", "holds 4 offsets, but count is 3"},
		{"tapedeck.count", "-4", "count -4"},
		{"tapedeck.ordinal", "3", "2 rows, want 3"},
		{"tapedeck.ordinal", "-1", "ordinal -1"},
		{"tapedeck.datum.bytes", "35", "largest block"},
		{"tapedeck.datum.bytes", "-1", "largest block"},
		{"tapedeck.block.bytes.max", "8", "largest block"},
		{"tapedeck.block.bytes.max", "1073741825", "largest block"},
		{"tapedeck.block.bytes.max", "100000", "largest block"},
		{"tapedeck.checksum", "123", "not 16 hexadecimal digits"},
		{"tapedeck.checksum", "ABCDEF0123456789", "not 16 hexadecimal digits"},
		{"tapedeck.timestamp.min", "1700000000041", "minimum timestamp"},
		{"tapedeck.timestamp.max", "1700000000041", "running maximum"},
		{"tapedeck.timestamp.running.max", "-2", "running maximum"},
		{"tapedeck.last.offset", "39", "last offset is 39"},
		{"tapedeck.last.epoch", "-2", "leader epoch -2"},
		{"tapedeck.last.hash", "", "hash of 0 bytes"},
		{"tapedeck.last.hash", "abcd", "hash of 2 bytes"},
		{"tapedeck.last.hash", strings.Repeat("A", 64), "not hexadecimal"},
		{"tapedeck.rows", "", "rows"},
		{"tapedeck.rows", "AA==", "0 rows, want 2"},
		{"tapedeck.rows", "AAA=", "bytes after the end"},
		{"tapedeck.rows", "AB==", "base64"}, // stray bits
		{"tapedeck.rows", "A A=", "base64"},
		{"tapedeck.rows", "AA==\n", "base64"},
		{"tapedeck.rows", "/v///w8=", "items in"},
		{"tapedeck.skips.000000", "AA==", "empty piece"},
		{"tapedeck.skips.000000", "AgACCAA=", "class 4"},
		{"tapedeck.skips.000000", "AgAAAAA=", "length 0"},
		{"tapedeck.skips.000000", "AgECAAA=", "gap -1"},
		{"tapedeck.skips.000000", "AgACAAI=", "does not end"},
		{"tapedeck.schema.000000", "{", "tapedeck.schema.000000"},
		{"tapedeck.schema.000000", `{"id":5,"type":"AVRO","schema":""}`, "schemas are not in order"},
		{"avro.schema", `"string"`, "record schema"},
		{"avro.schema", segment.RecordSchema + " ", "record schema"},
		{"avro.codec", "lz4", "unknown codec"},
	} {
		edited := slices.Clone(entries)
		edited[at(c.key)].Value = c.value
		refused(c.key+" = "+c.value, segment.Join(edited, end), c.want)
	}
	for i, e := range entries {
		without := slices.Delete(slices.Clone(entries), i, i+1)
		if strings.HasPrefix(e.Key, "tapedeck.schema.000001") {
			continue // the last schema is missed by nobody
		}
		refused("without "+e.Key, segment.Join(without, end), "")
		twice := slices.Insert(slices.Clone(entries), i, e)
		refused("twice "+e.Key, segment.Join(twice, end), "")
		if i > 0 {
			swapped := slices.Clone(entries)
			swapped[i], swapped[i-1] = swapped[i-1], swapped[i]
			refused("swapped "+e.Key, segment.Join(swapped, end), "")
		}
	}
	bomb := slices.Clone(entries)
	bomb[at("tapedeck.datum.bytes")].Value = "4294967296"
	bomb[at("tapedeck.block.bytes.max")].Value = "1073741825"
	refused("blocks above 1 GiB", segment.Join(bomb, end), "largest block of 1073741825 bytes")
	unknown := append(slices.Clone(entries), segment.Meta{Key: "avro.other", Value: "1"})
	refused("unknown key at the end", segment.Join(unknown, end), "unknown metadata")
	unknown = slices.Insert(slices.Clone(entries), at("avro.schema"), segment.Meta{Key: "tapedeck.other", Value: "1"})
	refused("unknown key", segment.Join(unknown, end), "tapedeck.other")
	refused("map in two blocks", segment.Join(entries, append([]byte{2}, end...)), "does not end")
	refused("short end", segment.Join(entries, end[:10]), "does not end")
	refused("long end", segment.Join(entries, append(slices.Clone(end), 0)), "does not end")

	refused("another file", []byte("PAR1...."), "not an Avro")
	refused("another Avro writer", []byte("Obj\x01\x06\x16avro.schema\x10\"string\""), "another writer")
	refused("negative count", append([]byte("Obj\x01\x05"), data[5:]...), "metadata of -3 entries")
	flipped := bytes.Clone(data)
	flipped[bytes.Index(data, []byte("trips"))] = 'T'
	refused("flipped byte", flipped, "header's checksum")
	huge := bytes.Replace(data, fmt.Appendf(nil, "%012d", body), []byte("999999999999"), 1)
	refused("huge header", huge, "header of 999999999999 bytes")
	tiny := bytes.Replace(data, fmt.Appendf(nil, "%012d", body), []byte("000000000020"), 1)
	refused("tiny header", tiny, "header of 20 bytes")
	long := bytes.Replace(data, []byte("\x1etapedeck.format\x021"), append([]byte("\x1etapedeck.format\xff\xff\xff\xff\x0f"), '1'), 1)
	refused("absurd value length", long, "length")
}

// TestNewerVersion: whatever a later version writes behind its number, an older reader says that it is too old.
func TestNewerVersion(t *testing.T) {
	data, _ := fullSegment(t, "")
	for _, v := range []string{"2", "10", "9223372036854775807"} {
		newer := append([]byte("Obj\x01\x14\x1etapedeck.format"), byte(2*len(v)))
		newer = append(append(newer, v...), "something else altogether"...)
		for _, object := range [][]byte{newer, bytes.Replace(data, []byte("tapedeck.format\x021"), append([]byte("tapedeck.format"), append([]byte{byte(2 * len(v))}, v...)...), 1)} {
			_, err := segment.NewReader("bucket/object", object)
			if !errors.Is(err, segment.ErrNewerVersion) || !strings.Contains(err.Error(), "bucket/object") || !strings.Contains(err.Error(), "written by a newer version; upgrade") {
				t.Errorf("version %s: %v", v, err)
			}
		}
	}
}

// TestOptionalMetadata: what a later writer of this version may add does not keep this reader from reading.
func TestOptionalMetadata(t *testing.T) {
	data, h := fullSegment(t, "")
	_, body, err := segment.ParseHeader("object", data)
	if err != nil {
		t.Fatal(err)
	}
	entries, end := segment.Entries(segment.Unseal(data[:body]))
	i := slices.IndexFunc(entries, func(e segment.Meta) bool { return e.Key == "avro.schema" })
	more := slices.Insert(slices.Clone(entries), i, segment.Meta{Key: "tapedeck.opt.a", Value: "\xff"}, segment.Meta{Key: "tapedeck.opt.b"})
	got, recs := mustReadAll(t, append(segment.Join(more, end), data[body:]...))
	if d := cmp.Diff(h, got); d != "" || int64(len(recs)) != h.Count {
		t.Errorf("%d records, -Close +NewReader:\n%s", len(recs), d)
	}
	more[i], more[i+1] = more[i+1], more[i]
	if _, _, err := segment.ParseHeader("object", segment.Join(more, end)); err == nil {
		t.Error("optional metadata out of order was taken")
	}
}

// TestRunningMaximum keeps its floor of −1, which is "none".
func TestRunningMaximum(t *testing.T) {
	for _, ts := range []int64{math.MinInt64, -2, -1} {
		r := rec(0)
		r.Timestamp = ts
		data, h := write(t, identity(), 0, 1, "", segment.First(), []record.Record{r})
		if h.RunningMaxTimestamp != -1 || h.MinTimestamp != ts || h.MaxTimestamp != ts {
			t.Errorf("timestamp %d gives %+v", ts, h)
		}
		mustReadAll(t, data)
	}
}

// TestSkippedRangesHaveOneSpelling: two headers that say the same about offsets must be the same.
func TestSkippedRangesHaveOneSpelling(t *testing.T) {
	_, h := write(t, identity(), 0, 10, "", segment.First(), nil)
	for _, c := range []struct {
		skips []segment.Skip
		want  string
	}{
		{[]segment.Skip{{From: 0, To: 10, Class: segment.Lost}}, ""},
		{[]segment.Skip{{From: 0, To: 4, Class: segment.NoData}, {From: 4, To: 10, Class: segment.Lost}}, ""},
		{[]segment.Skip{{From: 0, To: 4, Class: segment.Lost}, {From: 4, To: 10, Class: segment.Lost}}, "not joined"},
		{[]segment.Skip{{From: 0, To: 11, Class: segment.Lost}}, "out of place"},
		{[]segment.Skip{{From: 0, To: 9, Class: segment.Lost}}, "holds 1 offsets, but count is 0"},
		{nil, "holds 10 offsets, but count is 0"},
	} {
		e := *h
		e.Skipped = c.skips
		head, err := segment.EncodeHeader(&e)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := segment.ParseHeader("object", head)
		if c.want != "" {
			wantErr(t, err, c.want)
		} else if err != nil || !slices.Equal(got.Skipped, c.skips) {
			t.Errorf("%v: %+v, %v", c.skips, got, err)
		}
	}
}
