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

// take does with the record at p's position what doc.go says. An error means that the record was not taken.
func (e *Engine) take(p *partition, r *record.Record) error {
	s := p.source
	reason, err := s.decoder.decode(e.schemas, p.tp, r, s.row)
	if err != nil {
		return err
	}
	if reason != "" {
		e.poison(p, r, reason)
		return nil
	}
	t, reason := eventTime(s, r)
	if reason == "" && windowEnd(t, e.p.Window.SizeMs)-1 > MaxTime {
		reason = outOfRange
	}
	if reason != "" {
		e.poison(p, r, reason)
		return nil
	}
	// A record without a timestamp (−1) has nothing to be compared with.
	if s.MaxFutureMs >= 0 && r.Timestamp >= 0 && t-s.MaxFutureMs > r.Timestamp {
		e.future(p, r, t)
		return nil
	}
	pass, reason := e.evaluate(s)
	if reason != "" {
		e.poison(p, r, reason)
		return nil
	}
	if pass {
		if end := windowEnd(t, e.p.Window.SizeMs); e.late(e, p, end) {
			e.lateRecord(p, r, t, end)
		} else {
			e.add(p, end)
		}
	}
	p.maxTime = max(p.maxTime, t)
	return nil
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

// evaluate computes what the record contributes: e.key and e.args. pass is false where `where` drops it (nothing else is evaluated then).
func (e *Engine) evaluate(s *source) (pass bool, reason string) {
	if s.Where != nil {
		v, err := s.Where.Eval(s.row, e.scratch)
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
		v, err := c.Expr.Eval(s.row, e.scratch)
		if err != nil {
			return false, "expression of computed field " + c.Name + " failed"
		}
		s.row[c.Slot] = v
	}
	e.key = append(e.key[:0], '{')
	for i := range e.p.GroupBy {
		g := &e.p.GroupBy[i]
		v, err := g.Expr.Eval(s.row, e.scratch)
		if err != nil {
			return false, "expression of group key " + g.Name + " failed"
		}
		e.key = append(e.key, e.shape.keys[i]...)
		var ok bool
		if e.key, ok = v.AppendJSON(e.key); !ok {
			return false, "group key " + g.Name + " is not a number, a string, true or false"
		}
	}
	e.key = append(e.key, '}')
	for i := range e.p.Aggregates {
		a := &e.p.Aggregates[i]
		if a.Arg == nil {
			e.args[i] = value.OfInt(1)
			continue
		}
		v, err := a.Arg.Eval(s.row, e.scratch)
		if err != nil {
			return false, "expression of aggregate " + a.Name + " failed"
		}
		if !a.Func.Accepts(v) {
			return false, "argument of aggregate " + a.Name + " is not a number"
		}
		e.args[i] = v
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
