package archive

import (
	"context"
	"errors"
	"fmt"
	"math"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

var (
	// ErrEmptyRange: the range asked for holds no record.
	ErrEmptyRange = errors.New("the range is empty")
	// ErrBeyond: the range asked for ends or begins beyond what the archive holds.
	ErrBeyond = errors.New("beyond the end of the archive")
	// ErrBadBound: a bound that has no meaning.
	ErrBadBound = errors.New("bad bound")
)

// Bound is one end of a range to replay.
type Bound struct {
	// Kind: "offset" (Value is an offset), "timestamp" (ms), "earliest", "end".
	Kind  string `json:"kind"`
	Value int64  `json:"value,omitempty"`
}

// Kinds of a Bound. Earliest (for From) is the first offset after what the chain's beginning skips; End (for Until) is the
// frontier, the next of the newest segment.
const (
	AtOffset    = "offset"
	AtTimestamp = "timestamp"
	Earliest    = "earliest"
	End         = "end"
)

// Request asks for ranges of records, from inclusive, until exclusive.
type Request struct {
	TP          record.TopicPartition
	From, Until Bound
	// AllowEmpty asks for a plan also where no record lies in the range: the segments that say so, where the bounds are
	// offsets; no segments, From = Until, where no segment can hold a record of a time, or the range has no offsets. A
	// consumer of several partitions may have to be told that one of them brings nothing.
	AllowEmpty bool
	// PassUnreadable plans over segments whose header is gone or damaged: what they skip stays unknown, and is in no gap of the plan. The newest
	// segment and the index must be readable all the same: they tell which segments there are.
	PassUnreadable bool
}

// PlannedSegment is one object to read.
type PlannedSegment struct {
	Key string `json:"key"`
	// Keys and Headers are the objects that hold these parts of the same records; only foreign archives have such.
	Keys    string `json:"keys,omitempty"`
	Headers string `json:"headers,omitempty"`

	Start int64 `json:"start"`
	Next  int64 `json:"next"`
	Count int64 `json:"count"` // records in the whole object
	Bytes int64 `json:"bytes"`
	// Outside: none of its records can lie inside the plan's timestamps. It is part of the range, for a receiver that wants
	// every offset in order; one that filters record by record may pass it over unread.
	Outside bool `json:"outside,omitempty"`
	// MinTimestamp and MaxTimestamp are of the whole object's records, ms; 0 where there are none.
	MinTimestamp int64 `json:"minTimestamp"`
	MaxTimestamp int64 `json:"maxTimestamp"`
}

// PartitionPlan is what a replay of one partition reads. Offsets [From, Until); with a timestamp bound the filter is record by record:
// FromTimestamp / UntilTimestamp (ms; −1 = none) hold inside the offset range. Segments tile the range: the first holds From,
// each begins at the next of the one before, the last ends at or beyond Until.
//
// Topic is Kafka's name, also where the request named a later incarnation of it.
type PartitionPlan struct {
	record.TopicPartition
	Incarnation    int              `json:"incarnation,omitempty"` // of the topic, where it is not the first
	TopicID        string           `json:"topicId"`
	ClusterID      string           `json:"clusterId"`
	Isolation      string           `json:"isolation"`
	From           int64            `json:"from"`
	Until          int64            `json:"until"`
	FromTimestamp  int64            `json:"fromTimestamp"`
	UntilTimestamp int64            `json:"untilTimestamp"`
	Segments       []PlannedSegment `json:"segments"`
	Gaps           []segment.Skip   `json:"gaps"` // lost and not-archived ranges inside [From, Until)
	// Before is the greatest timestamp of the archived records below From, ms, −1 where there is none; nil where it is not known, or From is 0.
	Before *int64 `json:"before,omitempty"`
	// Fidelity says in words what the records of a foreign archive lack, or have been given; none for ours.
	Fidelity []string `json:"fidelity,omitempty"`
}

// chain names the chain that the segments are of.
func (p *PartitionPlan) chain() record.TopicPartition {
	return record.TopicPartition{Topic: segment.Incarnation(p.Topic, max(1, p.Incarnation)), Partition: p.Partition}
}

// Plan is a pure function of index, headers and names. Errors name what is not there: ErrNotArchived (topic or partition),
// ErrEmptyRange (no record can be in it), ErrBeyond (an offset past the frontier), ErrBadBound; ErrBroken and ErrForeign where the
// archive is not whole.
//
// With a timestamp bound the offset range goes from the first to the last segment that can hold a record inside. Records'
// timestamps may be in any order.
//
// Calls, for n segments of which k are planned: 1 LIST of index names, 1 LIST of segments, the newest header, at most
// k/256 + 2 index objects, and the headers of those planned segments that hold fewer records than offsets.
func (a *Archive) Plan(ctx context.Context, r Request) (*PartitionPlan, error) {
	p, err := a.plan(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", r.TP, err)
	}
	return p, nil
}

func (a *Archive) plan(ctx context.Context, r Request) (*PartitionPlan, error) {
	w, err := newWindow(r)
	if err != nil {
		return nil, err
	}
	m, err := a.chainMap(ctx, r.TP)
	if err != nil {
		return nil, err
	}
	if r.From.Kind == Earliest {
		if w.from, err = a.first(ctx, m, r.PassUnreadable); err != nil {
			return nil, err
		}
	}
	if err := w.clip(m.next(), r.AllowEmpty); err != nil {
		return nil, err
	}
	if err := a.load(ctx, m, w.candidates(m)); err != nil {
		return nil, err
	}
	from, until, ok := w.extent(m)
	if !ok && !r.AllowEmpty {
		return nil, fmt.Errorf("%w: no record of %s", ErrEmptyRange, w)
	}
	if !ok && r.From.Kind == AtTimestamp {
		if from, err = a.first(ctx, m, r.PassUnreadable); err != nil {
			return nil, err
		}
	}
	if !ok || from == until {
		p := w.plan(m, from, from, a.key)
		p.Segments, p.Gaps = []PlannedSegment{}, []segment.Skip{}
		return p, nil
	}
	if err := a.load(ctx, m, m.overlapping(from, until)); err != nil { // between candidates
		return nil, err
	}
	p := w.plan(m, from, until, a.key)
	skips, err := a.skips(ctx, r.TP, p.Segments, r.PassUnreadable)
	if err != nil {
		return nil, err
	}
	all := func(segment.Class) bool { return true }
	if !r.AllowEmpty && covered(gapsOf(skips, from, until, all), from, until) {
		return nil, fmt.Errorf("%w: no record of %s, only offsets without data", ErrEmptyRange, w)
	}
	p.Gaps = gapsOf(skips, from, until, reported)
	return p, nil
}

// reported are the classes of ranges whose records were in Kafka and are not in the archive.
func reported(c segment.Class) bool { return c == segment.Lost || c == segment.NotArchived }

// first returns the first offset after the leading lost or not-archived range of the chain, which ends in the first
// segment, or in a later one where segments without records begin the chain.
func (a *Archive) first(ctx context.Context, m *chainMap, pass bool) (int64, error) {
	at := int64(0)
	for i := range m.stretches {
		if err := a.load(ctx, m, []int{i}); err != nil {
			return 0, err
		}
		s := &m.stretches[i]
		for j, row := range s.rows {
			next := rowNext(s.rows, j, s.next)
			skips, err := a.skips(ctx, m.tp, []PlannedSegment{{Start: row.Start, Next: next, Count: row.Count}}, pass)
			if err != nil {
				return 0, err
			}
			at = leading(at, skips)
			if at < next {
				return at, nil
			}
		}
	}
	return at, nil
}

// No timestamp bound.
const (
	noMin = math.MinInt64
	noMax = math.MaxInt64
)

// window is a request in numbers.
type window struct {
	from, until     int64 // offsets [from, until)
	fromTS, untilTS int64 // ms [fromTS, untilTS); MinInt64 and MaxInt64 where there is no such bound
	text            string
}

func (w *window) String() string { return w.text }

// timed reports whether records are chosen by their timestamps.
func (w *window) timed() bool { return w.fromTS != noMin || w.untilTS != noMax }

// newWindow checks the bounds against each other; the archive is not known yet.
func newWindow(r Request) (*window, error) {
	w := &window{until: math.MaxInt64, fromTS: noMin, untilTS: noMax, text: describe(r)}
	for _, b := range []Bound{r.From, r.Until} {
		if (b.Kind == AtOffset || b.Kind == AtTimestamp) && b.Value < 0 {
			return nil, fmt.Errorf("%w: %s %d is negative", ErrBadBound, b.Kind, b.Value)
		}
	}
	switch r.From.Kind {
	case AtOffset:
		w.from = r.From.Value
	case AtTimestamp:
		w.fromTS = r.From.Value
	case Earliest:
	default:
		return nil, fmt.Errorf("%w: from %q is none of offset, timestamp, earliest", ErrBadBound, r.From.Kind)
	}
	switch r.Until.Kind {
	case AtOffset:
		w.until = r.Until.Value
	case AtTimestamp:
		w.untilTS = r.Until.Value
	case End:
	default:
		return nil, fmt.Errorf("%w: until %q is none of offset, timestamp, end", ErrBadBound, r.Until.Kind)
	}
	if w.from > w.until || w.fromTS > w.untilTS || !r.AllowEmpty && (w.from == w.until || w.fromTS == w.untilTS) {
		return nil, fmt.Errorf("%w: %s (until is exclusive)", ErrEmptyRange, w)
	}
	return w, nil
}

func describe(r Request) string {
	one := func(b Bound) string {
		if b.Kind == AtOffset || b.Kind == AtTimestamp {
			return fmt.Sprintf("%s %d", b.Kind, b.Value)
		}
		return b.Kind
	}
	return "from " + one(r.From) + " until " + one(r.Until)
}

// clip holds the window against the frontier.
func (w *window) clip(next int64, allowEmpty bool) error {
	switch {
	case w.until != math.MaxInt64 && w.until > next:
		return fmt.Errorf("%w: until offset %d, but the archive holds [0, %d)", ErrBeyond, w.until, next)
	case w.from > next:
		return fmt.Errorf("%w: from offset %d, but the archive holds [0, %d)", ErrBeyond, w.from, next)
	}
	w.until = min(w.until, next)
	if w.from >= w.until && !allowEmpty {
		return fmt.Errorf("%w: %s, and the archive ends at %d", ErrEmptyRange, w, next)
	}
	w.until = max(w.from, w.until) // until may lie in what "earliest" passes over
	return nil
}

// overlaps reports whether a segment or block of that range and those timestamps can hold a record of the window.
func (w *window) overlaps(start, next, minTS, maxTS int64, empty bool) bool {
	if start >= w.until || next <= w.from {
		return false
	}
	return !w.timed() || !empty && maxTS >= w.fromTS && minTS < w.untilTS
}

func (w *window) row(r segment.Row, next int64) bool {
	return w.overlaps(r.Start, next, r.MinTimestamp, r.MaxTimestamp, r.Count == 0)
}

// candidates are the stretches whose rows must be read to find the first and last segment. What the tail's rows and holes hold
// is only known from their rows.
func (w *window) candidates(m *chainMap) []int {
	var which []int
	for i, s := range m.stretches {
		ok := s.start < w.until && s.next > w.from
		if ok && s.name != nil {
			ok = w.overlaps(s.start, s.next, s.name.MinTimestamp, s.name.MaxTimestamp, s.name.empty())
		}
		if ok {
			which = append(which, i)
		}
	}
	return which
}

// extent returns the offset range of the plan; ok is false where no segment can hold a record.
func (w *window) extent(m *chainMap) (from, until int64, ok bool) {
	from, until = w.from, w.until
	if !w.timed() {
		return from, until, true
	}
	first, last := int64(-1), int64(-1)
	for _, i := range w.candidates(m) {
		s := &m.stretches[i]
		for j, r := range s.rows {
			if next := rowNext(s.rows, j, s.next); w.row(r, next) {
				if first < 0 {
					first = r.Start
				}
				last = next
			}
		}
	}
	if first < 0 {
		return from, from, false
	}
	if w.fromTS != noMin {
		from = max(from, first)
	}
	if w.untilTS != noMax {
		until = min(until, last)
	}
	return from, until, true
}

// overlapping are the stretches that hold offsets of [from, until).
func (m *chainMap) overlapping(from, until int64) []int {
	var which []int
	for i, s := range m.stretches {
		if s.start < until && s.next > from {
			which = append(which, i)
		}
	}
	return which
}

// plan lists the segments of [from, until), whose rows are loaded.
func (w *window) plan(m *chainMap, from, until int64, key func(record.TopicPartition, int64) string) *PartitionPlan {
	h := m.tail.Header
	p := &PartitionPlan{TopicPartition: h.TP(), Incarnation: later(m.tp), TopicID: h.TopicID, ClusterID: h.ClusterID, Isolation: h.Isolation,
		From: from, Until: until, FromTimestamp: -1, UntilTimestamp: -1}
	if w.fromTS != noMin {
		p.FromTimestamp = w.fromTS
	}
	if w.untilTS != noMax {
		p.UntilTimestamp = w.untilTS
	}
	for _, i := range m.overlapping(from, until) {
		s := &m.stretches[i]
		for j, r := range s.rows {
			next := rowNext(s.rows, j, s.next)
			if r.Start < until && next > from {
				p.Segments = append(p.Segments, PlannedSegment{Key: key(m.tp, r.Start), Start: r.Start, Next: next,
					Count: r.Count, Bytes: r.Bytes, Outside: !w.row(r, next), MinTimestamp: r.MinTimestamp, MaxTimestamp: r.MaxTimestamp})
			}
		}
	}
	return p
}

// later is the incarnation in a chain's name, 0 for the first.
func later(tp record.TopicPartition) int {
	if _, n := segment.SplitTopic(tp.Topic); n > 1 {
		return n
	}
	return 0
}

// covered reports whether ascending ranges cover [from, until) without a hole.
func covered(skips []segment.Skip, from, until int64) bool {
	at := from
	for _, s := range skips {
		if s.From <= at {
			at = max(at, s.To)
		}
	}
	return at >= until
}
