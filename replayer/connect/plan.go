package connect

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"strings"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// Plan says what a replay of one partition reads, as archive.Archive.Plan does, with what the archive has lost in the plan's Fidelity.
//
// Calls: 1 LIST per 1000 objects of the topic (once for all of its partitions), and 1 GET for each object of the partition that begins before
// the range's end and was not counted by this process before; where objects overlap, both are read again and compared.
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
	p.Fidelity = s.fidelity(p, pieces, overlaps, orphans)
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
// rotation by the wall clock) they are the same. Objects in two folders of the partitioner cannot hold the same record: there, records of one range
// of offsets were dealt to several objects, and which had which offset is not kept.
func (s *Source) compare(ctx context.Context, o overlap) error {
	if o.first.Encoded != o.second.Encoded {
		return refused("objects %s and %s both seem to hold offsets [%d, %d), and lie in different folders of the partitioner: the sink dealt one range of offsets to several open objects "+
			"(no rotate.interval.ms, or late records), so the offsets of single records are not known and neither is their order", o.first.key, o.second.key, o.from, o.to)
	}
	sums := map[int64][sha256.Size]byte{}
	each := func(f func(offset int64, sum [sha256.Size]byte) error) func(*record.Record) error {
		var buf []byte
		return func(r *record.Record) error {
			if r.Offset < o.from || r.Offset >= o.to {
				return nil
			}
			buf = segment.AppendDatum(buf[:0], r)
			return f(r.Offset, sha256.Sum256(buf))
		}
	}
	if _, err := s.rows(ctx, o.first, each(func(offset int64, sum [sha256.Size]byte) error {
		sums[offset] = sum
		return nil
	})); err != nil {
		return err
	}
	_, err := s.rows(ctx, o.second, each(func(offset int64, sum [sha256.Size]byte) error {
		if sums[offset] != sum {
			return refused("objects %s and %s contradict each other: both hold offset %d, with different records; which of them is right cannot be told "+
				"(records that the sink left out, or control markers, shift the offsets inside an object)", o.first.key, o.second.key, offset)
		}
		return nil
	}))
	return err
}

// segments are the planned objects of [from, until): each reaches to the start of the next, so that they tile the range.
func segments(pieces []piece, from, until int64) []archive.PlannedSegment {
	out := []archive.PlannedSegment{}
	for i, p := range pieces {
		if p.start >= until || p.next <= from {
			continue
		}
		ps := archive.PlannedSegment{Key: p.key, Keys: p.keys, Headers: p.headers, Start: p.start, Next: p.next, Count: p.next - p.start, Bytes: p.size}
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
			return nil, fmt.Errorf("%w: the archive keeps no timestamps: give offsets, or set connect.timestamp.field to the field of the values that holds them", archive.ErrBadBound)
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

// fidelity says in words what the records of a plan lack, or have been given.
func (s *Source) fidelity(p *archive.PartitionPlan, pieces []piece, overlaps []overlap, orphans []string) []string {
	var keys, headers, objects int
	for _, ps := range p.Segments {
		objects++
		if ps.Keys != "" {
			keys++
		}
		if ps.Headers != "" {
			headers++
		}
	}
	say := []string{
		"offsets: an object's first is in its name, the others are counted from it; where Kafka had no record (control markers, compaction) or the sink left one out inside an object, those after it are too low",
		map[bool]string{
			true:  "timestamps: not kept by the sink; records have none (-1): set connect.timestamp.field where the values hold them",
			false: "timestamps: not kept by the sink; taken from the field " + s.cfg.TimestampField + " of the values (-1 where it is null)",
		}[s.cfg.TimestampField == ""],
		"values: not the bytes that were in Kafka, but what Connect's converter made of them; " + encodingWords(s.cfg.Values, s.cfg.ValueSubject, p.Topic),
	}
	switch {
	case keys == 0:
		say = append(say, "keys: not stored (store.kafka.keys was off); every key is null")
	default:
		words := "keys: as Connect's converter read them; " + encodingWords(s.cfg.Keys, s.cfg.KeySubject, p.Topic)
		if keys < objects {
			words += fmt.Sprintf("; %d of %d objects have none, and their records' keys are null", objects-keys, objects)
		}
		say = append(say, words)
	}
	switch {
	case headers == 0:
		say = append(say, "headers: not stored (store.kafka.headers was off); records have none")
	default:
		words := "headers: the sink stores every value as text"
		if headers < objects {
			words += fmt.Sprintf("; %d of %d objects have none", objects-headers, objects)
		}
		say = append(say, words)
	}
	if len(orphans) > 0 {
		say = append(say, fmt.Sprintf("tombstones: %d objects of keys or headers without values are left out (connect.tombstones ignore), the first is %s", len(orphans), orphans[0]))
	}
	for i, o := range overlaps {
		if o.to <= p.From || o.from >= p.Until {
			continue
		}
		if i == maxWords {
			say = append(say, fmt.Sprintf("overlaps: %d in all", len(overlaps)))
			break
		}
		say = append(say, fmt.Sprintf("overlap: offsets [%d, %d) of %s are dropped: %s holds the same records", o.from, o.to, o.second.key, o.first.key))
	}
	for i, g := range p.Gaps {
		if i == maxWords {
			say = append(say, fmt.Sprintf("holes: %d in all", len(p.Gaps)))
			break
		}
		say = append(say, fmt.Sprintf("hole: no object holds offsets [%d, %d), and nothing says why: control markers, compaction, records that the sink left out, or an object that is gone", g.From, g.To))
	}
	return say
}

// maxWords bounds how many overlaps and holes are told one by one.
const maxWords = 20

func encodingWords(e Encoding, subject, topic string) string {
	subject = strings.ReplaceAll(subject, "{topic}", topic)
	switch e {
	case Auto:
		return "strings and bytes as they are, anything else in the registry's wire format under an id of subject " + subject
	case Registry, Register:
		return "in the registry's wire format under an id of subject " + subject
	case Plain:
		return "as Avro without the wire format's prefix"
	case JSON:
		return "as JSON"
	}
	return "strings and bytes as they are"
}
