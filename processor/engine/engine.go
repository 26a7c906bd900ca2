package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/processor/value"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// TP names one input log.
type TP = record.TopicPartition

// NoTime is the event time, or watermark, before any.
const NoTime = -1 << 62

// Schemas finds writer schemas by wire-format id. known is false where the id is decided to be unknown (the record is poison).
// An error (registry down, not decided yet) makes Feed stop before the record, with that error wrapped.
type Schemas interface {
	Writer(tp TP, offset int64, id int) (s segment.Schema, known bool, err error)
}

// ErrNotReady is wrapped by Feed's errors that are worth repeating later.
var ErrNotReady = errors.New("not ready")

// Kind of an output.
type Kind int

// Kinds of outputs.
const (
	Result Kind = iota
	Late
	Future
	Poison
)

func (k Kind) String() string { return [...]string{"results", "late", "future", "poison"}[k] }

// Output is one record to write; Record.Topic is the live run's topic name (a session maps it), Offset is unset.
type Output struct {
	Kind   Kind
	Record record.Record
}

// Floor is the decision that from Offset on partition's watermark is at least W (event time, ms).
type Floor struct {
	TP
	Offset int64
	W      int64
}

// Commit is what must be stored with a partition's committed position so that a restart continues without a seam.
type Commit struct {
	Position int64 // next offset to read
	Low      int64 // oldest offset that an open window needs (≤ Position; where none, the offset to go on reading at); a restart reads from here
	MaxAtLow int64 // maximum event time of the records below Low, NoTime for none
	Emitted  int64 // W through which every closing has been handed out by Take, NoTime for none
	Partial  Partial
}

// Engine holds the state of one pipeline. Not safe for concurrent use.
type Engine struct {
	p       *pipeline.Pipeline
	schemas Schemas
	parts   map[TP]*partition
	floors  map[TP][]Floor // of each offset the highest, by offset; also those that have been applied: a partition may come back
	merged  *shard         // nil: keyed, each partition has its own
	sources map[string]*source
	shape   shape
	late    lateRule
	only    *only // nil: every window
	stats   Stats
	misuse  error // a broken promise of the caller; Feed returns it from then on

	eval evaluator // of Feed
}

// source is a pipeline source with its decoder and a row to decode into.
type source struct {
	*pipeline.Source
	decoder decoder
	row     []value.Value
}

func newSource(s *pipeline.Source) (*source, error) {
	d, err := newDecoder(s)
	if err != nil {
		return nil, fmt.Errorf("prepare source %s: %w", s.Topic, err)
	}
	return &source{Source: s, decoder: d, row: make([]value.Value, s.Slots)}, nil
}

// New makes an engine. floors are all floors known from the decision log; each is applied when its partition has been read to its offset.
// For keyed pipelines partition p of every source co-partitions and each closes alone.
func New(p *pipeline.Pipeline, schemas Schemas, floors []Floor) (*Engine, error) {
	e := &Engine{p: p, schemas: schemas, parts: map[TP]*partition{}, floors: map[TP][]Floor{}, sources: map[string]*source{},
		shape: newShape(p), late: lateByOwnPartition}
	e.eval = newEvaluator(p, &e.shape)
	if !p.Keyed {
		e.merged = newShard()
	}
	for i := range p.Source {
		s, err := newSource(&p.Source[i])
		if err != nil {
			return nil, err
		}
		e.sources[s.Topic] = s
	}
	for _, f := range floors {
		e.AddFloor(f)
	}
	return e, nil
}

// AddPartition begins a partition. at is its start: a fresh one has Position = Low = first offset, MaxAtLow = Emitted = NoTime; a restarted one what Commit gave.
// Feeding begins at at.Low; outputs that were handed out before the commit (side outputs below Position, closings ≤ Emitted) are not handed out again.
//
// A merged pipeline knows its partition set before the first Feed. A partition that appears later needs a floor at its first offset of at least the
// current W (Watermark), decided before: without it Feed refuses the partition's records.
func (e *Engine) AddPartition(tp TP, at Commit) {
	src, ok := e.sources[tp.Topic]
	if !ok {
		e.misused("add partition %s: no source of pipeline %s", tp, e.p.Name)
		return
	}
	if e.parts[tp] != nil {
		e.misused("add partition %s: added before", tp)
		return
	}
	sh := e.merged
	if sh == nil {
		sh = newShard()
	}
	p := &partition{tp: tp, source: src, shard: sh, index: len(sh.parts), pos: at.Low, maxTime: at.MaxAtLow, floor: NoTime,
		floors: slices.Clone(e.floors[tp]), handedOut: at.Position}
	sh.parts = append(sh.parts, p)
	sh.handedOut(at.Emitted, at.Partial)
	e.parts[tp] = p
	p.applyFloors()
}

// RemovePartition drops a partition's state and its outputs that were not taken (keyed pipelines, after a rebalance); its floors stay known. The
// partitions of a merged pipeline share their state: after a rebalance it needs a new engine, and Feed says so.
func (e *Engine) RemovePartition(tp TP) {
	p := e.parts[tp]
	switch {
	case p == nil:
	case e.merged != nil:
		e.misused("remove partition %s: a merged pipeline needs a new engine", tp)
	default:
		for _, w := range p.shard.windows {
			e.stats.OpenWindows--
			e.stats.StateBytes -= w.bytes
		}
		for _, w := range p.shard.closing {
			e.stats.StateBytes -= w.bytes
		}
		for _, o := range p.side {
			e.stats.SideBytes -= o.size()
		}
		delete(e.parts, tp)
	}
}

// AddFloor adds a floor decided now; Offset must be ≥ the partition's position. Of a partition that is not there (yet, or any more) it may have any
// offset. A floor that is known already changes nothing, so all of the decision log may be given again.
func (e *Engine) AddFloor(f Floor) {
	list, changed := insertFloor(e.floors[f.TP], f)
	if !changed {
		return
	}
	e.floors[f.TP] = list
	p := e.parts[f.TP]
	switch {
	case p == nil:
	case f.Offset < p.pos:
		e.misused("floor of %s at offset %d: the partition has been read to %d", f.TP, f.Offset, p.pos)
	default:
		p.floors, _ = insertFloor(p.floors, f)
		p.applyFloors()
	}
}

// insertFloor keeps the highest floor of each offset: a partition that stays idle gets one after the other at the same offset.
func insertFloor(list []Floor, f Floor) (_ []Floor, changed bool) {
	i, found := slices.BinarySearchFunc(list, f.Offset, func(f Floor, offset int64) int { return cmp.Compare(f.Offset, offset) })
	switch {
	case !found:
		return slices.Insert(list, i, f), true
	case list[i].W >= f.W:
		return list, false
	}
	list[i].W = f.W
	return list, true
}

// Feed takes consecutive records of one partition, in offset order, from its position on (older ones are ignored). It returns how many it took; fewer than
// len(recs) only with an error. Keys, values and headers of records that become side outputs are kept, not copied, until Take.
func (e *Engine) Feed(tp TP, recs []record.Record) (int, error) {
	p, err := e.open(tp)
	if err != nil {
		return 0, err
	}
	for i := range recs {
		r := &recs[i]
		if r.Offset < p.pos {
			continue
		}
		p.advance(r.Offset)
		pre, err := e.eval.prepare(e.schemas, p.tp, p.source, r)
		if err != nil {
			return i, fmt.Errorf("feed %s offset %d: %w", tp, r.Offset, err)
		}
		e.apply(p, r, pre, e.eval.key, e.eval.args)
		p.advance(r.Offset + 1)
		e.stats.Records++
	}
	return len(recs), nil
}

// open returns a partition that may be fed.
func (e *Engine) open(tp TP) (*partition, error) {
	if e.misuse != nil {
		return nil, e.misuse
	}
	p := e.parts[tp]
	if p == nil {
		return nil, fmt.Errorf("feed %s: the partition was not added", tp)
	}
	if w := p.watermark(); w < p.shard.closed {
		return nil, fmt.Errorf("feed %s: windows are closed through %d and the partition's watermark is %s: a partition that appears late needs a floor at its first offset",
			tp, p.shard.closed, timeText(w))
	}
	return p, nil
}

// Advance moves a partition's position to next, past offsets that hold no record.
func (e *Engine) Advance(tp TP, next int64) {
	if p := e.parts[tp]; p != nil {
		p.advance(next)
	}
}

// NoMore says that nothing will be fed to tp any more: where its watermark stands now, it stays, and windows beyond it never close. They are dropped,
// and not built any more. Not to be followed by Drain.
func (e *Engine) NoMore(tp TP) {
	p := e.parts[tp]
	if p == nil {
		return
	}
	s := p.shard
	s.limit = min(s.limit, p.watermark())
	for end, w := range s.windows {
		if end > s.limit {
			delete(s.windows, end)
			e.stats.OpenWindows--
			e.stats.StateBytes -= w.bytes
		}
	}
	s.last = nil
}

// Position returns the next offset to read of tp.
func (e *Engine) Position(tp TP) int64 {
	if p := e.parts[tp]; p != nil {
		return p.pos
	}
	return 0
}

// Watermark returns W (merged) or w_p (keyed) and, for merged, the partition that holds it back.
func (e *Engine) Watermark(tp TP) (w int64, heldBy TP) {
	if e.merged != nil {
		return e.merged.watermark()
	}
	if p := e.parts[tp]; p != nil {
		return p.watermark(), tp
	}
	return NoTime, tp
}

// Stats counts since New: records fed, results, late, future, poison handed out, open windows, bytes of their state (about), bytes of the side
// outputs that were not taken yet (about).
type Stats struct {
	Records, Results, Late, Future, Poison int64
	OpenWindows, StateBytes, SideBytes     int64
}

// Stats returns the counters.
func (e *Engine) Stats() Stats { return e.stats }

func (e *Engine) misused(format string, args ...any) {
	if e.misuse == nil {
		e.misuse = fmt.Errorf(format, args...)
	}
}
