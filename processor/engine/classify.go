package engine

import (
	"math"

	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/processor/value"
	"tapedeck.dev/tapedeck/shared/record"
)

// MaxTime is the last millisecond that 64 bits of nanoseconds hold (11 April 2262), and so the last timestamp that our Kafka client
// can send. Event times beyond ±MaxTime, or in a window whose last millisecond is beyond it, are poison: every output can be written.
const MaxTime = math.MaxInt64 / 1_000_000

// verdict is what becomes of a record, as far as the record alone says.
type verdict uint8

const (
	drops       verdict = iota // `where` drops it: it moves the watermark and has no other effect
	contributes                // it belongs to a window, or is late for it
	isFuture                   // too far ahead of its own timestamp: as if it were not there
	isPoison                   // cannot be read
)

// prepared is what the record alone says. Key and aggregate arguments of one that contributes are beside it.
type prepared struct {
	verdict verdict
	reason  string // poison
	t       int64  // event time, ms; not of poison
}

// evaluator computes what records contribute, one at a time.
type evaluator struct {
	p       *pipeline.Pipeline
	shape   *shape
	scratch *pipeline.Scratch
	key     []byte        // of the record at hand
	args    []value.Value // of the record at hand
}

func newEvaluator(p *pipeline.Pipeline, s *shape) evaluator {
	return evaluator{p: p, shape: s, scratch: pipeline.NewScratch(), args: make([]value.Value, len(p.Aggregates))}
}

// prepare finds what the record says, whatever was fed before it. An error means that the answer is not known yet.
func (ev *evaluator) prepare(schemas Schemas, tp TP, s *source, r *record.Record) (prepared, error) {
	reason, err := s.decoder.decode(schemas, tp, r, s.row)
	if err != nil {
		return prepared{}, err
	}
	if reason != "" {
		return prepared{verdict: isPoison, reason: reason}, nil
	}
	t, reason := eventTime(s, r)
	if reason == "" && windowEnd(t, ev.p.Window.SizeMs)-1 > MaxTime {
		reason = outOfRange
	}
	if reason != "" {
		return prepared{verdict: isPoison, reason: reason}, nil
	}
	// A record without a timestamp (−1) has nothing to be compared with.
	if s.MaxFutureMs >= 0 && r.Timestamp >= 0 && t-s.MaxFutureMs > r.Timestamp {
		return prepared{verdict: isFuture, t: t}, nil
	}
	pass, reason := ev.evaluate(s)
	switch {
	case reason != "":
		return prepared{verdict: isPoison, reason: reason}, nil
	case !pass:
		return prepared{verdict: drops, t: t}, nil
	}
	return prepared{verdict: contributes, t: t}, nil
}

// apply does with the record at p's position what doc.go says; key and args are those of one that contributes.
func (e *Engine) apply(p *partition, r *record.Record, pre prepared, key []byte, args []value.Value) {
	switch pre.verdict {
	case isPoison:
		e.poison(p, r, pre.reason)
		return
	case isFuture:
		e.future(p, r, pre.t)
		return
	case contributes:
		if end := windowEnd(pre.t, e.p.Window.SizeMs); !e.wanted(end) {
		} else if e.late(e, p, end) {
			e.lateRecord(p, r, pre.t, end)
		} else {
			e.add(p, end, key, args)
		}
	}
	p.maxTime = max(p.maxTime, pre.t)
}

const outOfRange = "event time is out of range"

// eventTime returns the record's event time in ms, or why it is poison.
func eventTime(s *source, r *record.Record) (t int64, reason string) {
	const missing, noNumber = "event time is missing", "event time is not a number"
	if s.EventTime.Record {
		if r.Timestamp == -1 {
			return 0, missing
		}
		t = r.Timestamp
	} else {
		v := s.row[s.EventTime.Slot]
		switch v.Kind() {
		case value.Null:
			return 0, missing
		case value.Int:
			i := v.Int()
			switch s.EventTime.Unit {
			case pipeline.Seconds:
				if i > MaxTime/1000 || i < -MaxTime/1000 {
					return 0, outOfRange
				}
				t = i * 1000
			case pipeline.Micros:
				t = floorDiv(i, 1000)
			case pipeline.Nanos:
				t = floorDiv(i, 1_000_000)
			default:
				t = i
			}
		case value.Float:
			f := v.Float()
			switch s.EventTime.Unit {
			case pipeline.Seconds:
				f *= 1000
			case pipeline.Micros:
				f /= 1000
			case pipeline.Nanos:
				f /= 1_000_000
			}
			if f != f {
				return 0, noNumber
			}
			if math.Abs(f) > MaxTime {
				return 0, outOfRange
			}
			t = int64(math.Round(f))
		default:
			return 0, noNumber
		}
	}
	if t > MaxTime || t < -MaxTime {
		return 0, outOfRange
	}
	return t, ""
}

// evaluate computes what the record contributes: key and args. pass is false where `where` drops it (nothing else is evaluated then).
func (ev *evaluator) evaluate(s *source) (pass bool, reason string) {
	if s.Where != nil {
		v, err := s.Where.Eval(s.row, ev.scratch)
		if err != nil {
			return false, "expression of where failed"
		}
		switch {
		case v.IsNull():
			return false, "" // unknown is not true, as in SQL
		case v.Kind() != value.Bool:
			return false, "where is not true or false"
		case !v.Bool():
			return false, ""
		}
	}
	for i := range s.Compute {
		c := &s.Compute[i]
		v, err := c.Expr.Eval(s.row, ev.scratch)
		if err != nil {
			return false, "expression of computed field " + c.Name + " failed"
		}
		s.row[c.Slot] = v
	}
	ev.key = append(ev.key[:0], '{')
	for i := range ev.p.GroupBy {
		g := &ev.p.GroupBy[i]
		v, err := g.Expr.Eval(s.row, ev.scratch)
		if err != nil {
			return false, "expression of group key " + g.Name + " failed"
		}
		ev.key = append(ev.key, ev.shape.keys[i]...)
		var ok bool
		if ev.key, ok = v.AppendJSON(ev.key); !ok {
			return false, "group key " + g.Name + " is not a number, a string, true or false"
		}
	}
	ev.key = append(ev.key, '}')
	for i := range ev.p.Aggregates {
		a := &ev.p.Aggregates[i]
		if a.Arg == nil {
			ev.args[i] = value.OfInt(1)
			continue
		}
		v, err := a.Arg.Eval(s.row, ev.scratch)
		if err != nil {
			return false, "expression of aggregate " + a.Name + " failed"
		}
		if !a.Func.Accepts(v) {
			return false, "argument of aggregate " + a.Name + " is not a number"
		}
		ev.args[i] = v
	}
	return true, ""
}

// windowEnd is the end of the tumbling window that t falls into.
func windowEnd(t, size int64) int64 { return (floorDiv(t, size) + 1) * size }

// floorDiv divides rounding down; d > 0.
func floorDiv(n, d int64) int64 {
	q := n / d
	if n%d < 0 {
		q--
	}
	return q
}
