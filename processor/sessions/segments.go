package sessions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"tapedeck.dev/tapedeck/processor/schemas"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/session"
)

const (
	feedBatch     = 1000 // records per turn under the session's mutex
	lookupTimeout = 10 * time.Second
)

// object names a segment in errors.
func object(tp kafka.TP, start int64) string { return fmt.Sprintf("segment %s+%020d", tp, start) }

// checkSegment reads a whole segment without feeding anything, so that a corrupt one has no effect.
func checkSegment(tp kafka.TP, start int64, data []byte) (*segment.Header, error) {
	name := object(tp, start)
	r, err := segment.NewReader(name, data)
	if err != nil {
		return nil, corrupt(name, err)
	}
	h := r.Header()
	if h.TP() != tp || h.Start != start {
		return nil, refused("%s: the object holds %s from %d", name, h.TP(), h.Start)
	}
	var rec record.Record
	for {
		switch err := r.Next(&rec); {
		case err == io.EOF:
			return h, nil
		case err != nil:
			return nil, corrupt(name, err)
		}
	}
}

func corrupt(name string, err error) error {
	var c *segment.CorruptError
	if errors.As(err, &c) {
		return refused("%v", err) // names object and position
	}
	return refused("%s: %v", name, err)
}

// fits checks that a segment is of the log that the range speaks of.
func fits(req session.Request, r session.Range, h *segment.Header) error {
	name := object(r.TopicPartition, h.Start)
	if h.TopicID != r.TopicID {
		return refused("%s: the object is of topic id %q, the session of %q", name, h.TopicID, r.TopicID)
	}
	if h.Isolation != r.Isolation {
		return refused("%s: the object was read with isolation %q, the session says %q", name, h.Isolation, r.Isolation)
	}
	if req.Promise == session.Reproduce {
		if g := gapIn(h.Skipped, r.From, r.Until); g != nil {
			return refused("%s: offsets [%d, %d) are %s, so the live run cannot be reproduced", name, g.From, g.To, g.Class)
		}
	}
	return nil
}

// verdict says what to do with a segment [start, next) of a range whose next expected offset is expected: take it, or answer at once.
func verdict(start, next, expected int64, r session.Range) (take bool, err error) {
	switch {
	case expected >= r.Until || next <= expected:
		return false, nil
	case start > expected:
		e := conflict("%s: segment starts at %d, but %d is expected next", r.TopicPartition, start, expected)
		e.Ack = &session.Ack{Expected: expected, Message: e.Reason}
		return false, e
	}
	return true, nil
}

// segment takes one segment and returns the next expected offset.
func (s *open) segment(ctx context.Context, epoch int64, tp kafka.TP, start int64, data []byte) (session.Ack, error) {
	p, ok := s.parts[tp]
	if !ok {
		return session.Ack{}, missing("session %s has no range of %s", s.name, tp)
	}
	h, err := checkSegment(tp, start, data)
	if err != nil {
		return session.Ack{}, err
	}
	if err := fits(s.req, p.rng, h); err != nil {
		return session.Ack{}, err
	}
	p.feeding.Lock()
	defer p.feeding.Unlock()

	s.mu.Lock()
	err = s.usable(epoch)
	take, expected := false, int64(0)
	if err == nil {
		expected = s.eng.Position(tp)
		take, err = verdict(h.Start, h.Next, expected, p.rng)
	}
	if err == nil && take {
		s.src.Segment(tp, h.Schemas)
	}
	s.mu.Unlock()
	if err != nil || !take {
		return session.Ack{Expected: expected}, err
	}
	return s.feed(ctx, epoch, tp, p, h, data)
}

// batch is decoded outside the session's mutex.
type batch struct {
	recs []record.Record
	sums []uint64
}

func (s *open) feed(ctx context.Context, epoch int64, tp kafka.TP, p *part, h *segment.Header, data []byte) (session.Ack, error) {
	r, err := segment.NewReader(object(tp, h.Start), data)
	if err != nil {
		return session.Ack{}, corrupt(object(tp, h.Start), err)
	}
	for end := false; !end; {
		var b batch
		for len(b.recs) < feedBatch {
			var rec record.Record
			if err := r.Next(&rec); err == io.EOF {
				end = true
				break
			} else if err != nil {
				return session.Ack{}, corrupt(object(tp, h.Start), err)
			}
			if rec.Offset < p.rng.From || rec.Offset >= p.rng.Until {
				continue
			}
			b.recs = append(b.recs, rec)
			b.sums = append(b.sums, segment.Checksum(r.Datum()))
		}
		if err := s.feedBatch(ctx, epoch, tp, p, b); err != nil {
			return session.Ack{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(epoch); err != nil {
		return session.Ack{}, err
	}
	if next := min(h.Next, p.rng.Until); next > s.eng.Position(tp) {
		s.eng.Advance(tp, next)
	}
	s.delivered(tp)
	ack := session.Ack{Expected: s.eng.Position(tp)}
	s.fed++ // an advance alone is worth storing too
	if s.commitDue() && s.caughtUp() {
		if err := s.commit(ctx, false, nil); err != nil {
			return ack, err
		}
	}
	return ack, nil
}

// feedBatch gives records to the engine; schemas that it asks for are looked up outside the mutex, so that other partitions go on. Where
// only the segment may tell them, the session fails.
func (s *open) feedBatch(ctx context.Context, epoch int64, tp kafka.TP, p *part, b batch) error {
	for {
		missing, err := s.feedSome(ctx, epoch, tp, p, &b)
		if missing == nil || err != nil {
			return err
		}
		if s.req.SchemaSource() == session.FromSegment {
			return s.failNoSchema(ctx, epoch, missing)
		}
		w, err := s.lookup(ctx, missing)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.src.Know(missing.ID, w)
		s.mu.Unlock()
	}
}

func (s *open) feedSome(ctx context.Context, epoch int64, tp kafka.TP, p *part, b *batch) (*schemas.MissingError, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(epoch); err != nil {
		return nil, err
	}
	if len(b.recs) > 0 {
		if err := s.room(ctx, tp); err != nil {
			return nil, err
		}
	}
	n, err := s.eng.Feed(tp, b.recs)
	for i := range n {
		if off := b.recs[i].Offset; off >= p.goal && off > p.proof.last {
			p.proof.add(off, b.sums[i])
		}
	}
	s.fed += n
	b.recs, b.sums = b.recs[n:], b.sums[n:]
	if err == nil {
		return nil, nil
	}
	var m *schemas.MissingError
	if errors.As(err, &m) {
		return m, nil
	}
	return nil, s.fail(ctx, err.Error())
}

func (s *open) failNoSchema(ctx context.Context, epoch int64, m *schemas.MissingError) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(epoch); err != nil {
		return err
	}
	return s.fail(ctx, fmt.Sprintf("schema id %d of %s@%d is not in the segment, and no decision calls it unknown: what it meant to the live run is not known, "+
		`and today's registry may mean something else; replay under another name with the promise recompute, or with "schemas": "registry" if the registry `+
		"still is what it was", m.ID, m.TopicPartition, m.Offset))
}

func (s *open) lookup(ctx context.Context, m *schemas.MissingError) (segment.Schema, error) {
	if s.cfg.Lookup == nil {
		return segment.Schema{}, refused("schema id %d of %s@%d is not in the segment, and schema.registry.url is not set", m.ID, m.TopicPartition, m.Offset)
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	w, err := s.cfg.Lookup(ctx, m.ID)
	switch {
	case errors.Is(err, schema.ErrNoSuchID):
		return w, refused("schema id %d of %s@%d is in neither the segment nor the registry, and no decision calls it unknown: the live run had it", m.ID, m.TopicPartition, m.Offset)
	case err != nil:
		return w, later("schema id %d of %s@%d: %v; repeat the call", m.ID, m.TopicPartition, m.Offset, err)
	}
	return w, nil
}
