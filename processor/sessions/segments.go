package sessions

import (
	"context"
	"errors"
	"fmt"
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
	kept := int64(0)
	defer func() { s.cfg.decoded.Release(kept) }()
	c, err := readContent(tp, start, data, func(bytes int64) bool {
		if !s.cfg.decoded.TryAcquire(bytes) {
			return false
		}
		kept = bytes
		return true
	})
	if err != nil {
		return session.Ack{}, err
	}
	defer c.release()
	if err := fits(s.req, p.rng, c.h); err != nil {
		return session.Ack{}, err
	}
	p.feeding.Lock()
	defer p.feeding.Unlock()

	s.mu.Lock()
	err = s.usable(epoch)
	take, expected := false, int64(0)
	if err == nil {
		expected = s.eng.Position(tp)
		take, err = verdict(c.h.Start, c.h.Next, expected, p.rng)
	}
	if err == nil && take {
		s.src.Segment(tp, c.h.Schemas)
		p.schemas = s.src.View(tp)
	}
	s.mu.Unlock()
	if err != nil || !take {
		return session.Ack{Expected: expected}, err
	}
	return s.feed(ctx, epoch, tp, p, c, expected)
}

// feed gives the records from expected on to the engine. p.feeding is held, so that nobody else moves the partition.
func (s *open) feed(ctx context.Context, epoch int64, tp kafka.TP, p *part, c *content, expected int64) (session.Ack, error) {
	for {
		recs, sums, err := c.next(feedBatch, max(expected, p.rng.From), p.rng.Until)
		if err != nil {
			return session.Ack{}, err
		}
		if len(recs) == 0 {
			break
		}
		if err := s.feedBatch(ctx, epoch, tp, p, recs, sums); err != nil {
			return session.Ack{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(epoch); err != nil {
		return session.Ack{}, err
	}
	if next := min(c.h.Next, p.rng.Until); next > s.eng.Position(tp) {
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

// feedBatch gives records to the engine. What depends on each record alone (decoding above all) is done before the session's mutex is
// taken, by all partitions at the same time. Schemas that it asks for are looked up outside the mutex too. Where only the segment may tell them, the
// session fails.
func (s *open) feedBatch(ctx context.Context, epoch int64, tp kafka.TP, p *part, recs []record.Record, sums []uint64) error {
	b := &p.batch
	defer b.Reset(nil) // recs are used by others after this
	for b.Reset(recs); ; {
		var missing *schemas.MissingError
		err := p.preparer.Prepare(p.schemas, b)
		if err != nil && !errors.As(err, &missing) {
			return s.failNow(ctx, epoch, err.Error())
		}
		if err := s.feedPrepared(ctx, epoch, tp, p, recs, sums); err != nil {
			return err
		}
		if missing == nil {
			return nil
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
		p.schemas = s.src.View(tp)
		s.mu.Unlock()
	}
}

func (s *open) feedPrepared(ctx context.Context, epoch int64, tp kafka.TP, p *part, recs []record.Record, sums []uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(epoch); err != nil {
		return err
	}
	if err := s.room(ctx, tp); err != nil {
		return err
	}
	err := s.eng.FeedPrepared(tp, &p.batch, func(i int) {
		if off := recs[i].Offset; off >= p.goal && off > p.proof.last {
			p.proof.add(off, sums[i])
		}
		s.fed++
	})
	if err != nil {
		return s.fail(ctx, err.Error())
	}
	return nil
}

func (s *open) failNow(ctx context.Context, epoch int64, why string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(epoch); err != nil {
		return err
	}
	return s.fail(ctx, why)
}

func (s *open) failNoSchema(ctx context.Context, epoch int64, m *schemas.MissingError) error {
	return s.failNow(ctx, epoch, fmt.Sprintf("schema id %d of %s@%d is not in the segment, and no decision calls it unknown: what it meant to the live run is not known, "+
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
