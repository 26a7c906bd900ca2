package segment_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// cutter takes records in batches and notes the first offsets of the segments that it begins.
type cutter struct {
	c      *segment.Cutter
	open   bool
	starts []int64
}

func (c *cutter) batch(recs []record.Record) {
	for i := range recs {
		r := &recs[i]
		n := segment.Size(r)
		if c.c.Before(r, n) {
			c.c.Reset()
			c.open = false
		}
		if !c.open {
			c.starts = append(c.starts, r.Offset)
			c.open = true
		}
		if c.c.Add(r, n) {
			c.c.Reset()
			c.open = false
		}
	}
}

func starts(rule segment.CutRule, recs []record.Record) []int64 {
	c := cutter{c: segment.NewCutter(rule)}
	c.batch(recs)
	return c.starts
}

// stamped returns records of equal size with these timestamps, from offset 0.
func stamped(ts ...int64) []record.Record {
	var recs []record.Record
	for i, t := range ts {
		recs = append(recs, record.Record{Topic: "t", Offset: int64(i), Timestamp: t, Value: []byte("x")})
	}
	return recs
}

func TestCutRule(t *testing.T) {
	one := int64(segment.Size(&stamped(1)[0]))
	for _, c := range []struct {
		name string
		rule segment.CutRule
		recs []record.Record
		want []int64
	}{
		{"no rule", segment.CutRule{}, stamped(1, 2, 3), []int64{0}},
		{"flush.size 1", segment.CutRule{FlushSize: 1}, stamped(1, 2, 3), []int64{0, 1, 2}},
		{"flush.size 2", segment.CutRule{FlushSize: 2}, stamped(1, 2, 3, 4, 5), []int64{0, 2, 4}},
		{"interval: cut at the interval, not before", segment.CutRule{RotateIntervalMs: 10}, stamped(5, 14, 15, 24, 25), []int64{0, 2, 4}},
		{"interval counts from the first record, whatever the largest", segment.CutRule{RotateIntervalMs: 10}, stamped(5, 14, 3, 14, 15), []int64{0, 4}},
		{"interval: an older record does not cut", segment.CutRule{RotateIntervalMs: 10}, stamped(100, 5, 1, 109, 110), []int64{0, 4}},
		{"interval: two cuts in a row", segment.CutRule{RotateIntervalMs: 10}, stamped(0, 10, 20, 21), []int64{0, 1, 2}},
		{"interval: far apart", segment.CutRule{RotateIntervalMs: 10}, stamped(math.MinInt64, math.MaxInt64, math.MinInt64), []int64{0, 1}},
		{"interval: largest", segment.CutRule{RotateIntervalMs: math.MaxInt64}, stamped(-1, math.MaxInt64-2, math.MaxInt64-1), []int64{0, 2}},
		{"bytes: a segment is not larger", segment.CutRule{SegmentBytes: 2*one + 1}, stamped(1, 2, 3, 4, 5), []int64{0, 2, 4}},
		{"bytes: full at the exact size", segment.CutRule{SegmentBytes: 2 * one}, stamped(1, 2, 3, 4, 5), []int64{0, 2, 4}},
		{"bytes: a large record is alone", segment.CutRule{SegmentBytes: one - 1}, stamped(1, 2, 3), []int64{0, 1, 2}},
		{"whichever comes first", segment.CutRule{FlushSize: 3, RotateIntervalMs: 10}, stamped(0, 1, 2, 3, 13, 14, 15, 16), []int64{0, 3, 4, 7}},
	} {
		if got := starts(c.rule, c.recs); !slices.Equal(got, c.want) {
			t.Errorf("%s: segments begin at %v, want %v", c.name, got, c.want)
		}
	}
}

func TestCutRuleTellsTheLastRecord(t *testing.T) {
	// A segment full by count or bytes is known to be so with its last record, without waiting for the next one.
	recs := stamped(1, 2)
	n := segment.Size(&recs[0])
	for _, rule := range []segment.CutRule{{FlushSize: 2}, {SegmentBytes: int64(2 * n)}} {
		c := segment.NewCutter(rule)
		if c.Add(&recs[0], n) || c.Before(&recs[1], n) || !c.Add(&recs[1], n) {
			t.Errorf("%+v: not full with the second record", rule)
		}
	}
}

func TestCutsDoNotDependOnBatches(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		recs := randomRecords(seed, r.Int64N(1000), 300)
		rule := segment.CutRule{FlushSize: r.Int64N(40), SegmentBytes: r.Int64N(3000), RotateIntervalMs: r.Int64N(60_000)}
		want := starts(rule, recs)
		c := cutter{c: segment.NewCutter(rule)}
		for rest := recs; len(rest) > 0; {
			n := 1 + r.IntN(len(rest))
			c.batch(rest[:n])
			rest = rest[n:]
		}
		if !slices.Equal(c.starts, want) {
			t.Fatalf("seed %d, %+v: batches begin segments at %v, one run at %v", seed, rule, c.starts, want)
		}
		// A restart at any segment's start finds the same cuts.
		if k := r.IntN(len(want)); true {
			i := slices.IndexFunc(recs, func(x record.Record) bool { return x.Offset == want[k] })
			if got := starts(rule, recs[i:]); !slices.Equal(got, want[k:]) {
				t.Fatalf("seed %d, %+v: after a restart at %d segments begin at %v, want %v", seed, rule, want[k], got, want[k:])
			}
		}
	}
}
