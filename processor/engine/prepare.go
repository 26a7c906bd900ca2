package engine

import (
	"fmt"

	"tapedeck.dev/tapedeck/processor/value"
	"tapedeck.dev/tapedeck/shared/record"
)

// Preparer does the part of Feed that depends on each record alone: decoding, event time, expressions, key and arguments. That is most of
// the work, and several Preparers may do it at the same time beside the engine, while FeedPrepared is left with what must happen in one place.
// One Preparer is used by one goroutine at a time.
type Preparer struct {
	tp     TP
	source *source
	eval   evaluator
}

// NewPreparer makes one for a partition of the engine's pipeline. It may be used beside the engine and for as long as it.
func (e *Engine) NewPreparer(tp TP) (*Preparer, error) {
	known, ok := e.sources[tp.Topic]
	if !ok {
		return nil, fmt.Errorf("prepare %s: no source of pipeline %s", tp, e.p.Name)
	}
	s, err := newSource(known.Source)
	if err != nil {
		return nil, err
	}
	return &Preparer{tp: tp, source: s, eval: newEvaluator(e.p, &e.shape)}, nil
}

// Batch is consecutive records of one partition, in offset order, some or all of them prepared. The zero Batch is empty; its memory is used
// again by Reset.
type Batch struct {
	recs  []record.Record
	items []prepared    // of recs[:len(items)]
	keys  []byte        // one after the other
	ends  []int         // of each item's key in keys
	args  []value.Value // as many for each item as the pipeline has aggregates
	fed   int           // of items
}

// Reset makes b hold recs, none of them prepared. They are used, not copied.
func (b *Batch) Reset(recs []record.Record) {
	*b = Batch{recs: recs, items: b.items[:0], keys: b.keys[:0], ends: b.ends[:0], args: b.args[:0]}
}

// Done reports whether every record was fed.
func (b *Batch) Done() bool { return b.fed == len(b.recs) }

// Prepare prepares the records that are not yet. Where the answer for one is not known yet it stops before it with the error of schemas
// wrapped, as Feed does, and may be called again; those before it can be fed. schemas is used from this goroutine.
func (q *Preparer) Prepare(schemas Schemas, b *Batch) error {
	for i := len(b.items); i < len(b.recs); i++ {
		r := &b.recs[i]
		pre, err := q.eval.prepare(schemas, q.tp, q.source, r)
		if err != nil {
			return fmt.Errorf("feed %s offset %d: %w", q.tp, r.Offset, err)
		}
		b.items = append(b.items, pre)
		if pre.verdict == contributes {
			b.keys = append(b.keys, q.eval.key...)
		}
		b.ends = append(b.ends, len(b.keys))
		b.args = append(b.args, q.eval.args...)
	}
	return nil
}

// FeedPrepared is Feed with the prepared records of b that were not fed yet; taken is told the offset of each as it is taken or found to be
// older than the partition's position. b must have been prepared by this engine's Preparer of tp.
func (e *Engine) FeedPrepared(tp TP, b *Batch, taken func(i int)) error {
	p, err := e.open(tp)
	if err != nil {
		return err
	}
	n := len(e.p.Aggregates)
	for ; b.fed < len(b.items); b.fed++ {
		i, r := b.fed, &b.recs[b.fed]
		if r.Offset >= p.pos {
			p.advance(r.Offset)
			from := 0
			if i > 0 {
				from = b.ends[i-1]
			}
			e.apply(p, r, b.items[i], b.keys[from:b.ends[i]], b.args[i*n:(i+1)*n])
			p.advance(r.Offset + 1)
			e.stats.Records++
		}
		taken(i)
	}
	return nil
}
