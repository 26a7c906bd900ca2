package archive

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

// Random chains with timestamps in any order and index objects missing, against a plan made by reading everything.
func TestPlanSinceAgainstOracle(t *testing.T) {
	type seg struct {
		start, next int64
		ts          []int64
	}
	cold, whole, ended, extended := 0, 0, 0, 0
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 3))
		a, st := open(t)
		var tail *Tail
		var segs []seg
		next := int64(0)
		rare := 0 // a record without a timestamp here and there, in half of the chains
		if seed%2 == 1 {
			rare = 400
		}
		for range 256 + r.IntN(300) {
			s := seg{start: next, next: next + 1 + r.Int64N(6)}
			c := cut{next: s.next}
			out := r.IntN(10) == 0 || next == 0 && seed%2 == 0
			c.without = func(o int64) bool { return out || o%11 == 3 }
			c.ts = func(o int64) int64 {
				ts := max(0, o*10+int64(r.IntN(200))-100)
				switch {
				case r.IntN(300) == 0:
					ts = r.Int64N(next*20 + 1)
				case rare > 0 && o > 1000 && r.IntN(rare) == 0:
					ts = -1
				}
				s.ts = append(s.ts, ts)
				return ts
			}
			tail = create(t, a, trips, tail, c)
			segs, next = append(segs, s), c.next
		}
		for _, key := range indexKeys(st.Keys()) {
			if r.IntN(4) == 0 {
				st.Delete(key)
			}
		}
		for range 80 {
			q := Since{TP: trips, From: r.Int64N(next*11 + 100), Reach: math.MaxInt64, Below: math.MinInt64}
			if r.IntN(4) > 0 {
				q.Reach = q.From + r.Int64N(2000)
			}
			if r.IntN(2) > 0 {
				q.Below = q.From + r.Int64N(300)
			}
			from, before, any := int64(-1), int64(-1), false
			until := int64(-1)
			for _, s := range segs {
				hit := slices.ContainsFunc(s.ts, func(ts int64) bool { return ts >= q.From || ts < 0 })
				if from < 0 && hit {
					from = s.start
					if !any {
						from = 0
					}
				}
				if from < 0 && len(s.ts) > 0 {
					any, before = true, max(before, slices.Max(s.ts))
				}
				if from >= 0 && until < 0 && slices.ContainsFunc(s.ts, func(ts int64) bool { return ts >= q.Reach }) {
					until = s.next
				}
			}
			if from < 0 {
				from = next
			}
			if until < 0 {
				until = next
			}
			reached := until
			for _, s := range segs {
				if s.next > until && slices.ContainsFunc(s.ts, func(ts int64) bool { return ts < q.Below }) {
					until = s.next
				}
			}
			p, err := a.PlanSince(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			if p.From != from || p.Until != until || (from > 0) != (p.Before != nil) || from > 0 && *p.Before != before {
				t.Fatalf("seed %d, %+v: [%d, %d) before %v, want [%d, %d) before %d", seed, q, p.From, p.Until, p.Before, from, until, before)
			}
			at := p.From
			for _, s := range p.Segments {
				if s.Start != at || s.Outside {
					t.Fatalf("%+v: %d is followed by %+v", q, at, s)
				}
				at = s.Next
			}
			if at != p.Until || p.Gaps == nil || p.FromTimestamp != -1 || p.UntilTimestamp != -1 {
				t.Fatalf("%+v: %+v", q, p)
			}
			if from > 0 {
				cold++
			}
			if from == 0 {
				whole++
			}
			if until < next {
				ended++
			}
			if until > reached {
				extended++
			}
		}
	}
	t.Logf("%d begin in the middle, %d at the beginning, %d end before the frontier, %d go on for what comes late", cold, whole, ended, extended)
	if min(cold, ended, extended) < 20 || whole < 1 {
		t.Error("the cases are too tame to show anything")
	}
}

// What the beginning of the chain lacks is told where the range reaches it, and nothing is there since a time after everything.
func TestPlanSinceEnds(t *testing.T) {
	a, _ := gappy(t)
	for _, c := range []struct {
		since, from, until int64
		gaps               []segment.Skip
	}{
		{100_000, 0, 180, []segment.Skip{{From: 0, To: 100, Class: segment.Lost}, {From: 115, To: 120, Class: segment.NotArchived}, {From: 140, To: 160, Class: segment.Lost}}},
		{110_000, 115, 180, []segment.Skip{{From: 115, To: 120, Class: segment.NotArchived}, {From: 140, To: 160, Class: segment.Lost}}},
		{170_000, 170, 180, nil},
		{180_000, 180, 180, nil},
	} {
		p, err := a.PlanSince(context.Background(), Since{TP: trips, From: c.since, Reach: math.MaxInt64, Below: math.MinInt64})
		if err != nil || p.From != c.from || p.Until != c.until || !slices.Equal(p.Gaps, c.gaps) {
			t.Errorf("since %d: %+v %v", c.since, p, err)
		}
	}
}

func TestPlanSinceCost(t *testing.T) {
	st := longChain(t)
	a := Open(st, "topics")
	st.ResetCounts()
	p, err := a.PlanSince(context.Background(), Since{TP: trips, From: 10_000_000, Reach: 10_070_000, Below: 10_070_000})
	if err != nil {
		t.Fatal(err)
	}
	if n := st.Counts(); len(p.Segments) != 11 || calls(n) > 4 || n[store.OpGetRange] != 1 {
		t.Errorf("%d segments by calls %v", len(p.Segments), n)
	}
}
