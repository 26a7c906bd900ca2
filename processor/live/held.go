package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/processor/decision"
	"tapedeck.dev/tapedeck/processor/schemas"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/schema"
)

const (
	lookupTimeout = 10 * time.Second
	heldBackoff   = 200 * time.Millisecond
	heldMax       = 10 * time.Second
)

// held is what a partition keeps while it waits for the schema registry. The others go on, and so does the membership.
type held struct {
	recs    []record.Record
	end     int64 // an end of partition reported behind recs; 0 none
	why     error
	backoff time.Duration
	again   time.Time
}

func (h *held) waiting() bool { return h.why != nil }

// take feeds records, or puts them behind those that wait already.
func (t *task) take(ctx context.Context, tp kafka.TP, p *part, recs []record.Record) error {
	if p.held.waiting() {
		p.held.recs = append(p.held.recs, recs...)
		return nil
	}
	rest, why, err := t.feed(ctx, tp, p, recs)
	if err != nil || why == nil {
		return err
	}
	p.held = held{recs: rest, why: why, backoff: heldBackoff, again: time.Now().Add(heldBackoff)}
	t.cfg.Log.Warn("partition waits for the schema registry", zap.Stringer("partition", tp), zap.Error(why))
	return t.fetch.Pause(tp)
}

// advance moves over offsets without records, behind those that wait.
func (t *task) advance(tp kafka.TP, p *part, next int64) {
	if p.held.waiting() {
		p.held.end = next
		return
	}
	if next > t.eng.Position(tp) {
		t.eng.Advance(tp, next)
	}
}

func (t *task) retryHeld(ctx context.Context, now time.Time) error {
	for _, tp := range sortedTPs(t.parts) {
		p := t.parts[tp]
		if !p.held.waiting() || now.Before(p.held.again) {
			continue
		}
		rest, why, err := t.feed(ctx, tp, p, p.held.recs)
		if err != nil {
			return err
		}
		if why != nil {
			p.held.recs, p.held.why = rest, why
			p.held.backoff = min(2*p.held.backoff, heldMax)
			p.held.again = time.Now().Add(p.held.backoff)
			continue
		}
		end := p.held.end
		p.held = held{}
		if end > 0 {
			t.advance(tp, p, end)
		}
		if err := t.fetch.Resume(tp); err != nil {
			return fmt.Errorf("resume %s: %w", tp, err)
		}
	}
	return nil
}

// feed gives records to the engine and looks up the schemas that it asks for. why is set where the registry does not
// answer; rest has not been taken then.
func (t *task) feed(ctx context.Context, tp kafka.TP, p *part, recs []record.Record) (rest []record.Record, why, err error) {
	for {
		n, err := t.eng.Feed(tp, recs)
		recs = recs[n:]
		t.fed += n
		if err == nil {
			return nil, nil, nil
		}
		var missing *schemas.MissingError
		if !errors.As(err, &missing) {
			return nil, nil, refuse("pipeline %s cannot go on at %s@%d: %v", t.cfg.Pipeline.Name, tp, t.eng.Position(tp), err)
		}
		if t.cfg.Lookup == nil {
			return nil, nil, refuse("the records of %s name schema id %d, but schema.registry.url is not set", tp, missing.ID)
		}
		bounded, cancel := context.WithTimeout(ctx, lookupTimeout)
		w, err := t.cfg.Lookup(bounded, missing.ID)
		cancel()
		switch {
		case err == nil:
			t.src.Know(missing.ID, w)
		case errors.Is(err, schema.ErrNoSuchID):
			if missing.Offset < p.goal {
				return nil, nil, refuse("the schema registry no longer knows id %d, which it knew when %s@%d was first read: restore it, then start again",
					missing.ID, tp, missing.Offset)
			}
			t.src.Decide(tp, missing.Offset)
			t.pending = append(t.pending, decision.UnknownSchema{TopicPartition: tp, Offset: missing.Offset, ID: missing.ID})
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		default:
			return recs, fmt.Errorf("schema id %d of %s@%d: %w", missing.ID, tp, missing.Offset, err), nil
		}
	}
}
