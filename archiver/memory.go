package archiver

import (
	"slices"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/archiver/partition"
	"tapedeck.dev/tapedeck/shared/kafka"
)

// memory is what the loop knows of memory.max.bytes.
type memory struct {
	budget budget
	rates  rates
	over   bool  // the bound was passed, and there is not enough room yet to go on
	seq    int64 // numbers those that wait
}

// memory lets the partitions fetch for which there is room. Beyond the bound nothing is fetched; where the segments on their way to the store would
// not make enough room, the largest open ones end too: they are nearest to their full size.
func (l *loop) memory() {
	var open, sealed int64
	turns := make([]*turn, 0, len(l.parts))
	for _, a := range l.parts {
		a.turn.open = a.p.OpenBytes()
		open += a.turn.open
		sealed += a.p.SealedBytes()
		if l.wants(a) {
			turns = append(turns, &a.turn)
		}
	}
	m, bound := &l.mem, l.mem.budget.buffers
	switch total := open + sealed; {
	case total > bound:
		m.over = true
	case total < bound/10*9:
		m.over = false
	}
	stuck := admit(turns, bound/10*9-open-sealed)
	for _, t := range turns {
		t.running = t.fetch
	}
	if m.over && open > bound/10*8 || stuck && sealed == 0 {
		l.squeeze(open, bound/10*6)
	}
	l.m.memory.Set(float64(open + sealed))
	l.pub.mu.Lock()
	l.pub.cond.status.MemoryBytes, l.pub.cond.status.MemoryHeld = open+sealed, m.over || stuck
	l.pub.mu.Unlock()
}

// wants brings a partition's turn up to date and reports whether it could be fetched.
func (l *loop) wants(a *assigned) bool {
	start, records := a.p.OpenStart()
	could := a.fetching && !a.p.Held() && !l.pauses.has(a.p.TP())
	if !could || start != a.openStart { // its segment is full, or it begins again: the next one's turn
		if a.turn.running || start != a.openStart {
			l.mem.seq++
			a.turn.since = l.mem.seq
		}
		a.turn.running, a.turn.fetch, a.openStart = false, false, start
	}
	rule := a.p.Rule()
	need := l.mem.rates.need(a.turn.open, records, a.p.Behind(), rule.FlushSize, rule.SegmentBytes)
	a.turn.look(l.now(), a.p.Position(), min(need, l.mem.budget.buffers/4)) // more is not waited for: the bound ends the segment then
	return could
}

// squeeze ends the largest open segments until those left take no more than keep bytes.
func (l *loop) squeeze(open, keep int64) {
	byOpen := make([]*assigned, 0, len(l.parts))
	for _, a := range l.parts {
		byOpen = append(byOpen, a)
	}
	slices.SortFunc(byOpen, func(a, b *assigned) int { return int(b.turn.open - a.turn.open) })
	for _, a := range byOpen {
		if open <= keep {
			return
		}
		l.on(a, partition.Squeeze{})
		open -= a.turn.open - a.p.OpenBytes()
	}
}

// hold holds partitions back and lets them go on, all that change at once: each call of the consumer takes its time.
func (l *loop) hold() {
	var pause, resume []kafka.TP
	now := l.now()
	all := l.limit.hold(now)
	for tp, a := range l.parts {
		rate := a.limit.hold(now) || all
		want := l.mem.over || a.p.Held() || !a.turn.fetch || rate
		if rate && a.fetching && !a.paused {
			l.rateHolds++
		}
		switch {
		case !a.fetching || want == a.paused:
		case want:
			pause = append(pause, tp)
		default:
			resume = append(resume, tp)
		}
	}
	l.change(true, pause, l.cons.Pause)
	l.change(false, resume, l.cons.Resume)
}

func (l *loop) change(paused bool, tps []kafka.TP, f func(...kafka.TP) error) {
	if len(tps) == 0 {
		return
	}
	err := f(tps...)
	if err != nil {
		l.log.Warn("hold partitions back or let them go on; they begin again", zap.Bool("hold", paused), zap.Int("partitions", len(tps)), zap.Error(err))
	}
	for _, tp := range tps {
		a := l.parts[tp]
		if a == nil {
			continue
		}
		if a.paused = paused; err != nil {
			a.fetching = false
			l.on(a, partition.FetchFailed{Err: err})
		}
	}
}
