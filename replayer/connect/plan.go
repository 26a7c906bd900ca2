package connect

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// Plan says what a replay of one partition reads, as archive.Archive.Plan does, with what the archive has lost in the plan's Fidelity.
//
// Calls: 1 LIST per 1000 objects of the topic (once for all of its partitions), and 1 GET for each object of the partition that begins before
// the range's end and was not counted by this process before; where objects overlap, both are read again and compared. With a field for timestamps
// each of these objects is decoded, too.
func (s *Source) Plan(ctx context.Context, r archive.Request) (*archive.PartitionPlan, error) {
	p, err := s.plan(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", r.TP, err)
	}
	return p, nil
}

func (s *Source) plan(ctx context.Context, r archive.Request) (*archive.PartitionPlan, error) {
	if !kafkaTopic(r.TP.Topic) {
		return nil, fmt.Errorf("%w: the sink knows no incarnations of a topic", archive.ErrNotArchived)
	}
	w, err := s.window(r)
	if err != nil {
		return nil, err
	}
	l, err := s.recall(ctx, r.TP.Topic)
	if err != nil {
		return nil, err
	}
	objects, orphans := l.objects[r.TP.Partition], l.orphans[r.TP.Partition]
	if len(objects) == 0 && len(orphans) == 0 {
		return nil, archive.ErrNotArchived
	}
	if len(orphans) > 0 && s.cfg.Tombstones == RefuseTombstones {
		return nil, refused("%d objects hold keys or headers without values, the first is %s: these are tombstones (behavior.on.null.values=write) or the rest of an unfinished upload, "+
			"and their places among the other records are not kept, so that later offsets are wrong by their number; to replay without them set connect.tombstones to ignore", len(orphans), orphans[0])
	}
	pieces, overlaps, err := s.pieces(ctx, objects, w.until)
	if err != nil {
		return nil, err
	}
	first, frontier := int64(0), int64(0)
	if len(pieces) > 0 {
		first, frontier = pieces[0].start, pieces[len(pieces)-1].next
	}
	if err := w.clip(r, first, frontier); err != nil {
		return nil, err
	}
	p := &archive.PartitionPlan{TopicPartition: r.TP, TopicID: s.cfg.identity(), ClusterID: clusterID, Isolation: segment.ReadUncommitted,
		From: w.from, Until: w.until, FromTimestamp: w.fromTS, UntilTimestamp: w.untilTS,
		Segments: segments(pieces, w.from, w.until), Gaps: []segment.Skip{}}
	if len(p.Segments) == 0 || p.From == p.Until {
		if !r.AllowEmpty {
			return nil, fmt.Errorf("%w: the archive holds no record in [%d, %d)", archive.ErrEmptyRange, w.from, w.until)
		}
		p.Until, p.Segments = p.From, []archive.PlannedSegment{}
		return p, nil
	}
	p.Gaps = holes(pieces, w.from, w.until)
	p.Fidelity = s.fidelity(p, overlaps, orphans)
	return p, nil
}

// pieces chooses where each offset below until is taken from, and compares what more than one object holds.
func (s *Source) pieces(ctx context.Context, objects []*object, until int64) ([]piece, []overlap, error) {
	var within []*object
	var behind *object // the first one that begins at or beyond until: it says that the archive reaches until
	for _, o := range objects {
		if o.Start < until {
			within = append(within, o)
		} else if behind == nil || o.Start < behind.Start {
			behind = o
		}
	}
	if behind != nil {
		within = append(within, behind)
	}
	mine := make([]*object, len(within)) // plans of one topic run side by side, and the listing is shared
	for i, o := range within {
		c := *o
		mine[i] = &c
	}
	if err := s.count(ctx, mine); err != nil {
		return nil, nil, err
	}
	pieces, overlaps := tile(mine)
	for _, o := range overlaps {
		if err := s.compare(ctx, o); err != nil {
			return nil, nil, err
		}
	}
	return pieces, overlaps, nil
}

// compare holds two objects that seem to hold the same offsets against each other. Of two writers of the same records (a task that began again, with
// rotation by the wall clock) they are the same. Of objects in two folders of the partitioner that is not enough: there one range of offsets may have
// been dealt to several objects, where two records may be equal by chance and each must stay.
func (s *Source) compare(ctx context.Context, o overlap) error {
	at, err := s.difference(ctx, o)
	switch {
	case err != nil:
		return err
	case o.first.Encoded != o.second.Encoded && at < 0:
		return refused("objects %s and %s lie in different folders of the partitioner, and hold equal records where both seem to hold offsets [%d, %d): if a task wrote them twice (a partitioner "+
			"by the wall clock, after a restart), move the second object away; if not, the sink dealt one range of offsets to several open objects, and offsets are not known",
			o.first.key, o.second.key, o.from, o.to)
	case o.first.Encoded != o.second.Encoded:
		return refused("objects %s and %s both seem to hold offsets [%d, %d), with different records, and lie in different folders of the partitioner: the sink dealt one range of offsets to "+
			"several open objects (no rotate.interval.ms, or late records), so the offsets of single records are not known and neither is their order",
			o.first.key, o.second.key, o.from, o.to)
	case at >= 0:
		return refused("objects %s and %s contradict each other: both hold offset %d, with different records; which of them is right cannot be told "+
			"(records that the sink left out, or control markers, shift the offsets inside an object)", o.first.key, o.second.key, at)
	}
	return nil
}

// difference returns the first offset at which two objects hold different records, -1 where there is none.
func (s *Source) difference(ctx context.Context, o overlap) (int64, error) {
	sums := map[int64][sha256.Size]byte{}
	each := func(f func(offset int64, sum [sha256.Size]byte)) func(*record.Record) error {
		var buf []byte
		return func(r *record.Record) error {
			if r.Offset >= o.from && r.Offset < o.to {
				buf = segment.AppendDatum(buf[:0], r)
				f(r.Offset, sha256.Sum256(buf))
			}
			return nil
		}
	}
	if _, err := s.rows(ctx, o.first, each(func(offset int64, sum [sha256.Size]byte) { sums[offset] = sum })); err != nil {
		return 0, err
	}
	at := int64(-1)
	_, err := s.rows(ctx, o.second, each(func(offset int64, sum [sha256.Size]byte) {
		if at < 0 && sums[offset] != sum {
			at = offset
		}
	}))
	return at, err
}

// segments are the planned objects of [from, until): each reaches to the start of the next, so that they tile the range.
func segments(pieces []piece, from, until int64) []archive.PlannedSegment {
	out := []archive.PlannedSegment{}
	for i, p := range pieces {
		if p.start >= until || p.next <= from {
			continue
		}
		ps := archive.PlannedSegment{Key: p.key, Keys: p.keys, Headers: p.headers, Start: p.start, Next: p.next, Count: p.next - p.start, Bytes: p.size,
			MinTimestamp: p.minTime, MaxTimestamp: p.maxTime}
		if len(out) == 0 {
			ps.Start = min(p.start, from)
		}
		if i+1 < len(pieces) {
			ps.Next = pieces[i+1].start
		}
		out = append(out, ps)
	}
	return out
}

// window is a request in numbers.
type window struct {
	from, until     int64
	fromTS, untilTS int64 // −1 for none
}

func (s *Source) window(r archive.Request) (*window, error) {
	w := &window{from: -1, until: math.MaxInt64, fromTS: -1, untilTS: -1}
	for _, b := range []archive.Bound{r.From, r.Until} {
		switch {
		case b.Kind == archive.AtTimestamp && s.cfg.TimestampField == "":
			return nil, fmt.Errorf("%w: %s, or give offsets", archive.ErrBadBound, s.Timeless())
		case (b.Kind == archive.AtOffset || b.Kind == archive.AtTimestamp) && b.Value < 0:
			return nil, fmt.Errorf("%w: %s %d is negative", archive.ErrBadBound, b.Kind, b.Value)
		}
	}
	switch r.From.Kind {
	case archive.AtOffset:
		w.from = r.From.Value
	case archive.AtTimestamp:
		w.fromTS = r.From.Value
	case archive.Earliest:
	default:
		return nil, fmt.Errorf("%w: from %q is none of offset, timestamp, earliest", archive.ErrBadBound, r.From.Kind)
	}
	switch r.Until.Kind {
	case archive.AtOffset:
		w.until = r.Until.Value
	case archive.AtTimestamp:
		w.untilTS = r.Until.Value
	case archive.End:
	default:
		return nil, fmt.Errorf("%w: until %q is none of offset, timestamp, end", archive.ErrBadBound, r.Until.Kind)
	}
	if w.from > w.until || !r.AllowEmpty && w.from == w.until || w.fromTS >= 0 && w.untilTS >= 0 && (w.fromTS > w.untilTS || !r.AllowEmpty && w.fromTS == w.untilTS) {
		return nil, fmt.Errorf("%w: from is not before until (which is exclusive)", archive.ErrEmptyRange)
	}
	return w, nil
}

// clip fills in the ends that the request leaves open. first is the first offset that the archive holds, frontier the first behind its last.
func (w *window) clip(r archive.Request, first, frontier int64) error {
	if w.from < 0 {
		w.from = first
	}
	switch {
	case w.until != math.MaxInt64 && w.until > frontier:
		return fmt.Errorf("%w: until offset %d, but the archive ends at %d", archive.ErrBeyond, w.until, frontier)
	case w.from > frontier:
		return fmt.Errorf("%w: from offset %d, but the archive ends at %d", archive.ErrBeyond, w.from, frontier)
	}
	w.until = min(w.until, frontier)
	if w.from >= w.until && !r.AllowEmpty {
		return fmt.Errorf("%w: [%d, %d), and the archive holds offsets from %d to %d", archive.ErrEmptyRange, w.from, w.until, first, frontier)
	}
	w.until = max(w.from, w.until)
	return nil
}
