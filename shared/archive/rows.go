package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

// ErrNotArchived: the archive holds no segment of that partition.
var ErrNotArchived = errors.New("not in the archive")

// stretch is a run of consecutive segments whose rows come from one place.
type stretch struct {
	start, next int64
	name        *IndexName    // an index object; nil for a hole and for the tail
	rows        []segment.Row // of the tail, or once loaded
}

// hole reports whether the stretch has no index object: a writer died before it wrote it, or the listing of index names is older
// than the tail. Its rows are in the headers of its segments.
func (s *stretch) hole() bool { return s.name == nil && s.rows == nil }

// chainMap is what a listing of index names and the newest header tell about one partition: where the rows of every
// segment are.
type chainMap struct {
	tp        record.TopicPartition
	tail      *Tail
	stretches []stretch // tile [0, tail.Header.Next)
}

// next is the frontier: the first offset that is not archived.
func (m *chainMap) next() int64 { return m.tail.Header.Next }

// mapChain lays the index objects, the holes between them and the tail's own rows end to end.
func mapChain(tp record.TopicPartition, names []IndexName, tail *Tail) (*chainMap, error) {
	m := &chainMap{tp: tp, tail: tail}
	at := int64(0)
	add := func(s stretch) error {
		if s.start < at || s.next > tail.Header.Next {
			return fmt.Errorf("%w: rows of [%d, %d) of %s overlap others or pass the newest segment's end %d", ErrBroken, s.start, s.next, tp, tail.Header.Next)
		}
		if s.start > at {
			m.stretches = append(m.stretches, stretch{start: at, next: s.start})
		}
		m.stretches = append(m.stretches, s)
		at = s.next
		return nil
	}
	for i := range names {
		if err := add(stretch{start: names[i].Start, next: names[i].Next, name: &names[i]}); err != nil {
			return nil, err
		}
	}
	if at == tail.Header.Next { // the tail ends a block whose index object is there
		return m, nil
	}
	rows := rowsWith(tail)
	if err := add(stretch{start: rows[0].Start, next: tail.Header.Next, rows: rows}); err != nil {
		return nil, err
	}
	return m, nil
}

// chainMap reads the map of a partition: one LIST of index names, one LIST of segments and one header.
func (a *Archive) chainMap(ctx context.Context, tp record.TopicPartition) (*chainMap, error) {
	names, err := a.indexNames(ctx, tp)
	if err != nil {
		return nil, err
	}
	tail, err := a.tail(ctx, tp, -1, names)
	if err != nil {
		return nil, err
	}
	if tail == nil {
		return nil, fmt.Errorf("%s is %w at %s (folder %s)", tp, ErrNotArchived, a.st, segment.PartitionPrefix(a.topicsDir, tp.Topic, tp.Partition))
	}
	return mapChain(tp, names, tail)
}

// load reads the rows of the stretches with the given positions in m.
func (a *Archive) load(ctx context.Context, m *chainMap, which []int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, i := range which {
		s := &m.stretches[i]
		if s.rows != nil {
			continue
		}
		g.Go(func() (err error) {
			if s.hole() {
				s.rows, err = a.holeRows(ctx, m.tp, s.start, s.next)
				return err
			}
			data, err := a.st.Get(ctx, s.name.Format())
			if err != nil {
				return fmt.Errorf("read index object %s: %w", s.name.Format(), err)
			}
			s.rows, err = parseIndex(*s.name, data)
			return err
		})
	}
	return g.Wait()
}

// holeRows collects the rows of the segments in [start, next) from the headers there: of the last segment, whose header
// holds the rows of its block, then of the last one before that block, and so on: one call per missing index object, and
// one LIST per 1,000 segments.
func (a *Archive) holeRows(ctx context.Context, tp record.TopicPartition, start, next int64) ([]segment.Row, error) {
	var segs []found
	for from := start; ; {
		page, more, err := a.segmentsFrom(ctx, tp, from, 0)
		if err != nil {
			return nil, err
		}
		end := slices.IndexFunc(page, func(f found) bool { return f.start >= next })
		if end >= 0 {
			page, more = page[:end], false
		}
		segs = append(segs, page...)
		if !more || len(page) == 0 {
			break
		}
		from = page[len(page)-1].start + 1
	}
	var rows []segment.Row
	for len(segs) > 0 {
		t, err := a.readHeader(ctx, tp, segs[len(segs)-1].start)
		if err != nil {
			return nil, asForeign(err)
		}
		if end := next; len(rows) > 0 {
			end = rows[0].Start
			if t.Header.Next != end {
				return nil, missing(tp, t.Header.Next, end)
			}
		} else if t.Header.Next != end {
			return nil, missing(tp, t.Header.Next, end)
		}
		block := rowsWith(t)
		rows = append(block, rows...)
		segs = segs[:max(0, len(segs)-len(block))]
	}
	if len(rows) == 0 || rows[0].Start != start {
		return nil, missing(tp, start, next)
	}
	return rows, nil
}

func missing(tp record.TopicPartition, from, to int64) error {
	return fmt.Errorf("%w: no segment of %s holds [%d, %d); archiver verify tells more", ErrBroken, tp, from, to)
}

// skips reads the skipped ranges of the given segments, in order: the headers of those that hold fewer records than
// offsets, and no other. With pass, those of segments that are gone or damaged are left out.
func (a *Archive) skips(ctx context.Context, tp record.TopicPartition, segs []PlannedSegment, pass bool) ([]segment.Skip, error) {
	of := make([][]segment.Skip, len(segs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, s := range segs {
		if s.Count == s.Next-s.Start {
			continue
		}
		g.Go(func() error {
			t, err := a.readHeader(ctx, tp, s.Start)
			if pass && unreadable(err) {
				return nil
			}
			if errors.Is(err, store.ErrNotFound) {
				return missing(tp, s.Start, s.Next)
			}
			if err != nil {
				return asForeign(err)
			}
			of[i] = t.Header.Skipped
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(of...), nil
}

// unreadable reports whether an object itself is why it could not be read, and not the store.
func unreadable(err error) bool {
	var corrupt *segment.CorruptError
	return errors.As(err, &corrupt) || errors.Is(err, store.ErrCold) || errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrNoBucket)
}
