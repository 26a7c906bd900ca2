package run

import (
	"errors"
	"fmt"
	"io"
	"sort"

	"tapedeck.dev/tapedeck/replayer/pace"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// Archived segments are coarse: one may hold an hour. Where a job asks for a speed, a rate or an order of event time, a loaded segment is sent
// as several ordinary segments of consecutive ranges of offsets. A receiver need not know: it knows offsets only. Where they begin is found
// while the segment is read for the proof, which stays one of the whole segment: each record counts once, however it is cut and however often
// it is sent. The bytes of a part are made when it is sent, and only of that one, so that memory stays that of the segment and one part.

// span is one part of a loaded segment that goes at once: offsets [start, next).
type span struct {
	start, next int64
	records     int64 // of the range
	bytes       int64 // share of the object's size
	maxTs       int64 // largest timestamp of the segment's records in range up to the end of this span, −1 for none
}

// cutter finds the spans of a segment while it is read.
type cutter struct {
	bounds pace.Bounds
	scale  float64 // bytes of the object for a byte of records
	spans  []span
	datums int64 // bytes of the records in the last span
	base   int64 // running maximum at its first record
}

// newCutter begins at the segment h, whose object has size bytes.
func newCutter(b pace.Bounds, h *segment.Header, size int64) *cutter {
	c := &cutter{bounds: b, spans: []span{{start: h.Start, next: h.Next, maxTs: -1}}}
	if h.DatumBytes > 0 {
		c.scale = float64(size) / float64(h.DatumBytes)
	}
	return c
}

// add takes in the next record of the range, of that many bytes uncompressed.
func (c *cutter) add(rec *record.Record, datum int) {
	s := &c.spans[len(c.spans)-1]
	reached := max(s.maxTs, rec.Timestamp)
	if s.records > 0 && c.full(s, reached, datum) {
		next := s.next
		s.next = rec.Offset
		c.spans = append(c.spans, span{start: rec.Offset, next: next, maxTs: s.maxTs})
		s, c.datums = &c.spans[len(c.spans)-1], 0
	}
	if s.records == 0 {
		c.base = reached
	}
	s.records++
	s.maxTs = reached
	c.datums += int64(datum)
	s.bytes = int64(float64(c.datums) * c.scale)
}

func (c *cutter) full(s *span, reached int64, datum int) bool {
	b := c.bounds
	return b.Records > 0 && s.records >= b.Records ||
		b.Bytes > 0 && float64(c.datums+int64(datum))*c.scale > float64(b.Bytes) ||
		b.Millis > 0 && reached-c.base > b.Millis
}

// at is the span that holds offset, the first for one before it.
func (l *loaded) at(offset int64) *span {
	i := sort.Search(len(l.spans)-1, func(i int) bool { return l.spans[i].next > offset })
	return &l.spans[i]
}

// sent is what of the segment lies before offset.
func (l *loaded) sent(offset int64) (records, bytes int64) {
	for i := range l.spans {
		if l.spans[i].next > offset {
			break
		}
		records += l.spans[i].records
		bytes += l.spans[i].bytes
	}
	return records, bytes
}

// part makes the segment that is sent for s, one of l's spans. Asked for in order, each record is decoded once. Only one may ask at a time.
func (l *loaded) part(object string, s *span) ([]byte, error) {
	if len(l.spans) == 1 {
		return l.body, nil
	}
	if l.made != nil && l.madeFrom == s.start {
		return l.made, nil
	}
	data, err := l.encode(object, s)
	if err != nil {
		return nil, fmt.Errorf("cut offsets [%d, %d) out of %s: %w", s.start, s.next, object, err)
	}
	l.made, l.madeFrom = data, s.start
	return data, nil
}

func (l *loaded) encode(object string, s *span) ([]byte, error) {
	if l.rd == nil || l.pos > s.start {
		rd, err := segment.NewReader(object, l.body)
		if err != nil {
			return nil, err
		}
		l.rd, l.pos, l.pending = rd, l.start, nil
	}
	h := l.rd.Header()
	w, err := segment.NewWriter(h.Identity(), s.start, h.Codec)
	if err != nil {
		return nil, err
	}
	for {
		rec := l.pending
		if rec == nil {
			rec = new(record.Record)
			if err := l.rd.Next(rec); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, err
			}
		}
		l.pending = rec
		if rec.Offset >= s.next {
			break
		}
		l.pending = nil
		if rec.Offset < s.start {
			continue
		}
		if _, err := w.Append(rec); err != nil {
			return nil, err
		}
	}
	l.pos = s.next
	// A receiver must still be able to tell what Kafka did not have from what the archive lacks.
	for _, k := range h.Skipped {
		if from, to := max(k.From, s.start), min(k.To, s.next); from < to {
			if err := w.Skip(from, to, k.Class); err != nil {
				return nil, err
			}
		}
	}
	chain := segment.First()
	if s.start > 0 {
		chain.Ordinal = segment.IndexEvery // a part has no place in the chain; this ordinal needs no rows of those before it
	}
	data, _, err := w.Close(s.next, chain, h.Schemas)
	return data, err
}
