package segment_test

import (
	"bytes"
	"errors"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// A segment with schemas added is, byte for byte, the one that would have been written with them.
func TestWithSchemas(t *testing.T) {
	one, two := segment.Schema{ID: 1, Type: "AVRO", Text: `"string"`}, segment.Schema{ID: 2, Type: "AVRO", Text: `"long"`}
	guid := segment.Schema{ID: -1, GUID: "89791762-2336-4186-9674-299b90a802e2", Type: "JSON", Text: "{}"}
	var recs []record.Record
	for i := range int64(3000) {
		recs = append(recs, rec(100+2*i))
	}
	chain := segment.First()
	chain.Ordinal, chain.RunningMaxTimestamp, chain.Rows = 1, 5, []segment.Row{{Start: 0, Count: 1, Bytes: 9, MinTimestamp: 1, MaxTimestamp: 5}}
	for _, codec := range []string{"zstandard", "null"} {
		bare, _ := write(t, identity(), 100, 7000, codec, chain, recs, two)
		want, _ := write(t, identity(), 100, 7000, codec, chain, recs, one, two, guid)
		got, err := segment.WithSchemas("object", bare, []segment.Schema{guid, two, one, one})
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: %d bytes, want %d: %v", codec, len(got), len(want), err)
		}
		if _, back, err := readAll(got); err != nil || len(back) != len(recs) {
			t.Fatalf("%s: %d records, %v", codec, len(back), err)
		}
		if same, err := segment.WithSchemas("object", want, []segment.Schema{one}); err != nil || &same[0] != &want[0] {
			t.Errorf("%s: nothing to add: %v", codec, err)
		}
		var corrupt *segment.CorruptError
		bare[40]++
		if _, err := segment.WithSchemas("object", bare, []segment.Schema{one}); !errors.As(err, &corrupt) {
			t.Errorf("%s: a damaged header: %v", codec, err)
		}
	}
}
