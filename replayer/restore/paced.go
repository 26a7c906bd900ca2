package restore

import (
	"context"
	"time"

	"tapedeck.dev/tapedeck/replayer/pace"
)

// A speed and rates hold for a restore as for any job (package pace): one clock and one account for all lanes of an execution. Two things are different
// from a processor. An open transaction does not wait: it is committed when it is old enough, so that readers see what has been sent. And a lane
// sends one thing at a time, so at a speed it takes the parts of its partitions in the order of their times; one whole segment after the other, each
// would hold up the next for as long as its records span.

// beginPace starts the clock where the partition stands that is furthest behind: at the largest timestamp that the target has of it, or, where it has none,
// at the smallest to come.
func (x *execution) beginPace() {
	if x.pacer == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	least := int64(-1)
	for _, p := range x.parts {
		if at := p.stands(p.first()); at >= 0 && (least < 0 || at < least) {
			least = at
		}
	}
	x.pacer.Begin(least)
}

// first is the index of the first segment that has more than what is committed.
func (p *part) first() int {
	for i, s := range p.segs {
		if min(s.Next, p.rng.Until) > p.state.Next {
			return i
		}
	}
	return len(p.segs)
}

// stands is a time, ms, that no record of the segments from i on comes before in the partition's order; −1 where there are none.
func (p *part) stands(i int) int64 {
	for ; i < len(p.segs); i++ {
		if s := p.segs[i]; s.Count > 0 && !s.Outside {
			if p.state.Reached >= 0 {
				return p.state.Reached
			}
			return max(s.MinTimestamp, p.rng.FromTimestamp)
		}
	}
	return -1
}

// await waits until u may go, and takes it. An open transaction is committed meanwhile, when it is old enough.
func (l *lane) await(ctx context.Context, u pace.Unit) error {
	for waited := false; ; waited = true {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		now := time.Now()
		until, _, ok := l.x.pacer.Try(now, u, false)
		if ok {
			if waited {
				l.x.touch() // it was not the target that was waited for
			}
			return nil
		}
		if l.open && l.ends().Before(until) {
			until = l.ends()
		}
		t := time.NewTimer(until.Sub(now))
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
		if l.open && ctx.Err() == nil && !time.Now().Before(l.ends()) {
			if err := l.commit(ctx); err != nil {
				return err
			}
		}
	}
}

// turn is a partition of a lane at a speed.
type turn struct {
	p *part
	i int   // its segment
	f *feed // that segment, loaded; nil: it is not
	// at is the time of its next part, where that is known from before it was given up: else two that push each other out, each with a lower bound only, would
	// do so for ever. −1: not known.
	at int64
}

// byTime sends the lane's parts in the order of their times.
func (l *lane) byTime(ctx context.Context) error {
	var turns []*turn
	for _, p := range l.x.parts {
		if p.lane == l.n {
			turns = append(turns, &turn{p: p, i: l.x.unread(p), at: -1})
		}
	}
	for {
		t := l.next(turns)
		switch {
		case t == nil:
			return nil
		case t.f == nil:
			if err := l.loadTurn(ctx, t, turns); err != nil {
				return err
			}
		case t.f.done():
			l.ended(t.f)
			t.f, t.i, t.at = nil, t.i+1, -1
		default:
			if err := l.part(ctx, t.f); err != nil {
				return err
			}
		}
	}
}

// next is whose turn it is: of the partitions with segments left the one whose next part has the least time; nil where none has any. What is not loaded
// yet counts with the least time that it can have.
func (l *lane) next(turns []*turn) *turn {
	var least *turn
	var leastAt int64
	for _, t := range turns {
		if t.i == len(t.p.segs) {
			continue
		}
		if at := l.time(t); least == nil || at < leastAt {
			least, leastAt = t, at
		}
	}
	return least
}

func (l *lane) time(t *turn) int64 {
	switch s := t.p.segs[t.i]; {
	case t.f != nil && t.f.done(), t.f == nil && (s.Count == 0 || s.Outside):
		return -1 // nothing to send: to be passed
	case t.f != nil:
		return l.unit(t.f).Timestamp
	case t.at >= 0:
		return t.at
	default:
		return max(l.at(t.p).reached, s.MinTimestamp)
	}
}

// loadTurn loads t's segment. Where more is held then than the settings allow, what goes last is given up, to be read again later.
func (l *lane) loadTurn(ctx context.Context, t *turn, turns []*turn) error {
	if l.open { // the store may be slow: an open transaction does not wait for it
		if err := l.commit(ctx); err != nil {
			return err
		}
	}
	w, err := l.x.loadOne(ctx, t.p, t.i)
	if err != nil {
		return err
	}
	if t.f, err = l.feed(ctx, w); err != nil {
		return err
	}
	hold := l.x.d.runner.Settings.HoldBytes / int64(l.x.k.Lanes)
	for {
		held, far := int64(0), (*turn)(nil)
		for _, o := range turns {
			if o.f == nil || o.f.seg == nil {
				continue
			}
			held += int64(len(o.f.seg.Body))
			if o != t && (far == nil || l.time(o) > l.time(far)) {
				far = o
			}
		}
		if held <= hold || far == nil {
			return nil
		}
		far.f, far.at = nil, l.time(far)
	}
}
