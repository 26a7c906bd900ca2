package engine

import (
	"maps"
	"slices"
)

// Take closes every window with end ≤ W and returns all outputs since the last Take: per output topic and partition in their final order.
func (e *Engine) Take() []Output {
	out, _, err := e.TakeSome(Bound{})
	if err != nil {
		e.misused("take: %v", err)
	}
	return out
}

// TakeSome is Take in pieces of about b, for transactions that have an end. more: there is more, and no Feed may come in between; side
// outputs come last. What Commits returns after any piece is right for a restart behind that piece, with the positions as they were before the first;
// the new positions may be stored with the last piece alone. The error says that the records read again after a restart are not those that were
// read before it.
func (e *Engine) TakeSome(b Bound) (out []Output, more bool, err error) { return e.takeUpTo(b, false) }

// Drain closes every window whatever W. No Feed may follow. Results of windows whose time had not come carry HeaderDrained.
func (e *Engine) Drain() []Output {
	out, _, err := e.DrainSome(Bound{})
	if err != nil {
		e.misused("drain: %v", err)
	}
	return out
}

// DrainSome is Drain in pieces, as TakeSome is Take.
func (e *Engine) DrainSome(b Bound) (out []Output, more bool, err error) {
	defer e.misused("feed after Drain")
	return e.takeUpTo(b, true)
}

func (e *Engine) takeUpTo(b Bound, drain bool) (out []Output, more bool, err error) {
	left := room{bound: b}
	for _, s := range e.shards() {
		if w, _ := s.watermark(); w > s.closed {
			s.closed = w
			s.closing = append(s.closing, e.close(s, w)...)
		}
		if drain {
			rest := e.close(s, 1<<62)
			for _, win := range rest {
				win.drained = true
			}
			s.closing = append(s.closing, rest...)
		}
		if out, more, err = e.handOut(out, s, &left); more || err != nil {
			return out, more, err
		}
	}
	if len(out) > 0 && left.exceededBy(e.stats.SideBytes) {
		return out, true, nil
	}
	return e.takeSide(out), false, nil
}

// takeSide appends the side outputs, partition by partition.
func (e *Engine) takeSide(out []Output) []Output {
	for _, s := range e.shards() {
		for _, p := range s.parts {
			for _, o := range p.side {
				switch o.Kind {
				case Late:
					e.stats.Late++
				case Future:
					e.stats.Future++
				case Poison:
					e.stats.Poison++
				}
			}
			out = append(out, p.side...)
			p.side = nil
		}
	}
	e.stats.SideBytes = 0
	return out
}

// shards lists the shards in the order of their first partitions.
func (e *Engine) shards() []*shard {
	if e.merged != nil {
		return []*shard{e.merged}
	}
	list := make([]*shard, 0, len(e.parts))
	for _, p := range e.parts {
		list = append(list, p.shard)
	}
	slices.SortFunc(list, func(a, b *shard) int {
		if a.parts[0].tp.Less(b.parts[0].tp) {
			return -1
		}
		return 1
	})
	return list
}

// Commits returns what to store with the positions; call it directly after Take.
//
// After a restart a partition may not yet be back at its committed position. It then keeps that position, because the side outputs below it are
// out already, while Low says how far the re-reading has come: never above the position that reading is really at.
func (e *Engine) Commits() map[TP]Commit {
	all := make(map[TP]Commit, len(e.parts))
	for tp, p := range e.parts {
		all[tp] = Commit{Position: max(p.pos, p.handedOut), Low: p.pos, MaxAtLow: p.maxTime, Emitted: p.shard.emitted,
			Partial: p.shard.partial}
	}
	for _, s := range e.shards() {
		for _, w := range slices.AppendSeq(slices.Clone(s.closing), maps.Values(s.windows)) {
			for i, n := range w.needs {
				if n.offset < 0 {
					continue
				}
				tp := s.parts[i].tp
				if c := all[tp]; n.offset < c.Low {
					c.Low, c.MaxAtLow = n.offset, n.maxTime
					all[tp] = c
				}
			}
		}
	}
	return all
}
