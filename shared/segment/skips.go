package segment

import (
	"fmt"
	"math"
	"slices"
	"sort"
)

// classes in the order of their numbers in the file.
var classes = []Class{NoData, Lost, NotArchived, Replayed}

func classNumber(c Class) int { return slices.Index(classes, c) }

// skipper collects where a segment's offsets hold no records: gaps seen between records, and ranges that the caller explained.
type skipper struct {
	start int64
	pos   int64  // one past the last record, or start
	gaps  []span // between records, ascending
	told  []Skip // by the caller, ascending, disjoint, never over a record
}

type span struct{ from, to int64 }

// record notes a record at offset, which the caller has checked to be ≥ pos.
func (s *skipper) record(offset int64) error {
	if n := len(s.told); n > 0 && offset < s.told[n-1].To {
		i := sort.Search(n, func(i int) bool { return s.told[i].To > offset })
		if s.told[i].From <= offset {
			return fmt.Errorf("offset lies in [%d,%d), which was skipped as %s", s.told[i].From, s.told[i].To, s.told[i].Class)
		}
	}
	if offset > s.pos {
		s.gaps = append(s.gaps, span{s.pos, offset})
	}
	s.pos = offset + 1
	return nil
}

// tell notes a range that the caller explains.
func (s *skipper) tell(from, to int64, class Class) error {
	switch {
	case classNumber(class) < 0:
		return fmt.Errorf("unknown class %q", class)
	case from < s.start:
		return fmt.Errorf("begins before the segment's start %d", s.start)
	case to <= from:
		return fmt.Errorf("empty range")
	}
	if from < s.pos {
		i := sort.Search(len(s.gaps), func(i int) bool { return s.gaps[i].to > from })
		if i == len(s.gaps) || s.gaps[i].from > from || s.gaps[i].to < to {
			return fmt.Errorf("a record was written in this range")
		}
	}
	i := sort.Search(len(s.told), func(i int) bool { return s.told[i].To > from })
	if i < len(s.told) && s.told[i].From < to {
		return fmt.Errorf("overlaps [%d,%d), skipped before", s.told[i].From, s.told[i].To)
	}
	s.told = slices.Insert(s.told, i, Skip{from, to, class})
	return nil
}

// merge returns the ranges without records in [start, next): the told ones in their classes, the rest as NoData, adjacent
// ranges of one class joined.
func (s *skipper) merge(next int64) ([]Skip, error) {
	if n := len(s.told); n > 0 && s.told[n-1].To > next {
		t := s.told[n-1]
		return nil, fmt.Errorf("skipped range [%d,%d) ends after next %d", t.From, t.To, next)
	}
	var out []Skip
	add := func(from, to int64, class Class) {
		if from >= to {
			return
		}
		if n := len(out); n > 0 && out[n-1].To == from && out[n-1].Class == class {
			out[n-1].To = to
			return
		}
		out = append(out, Skip{from, to, class})
	}
	told := s.told
	fill := func(g span) {
		at := g.from
		for len(told) > 0 && told[0].From < g.to {
			add(at, told[0].From, NoData)
			add(told[0].From, told[0].To, told[0].Class)
			at = told[0].To
			told = told[1:]
		}
		add(at, g.to, NoData)
	}
	for _, g := range s.gaps {
		fill(g)
	}
	fill(span{s.pos, next})
	return out, nil
}

// memBytes is about what s holds.
func (s *skipper) memBytes() int64 { return int64(cap(s.gaps))*16 + int64(cap(s.told))*32 }

// checkSkips says whether skips are ascending ranges inside [start, next), joined where they can be, that leave exactly count
// offsets; and returns the last of those, or −1.
func checkSkips(skips []Skip, start, next, count int64) (last int64, err error) {
	left := next - start // both are ≥ 0
	at := start
	for i, s := range skips {
		if s.From < at || s.To <= s.From || s.To > next || classNumber(s.Class) < 0 {
			return 0, fmt.Errorf("skipped range [%d,%d) %s is out of place", s.From, s.To, s.Class)
		}
		if i > 0 && s.From == skips[i-1].To && s.Class == skips[i-1].Class {
			return 0, fmt.Errorf("skipped ranges [%d,%d) and [%d,%d) of one class are not joined", skips[i-1].From, skips[i-1].To, s.From, s.To)
		}
		at = s.To
		left -= s.To - s.From
	}
	if left != count {
		return 0, fmt.Errorf("range [%d,%d) without skipped ranges holds %d offsets, but count is %d", start, next, left, count)
	}
	if count == 0 {
		return -1, nil
	}
	last = next - 1
	for i := len(skips) - 1; i >= 0 && skips[i].To == last+1; i-- {
		last = skips[i].From - 1
	}
	return last, nil
}

// offsets walks the offsets of [start, next) that skips leave, ascending.
type offsets struct {
	skips []Skip
	pos   int64
}

// peek returns the next offset that holds a record; it is the range's end or more after the last.
func (o *offsets) peek() int64 {
	for len(o.skips) > 0 && o.skips[0].From == o.pos {
		o.pos = o.skips[0].To
		o.skips = o.skips[1:]
	}
	return o.pos
}

func (o *offsets) advance() {
	if o.pos < math.MaxInt64 {
		o.pos++
	}
}
