package segment_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// TestChain writes a chain of 600 segments with records, empty ones among them, and checks what each inherits.
func TestChain(t *testing.T) {
	c := segment.First()
	var rows []segment.Row
	var last *record.Record
	start, running := int64(0), int64(-1)
	for k := range int64(600) {
		recs := randomRecords(uint64(k), start, int(k%4))
		next := start + 1 + k%3
		if len(recs) > 0 {
			last = &recs[len(recs)-1]
			next = last.Offset + 1
		}
		for _, r := range recs {
			running = max(running, r.Timestamp)
		}
		data, h := write(t, identity(), start, next, segment.CodecNull, c, recs)
		got, _ := mustReadAll(t, data)
		if d := cmp.Diff(h, got); d != "" {
			t.Fatalf("ordinal %d (-Close +ParseHeader):\n%s", k, d)
		}
		if h.Ordinal != k || h.RunningMaxTimestamp != running {
			t.Fatalf("ordinal %d with running maximum %d, want %d with %d", h.Ordinal, h.RunningMaxTimestamp, k, running)
		}
		if want := rows[k-k%segment.IndexEvery:]; !slices.Equal(h.Rows, want) {
			t.Fatalf("ordinal %d has the rows\n%v, want\n%v", k, h.Rows, want)
		}
		if last == nil {
			if h.LastOffset != -1 || h.LastHash != nil || h.LastEpoch != record.NoEpoch {
				t.Fatalf("ordinal %d: last record %d %x before any record", k, h.LastOffset, h.LastHash)
			}
		} else if hash := segment.Hash(last); h.LastOffset != last.Offset || !slices.Equal(h.LastHash, hash[:]) || h.LastEpoch != 5 {
			t.Fatalf("ordinal %d: last record %d %x, want %d %x", k, h.LastOffset, h.LastHash, last.Offset, hash)
		}
		rows = append(rows, segment.Row{Start: start, Count: int64(len(recs)), Bytes: int64(len(data)), MinTimestamp: h.MinTimestamp, MaxTimestamp: h.MaxTimestamp})
		c = segment.After(h, int64(len(data)))
		start = next
	}
}

func TestAfterDoesNotShareRows(t *testing.T) {
	_, h := write(t, identity(), 0, 1, "", segment.First(), nil)
	h2 := *h
	h2.Ordinal, h2.Start, h2.Next = 1, 1, 2
	h2.Rows = append(make([]segment.Row, 0, 8), h.Row(100))
	a := segment.After(&h2, 1)
	b := segment.After(&h2, 2)
	if a.Rows[1].Bytes != 1 || b.Rows[1].Bytes != 2 {
		t.Errorf("two chains after one header share their rows: %v, %v", a.Rows, b.Rows)
	}
}

// TestCloseRefusesWrongChain: what would break a reader's plan must not reach the store.
func TestCloseRefusesWrongChain(t *testing.T) {
	good := func() segment.Chain {
		_, h := write(t, identity(), 0, 10, "", segment.First(), []record.Record{rec(0), rec(9)})
		return segment.After(h, 100)
	}
	for _, c := range []struct {
		name  string
		start int64
		chain segment.Chain
		want  string
	}{
		{"first not at 0", 10, segment.First(), "ordinal 0 starts at 10"},
		{"later at 0", 0, func() segment.Chain { c := good(); c.LastOffset, c.LastHash, c.LastEpoch = -1, nil, -1; return c }(), "row 0"},
		{"rows missing", 10, func() segment.Chain { c := good(); c.Rows = nil; return c }(), "0 rows, want 1"},
		{"too many rows", 10, func() segment.Chain { c := good(); c.Rows = append(c.Rows, c.Rows...); return c }(), "2 rows, want 1"},
		{"rows after start", 10, func() segment.Chain { c := good(); c.Rows[0].Start = 10; return c }(), "row 0"},
		{"rows not from 0", 10, func() segment.Chain { c := good(); c.Rows[0].Start = 1; c.Rows[0].Count = 1; return c }(), "ordinal 0 starts at 1"},
		{"row count too large", 10, func() segment.Chain { c := good(); c.Rows[0].Count = 11; return c }(), "11 records"},
		{"row without bytes", 10, func() segment.Chain { c := good(); c.Rows[0].Bytes = 0; return c }(), "0 bytes"},
		{"row with crossed timestamps", 10, func() segment.Chain { c := good(); c.Rows[0].MinTimestamp = c.Rows[0].MaxTimestamp + 1; return c }(), "timestamps"},
		{"negative ordinal", 10, func() segment.Chain { c := good(); c.Ordinal = -1; return c }(), "ordinal -1"},
		{"last record not before start", 9, good(), "last offset 9 is not before"},
		{"last record without hash", 10, func() segment.Chain { c := good(); c.LastHash = nil; return c }(), "hash of 0 bytes"},
		{"short hash", 10, func() segment.Chain { c := good(); c.LastHash = c.LastHash[1:]; return c }(), "hash of 31 bytes"},
		{"hash without last record", 10, func() segment.Chain { c := good(); c.LastOffset = -1; return c }(), "hash of 32 bytes"},
		{"running maximum below none", 10, func() segment.Chain { c := good(); c.RunningMaxTimestamp = -2; return c }(), "running maximum"},
	} {
		w, err := segment.NewWriter(identity(), c.start, "")
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = w.Close(c.start+5, c.chain, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want …%s…", c.name, err, c.want)
		}
	}
}
