package live

import (
	"context"
	"maps"
	"time"

	"tapedeck.dev/tapedeck/processor/engine"
	"tapedeck.dev/tapedeck/shared/kafka"
)

// closings takes what the engine hands out. Where that is more than a transaction should hold, it writes transactions until the rest fits into
// the last one, which is the caller's: the positions, and the side outputs, are in that one alone (docs/processor.md, "A closing larger than a transaction").
func (t *task) closings(ctx context.Context) ([]engine.Output, error) {
	bound := engine.Bound{Records: t.cfg.TxRecords, Bytes: t.cfg.TxBytes}
	for {
		outs, more, err := t.eng.TakeSome(bound)
		if err != nil {
			return nil, refuse("pipeline %s: %v; the results so far stay as they are; to go on, give the pipeline a new name and replay from the archive",
				t.cfg.Pipeline.Name, err)
		}
		if !more {
			return outs, nil
		}
		if err := t.makeSure(ctx); err != nil {
			return nil, err
		}
		if err := t.store(ctx, outs, t.midway()); err != nil {
			return nil, err
		}
		t.board.alive(time.Now())
	}
}

// midway returns the positions as they are stored, with how far the closings behind them have come.
func (t *task) midway() map[kafka.TP]engine.Commit {
	m := map[kafka.TP]engine.Commit{}
	maps.Copy(m, t.extra)
	for tp, now := range t.eng.Commits() {
		p, ok := t.parts[tp]
		if !ok {
			continue
		}
		c := p.committed
		if c.Position < 0 {
			c = now // a partition that has just appeared: nothing of it has been read, and its floor is in this transaction
		}
		c.Emitted, c.Partial = now.Emitted, now.Partial
		if c != p.committed {
			m[tp] = c
		}
	}
	return m
}
