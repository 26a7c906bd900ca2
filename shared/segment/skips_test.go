package segment_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

func TestSkip(t *testing.T) {
	w := newWriter(t, 0)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	add := func(offset int64) {
		t.Helper()
		r := rec(offset)
		_, err := w.Append(&r)
		must(err)
	}
	must(w.Skip(0, 5, segment.Lost))
	must(w.Skip(5, 8, segment.NotArchived))
	add(8)
	add(9)
	add(15) // 10 to 14 are a gap
	must(w.Skip(11, 13, segment.Lost))
	must(w.Skip(14, 15, segment.Replayed))
	must(w.Skip(13, 14, segment.NoData)) // between
	must(w.Skip(20, 22, segment.Lost))   // ahead
	must(w.Skip(22, 23, segment.Lost))

	wantErr(t, w.Skip(30, 30, segment.Lost), "empty range")
	wantErr(t, w.Skip(31, 30, segment.Lost), "empty range")
	wantErr(t, w.Skip(-1, 2, segment.Lost), "before the segment's start")
	wantErr(t, w.Skip(30, 31, "gone"), `unknown class "gone"`)
	wantErr(t, w.Skip(30, 31, ""), `unknown class ""`)
	wantErr(t, w.Skip(8, 9, segment.Lost), "a record was written")
	wantErr(t, w.Skip(9, 11, segment.Lost), "a record was written")
	wantErr(t, w.Skip(10, 16, segment.Lost), "a record was written")
	wantErr(t, w.Skip(15, 20, segment.Lost), "a record was written")
	wantErr(t, w.Skip(10, 12, segment.Lost), "overlaps [11,13)")
	wantErr(t, w.Skip(21, 25, segment.Lost), "overlaps [20,22)")
	wantErr(t, w.Skip(19, 25, segment.NoData), "overlaps [20,22)")
	r := rec(20)
	_, err := w.Append(&r)
	wantErr(t, err, "lies in [20,22), which was skipped as lost")
	r = rec(22)
	_, err = w.Append(&r)
	wantErr(t, err, "lies in [22,23)")
	add(23)

	data, h, err := w.Close(25, segment.First(), nil)
	must(err)
	want := []segment.Skip{
		{0, 5, segment.Lost}, {5, 8, segment.NotArchived}, {10, 11, segment.NoData}, {11, 13, segment.Lost}, {13, 14, segment.NoData},
		{14, 15, segment.Replayed}, {16, 20, segment.NoData}, {20, 23, segment.Lost}, {24, 25, segment.NoData},
	}
	if !slices.Equal(h.Skipped, want) {
		t.Errorf("skipped\n%v, want\n%v", h.Skipped, want)
	}
	got, recs := mustReadAll(t, data)
	if !slices.Equal(got.Skipped, want) {
		t.Errorf("read back\n%v, want\n%v", got.Skipped, want)
	}
	wantRecords(t, recs, []record.Record{rec(8), rec(9), rec(15), rec(23)})
}

// TestSkippedTile compares the writer with a plain model: a class for each offset.
func TestSkippedTile(t *testing.T) {
	classes := []segment.Class{segment.NoData, segment.Lost, segment.NotArchived, segment.Replayed}
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 4))
		n := 1 + r.Int64N(60)
		model := make([]segment.Class, n) // by offset; "record" is a record
		for i := range model {
			model[i] = segment.NoData
		}
		type step struct {
			offset int64 // of a record, or
			skip   segment.Skip
		}
		var steps []step
		for at := int64(0); at < n; {
			switch to := min(n, at+1+r.Int64N(4)); r.IntN(3) {
			case 0:
				c := classes[r.IntN(len(classes))]
				for i := at; i < to; i++ {
					model[i] = c
				}
				steps = append(steps, step{skip: segment.Skip{From: at, To: to, Class: c}})
				at = to
			case 1:
				model[at] = "record"
				steps = append(steps, step{offset: at})
				at++
			default:
				at = to // nobody says anything
			}
		}
		// Skips may be told any time: move some of them.
		for range steps {
			i, j := r.IntN(len(steps)), r.IntN(len(steps))
			if steps[i].skip.To > 0 {
				s := steps[i]
				steps = slices.Insert(slices.Delete(steps, i, i+1), j, s)
			}
		}
		w := newWriter(t, 0)
		for _, s := range steps {
			if s.skip.To > 0 {
				if err := w.Skip(s.skip.From, s.skip.To, s.skip.Class); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				continue
			}
			x := rec(s.offset)
			if _, err := w.Append(&x); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		data, _, err := w.Close(n, segment.First(), nil)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		h, recs := mustReadAll(t, data)
		got := make([]segment.Class, n)
		for _, x := range recs {
			got[x.Offset] += "record"
		}
		for i, s := range h.Skipped {
			if i > 0 && h.Skipped[i-1].To == s.From && h.Skipped[i-1].Class == s.Class {
				t.Fatalf("seed %d: not joined: %v", seed, h.Skipped)
			}
			for o := s.From; o < s.To; o++ {
				got[o] += s.Class
			}
		}
		if !slices.Equal(got, model) {
			t.Fatalf("seed %d:\n got %v\nwant %v", seed, got, model)
		}
	}
}

// TestManySkips: a log of one-record transactions has as many skipped ranges as records.
func TestManySkips(t *testing.T) {
	const n = 400_000
	w := newWriter(t, 0)
	for i := range int64(n) {
		x := record.Record{Topic: "trips", Partition: 3, Offset: 2 * i}
		if _, err := w.Append(&x); err != nil {
			t.Fatal(err)
		}
	}
	data, _, err := w.Close(2*n, segment.First(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, body, err := segment.ParseHeader("object", data)
	if err != nil {
		t.Fatal(err)
	}
	pieces := 0
	entries, _ := segment.Entries(segment.Unseal(data[:body]))
	for _, e := range entries {
		if len(e.Value) > segment.MaxMetaValue {
			t.Errorf("metadata %s has %d bytes", e.Key, len(e.Value))
		}
		if strings.HasPrefix(e.Key, "tapedeck.skips.") {
			pieces++
		}
	}
	if pieces != 4 { // 400,000 items of 3 bytes, 393,205 bytes each
		t.Errorf("%d pieces of skipped ranges", pieces)
	}
	h, recs := mustReadAll(t, data)
	if len(recs) != n || len(h.Skipped) != n {
		t.Fatalf("%d records, %d skipped ranges", len(recs), len(h.Skipped))
	}
	for i, s := range h.Skipped {
		if o := int64(i); s != (segment.Skip{From: 2*o + 1, To: 2*o + 2, Class: segment.NoData}) {
			t.Fatalf("skipped range %d is %v", i, s)
		}
	}
}
