// Package engine computes a pipeline's results as a pure function of its input logs and decisions (docs/semantics.md). It takes no
// clock, logger, context or network; whoever feeds it may use any interleaving of partitions and any batch size.
package engine

import (
	"errors"

	"tapedeck.dev/tapedeck/processor/pipeline"
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
	Low      int64 // oldest offset that an open window needs (= Position where none); a restart reads from here
	MaxAtLow int64 // maximum event time of the records below Low, NoTime for none
	Emitted  int64 // W through which every closing has been handed out by Take, NoTime for none
}

// Engine holds the state of one pipeline. Not safe for concurrent use.
type Engine struct{}

// New makes an engine. floors are all floors known from the decision log; each is applied when its partition has been read to its offset.
// For keyed pipelines partition p of every source co-partitions and each closes alone.
func New(p *pipeline.Pipeline, schemas Schemas, floors []Floor) (*Engine, error) { panic("stub") }

// AddPartition begins a partition. at is its start: a fresh one has Position = Low = first offset, MaxAtLow = Emitted = NoTime; a restarted one what Commit gave.
// Feeding begins at at.Low; outputs that were handed out before the commit (side outputs below Position, closings ≤ Emitted) are not handed out again.
func (e *Engine) AddPartition(tp TP, at Commit) { panic("stub") }

// RemovePartition drops a partition's state (keyed pipelines, after a rebalance).
func (e *Engine) RemovePartition(tp TP) { panic("stub") }

// AddFloor adds a floor decided now; Offset must be ≥ the partition's position.
func (e *Engine) AddFloor(f Floor) { panic("stub") }

// Feed takes consecutive records of one partition, in offset order, from its position on (older ones are ignored). It returns how many it took; fewer than
// len(recs) only with an error.
func (e *Engine) Feed(tp TP, recs []record.Record) (int, error) { panic("stub") }

// Advance moves a partition's position to next, past offsets that hold no record.
func (e *Engine) Advance(tp TP, next int64) { panic("stub") }

// Position returns the next offset to read of tp.
func (e *Engine) Position(tp TP) int64 { panic("stub") }

// Watermark returns W (merged) or w_p (keyed) and, for merged, the partition that holds it back.
func (e *Engine) Watermark(tp TP) (w int64, heldBy TP) { panic("stub") }

// Take closes every window with end ≤ W and returns all outputs since the last Take: per output topic and partition in their final order.
func (e *Engine) Take() []Output { panic("stub") }

// Drain closes every window whatever W. No Feed may follow.
func (e *Engine) Drain() []Output { panic("stub") }

// Commits returns what to store with the positions; call it directly after Take.
func (e *Engine) Commits() map[TP]Commit { panic("stub") }

// Stats counts since New: records fed, results, late, future, poison handed out, open windows, bytes of state (about).
type Stats struct {
	Records, Results, Late, Future, Poison int64
	OpenWindows, StateBytes                int64
}

// Stats returns the counters.
func (e *Engine) Stats() Stats { panic("stub") }
