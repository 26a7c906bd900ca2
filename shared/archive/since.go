package archive

import (
	"context"
	"fmt"
	"math"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// Since asks for everything of a partition from a point in record time on: a range of whole segments, whatever the order of timestamps in it.
type Since struct {
	TP record.TopicPartition
	// From, ms: the range begins with the first segment that holds a timestamp ≥ From, or a record without one.
	From int64
	// Reach, ms: the range may end after a segment by whose end a timestamp ≥ Reach has come; math.MaxInt64: at the frontier.
	Reach int64
	// Below, ms: and it does not end before the last segment that holds a timestamp < Below; math.MinInt64: it may.
	Below int64
	// PassUnreadable is Request's.
	PassUnreadable bool
}

// PlanSince plans such a range, and says in Before what it leaves out. It begins at offset 0 where no record lies before it, so that what the
// chain's beginning lacks is among its gaps. Where there is nothing since then it is empty, at the frontier. Errors are those of Plan.
//
// Calls: those of Plan, and one index object more at most: what index names say of the segments that are left out is enough.
func (a *Archive) PlanSince(ctx context.Context, r Since) (*PartitionPlan, error) {
	p, err := a.planSince(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", r.TP, err)
	}
	return p, nil
}

func (a *Archive) planSince(ctx context.Context, r Since) (*PartitionPlan, error) {
	m, err := a.chainMap(ctx, r.TP)
	if err != nil {
		return nil, err
	}
	var holes []int
	for i := range m.stretches {
		if m.stretches[i].hole() {
			holes = append(holes, i)
		}
	}
	if err := a.load(ctx, m, holes); err != nil {
		return nil, err
	}
	from, before, err := a.sinceBegin(ctx, m, r.From)
	if err != nil {
		return nil, err
	}
	until, err := a.sinceEnd(ctx, m, from, r)
	if err != nil {
		return nil, err
	}
	w := &window{from: from, until: until, fromTS: noMin, untilTS: noMax}
	p := w.plan(m, from, from, a.key)
	p.Until, p.Segments, p.Gaps = until, []PlannedSegment{}, []segment.Skip{}
	if from > 0 {
		p.Before = &before
	}
	if from == until {
		return p, nil
	}
	if err := a.load(ctx, m, m.overlapping(from, until)); err != nil {
		return nil, err
	}
	p.Segments = w.plan(m, from, until, a.key).Segments
	skips, err := a.skips(ctx, r.TP, p.Segments, r.PassUnreadable)
	if err != nil {
		return nil, err
	}
	p.Gaps = gapsOf(skips, from, until, reported)
	return p, nil
}

// sinceBegin returns where the first segment begins that holds a timestamp ≥ ts or none, and the greatest timestamp before it, −1 for none.
func (a *Archive) sinceBegin(ctx context.Context, m *chainMap, ts int64) (from, before int64, err error) {
	before = -1
	hit := func(s times) bool { return s.max >= ts || s.min < 0 }
	for i := range m.stretches {
		s := m.stretches[i].times()
		if s.none {
			continue
		}
		if !hit(s) {
			before = max(before, s.max)
			continue
		}
		if err := a.load(ctx, m, []int{i}); err != nil {
			return 0, 0, err
		}
		for _, row := range m.stretches[i].rows {
			s := timesOf(row)
			switch {
			case s.none:
			case !hit(s):
				before = max(before, s.max)
			case before < 0:
				return 0, before, nil
			default:
				return row.Start, before, nil
			}
		}
	}
	return m.next(), before, nil
}

// sinceEnd returns where the range may end that begins at from.
func (a *Archive) sinceEnd(ctx context.Context, m *chainMap, from int64, r Since) (until int64, err error) {
	until = -1
	for i := range m.stretches {
		s := &m.stretches[i]
		if t := s.times(); s.next <= from || t.none || t.max < r.Reach {
			continue
		}
		if err := a.load(ctx, m, []int{i}); err != nil {
			return 0, err
		}
		for j, row := range s.rows {
			if next := rowNext(s.rows, j, s.next); next > from && row.Count > 0 && row.MaxTimestamp >= r.Reach {
				until = next
				break
			}
		}
		if until >= 0 {
			break
		}
	}
	if until < 0 || r.Reach == math.MaxInt64 {
		return m.next(), nil
	}
	for i := len(m.stretches) - 1; i >= 0 && m.stretches[i].next > until; i-- {
		s := &m.stretches[i]
		if t := s.times(); t.none || t.min >= r.Below {
			continue
		}
		if err := a.load(ctx, m, []int{i}); err != nil {
			return 0, err
		}
		for j := len(s.rows) - 1; j >= 0; j-- {
			if row := s.rows[j]; row.Count > 0 && row.MinTimestamp < r.Below {
				return max(until, rowNext(s.rows, j, s.next)), nil
			}
		}
	}
	return until, nil
}

// times is the least and the greatest timestamp of some records, ms.
type times struct {
	none     bool // no record
	min, max int64
}

func timesOf(r segment.Row) times { return times{r.Count == 0, r.MinTimestamp, r.MaxTimestamp} }

// times are those of all records of a stretch, from its name or, where it has none, from its rows.
func (s *stretch) times() times {
	if s.name != nil {
		return times{s.name.empty(), s.name.MinTimestamp, s.name.MaxTimestamp}
	}
	all := times{none: true}
	for _, r := range s.rows {
		t := timesOf(r)
		switch {
		case t.none:
		case all.none:
			all = t
		default:
			all.min, all.max = min(all.min, t.min), max(all.max, t.max)
		}
	}
	return all
}
