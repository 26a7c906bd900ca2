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

// held is what a partition keeps while it waits: for the schema registry, or since the state is full (limit.go). The others go on, and so does
// the membership.
type held struct {
	recs    []record.Record
	end     int64 // an end of partition reported behind recs; 0 none
	full    bool  // held back by holdReason
	why     error // of the registry; nil where full
	backoff time.Duration
	again   time.Time
}

func (h *held) waiting() bool { return h.why != nil || h.full }

// take feeds records, or puts them behind those that wait already.
func (t *task) take(ctx context.Context, tp kafka.TP, p *part, recs []record.Record) error {
	if p.held.waiting() {
		p.held.recs = append(p.held.recs, recs...)
		return nil
	}
	err := t.takeUntilHeld(ctx, tp, p, recs)
	if err == nil && p.held.why != nil {
		t.cfg.Log.Warn("partition waits for the schema registry", zap.Stringer("partition", tp), zap.Error(p.held.why))
	}
	return err
}

func (t *task) takeUntilHeld(ctx context.Context, tp kafka.TP, p *part, recs []record.Record) error {
	for {
		if t.holdReason(tp) != "" {
			p.held = held{recs: recs, full: true}
			return t.fetch.Pause(tp)
		}
		if len(recs) == 0 {
			return nil
		}
		n := t.chunk(recs)
		rest, why, err := t.feed(ctx, tp, p, recs[:n])
		if err != nil {
			return err
		}
		if why != nil {
			p.held = held{recs: recs[n-len(rest):], why: why, backoff: heldBackoff, again: time.Now().Add(heldBackoff)}
			return t.fetch.Pause(tp)
		}
		recs = recs[n:]
		if err := t.weigh(ctx, tp); err != nil {
			return err
		}
	}
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
		if !p.held.waiting() || now.Before(p.held.again) || p.held.full && t.holdReason(tp) != "" {
			continue
		}
		was := p.held
		p.held = held{}
		if err := t.takeUntilHeld(ctx, tp, p, was.recs); err != nil {
			return err
		}
		if p.held.waiting() {
			p.held.end = was.end
			if p.held.why != nil && was.why != nil {
				p.held.backoff = min(2*was.backoff, heldMax)
				p.held.again = time.Now().Add(p.held.backoff)
			}
			continue
		}
		if was.end > 0 {
			t.advance(tp, p, was.end)
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
