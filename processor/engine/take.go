package engine

import "slices"

// Take closes every window with end ≤ W and returns all outputs since the last Take: per output topic and partition in their final order.
func (e *Engine) Take() []Output {
	var out []Output
	for _, s := range e.shards() {
		out = e.closeThrough(out, s)
	}
	return e.takeSide(out)
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
	return out
}

// closeThrough closes s as far as its watermark allows.
func (e *Engine) closeThrough(out []Output, s *shard) []Output {
	w, _ := s.watermark()
	if w <= s.closed {
		return out
	}
	s.closed = w
	for _, win := range e.close(s, w) {
		out = e.results(out, s, win, false)
	}
	s.emitted = max(s.emitted, w)
	return out
}

// Drain closes every window whatever W. No Feed may follow. Results of windows whose time had not come carry HeaderDrained.
func (e *Engine) Drain() []Output {
	var out []Output
	for _, s := range e.shards() {
		out = e.closeThrough(out, s)
		for _, win := range e.close(s, 1<<62) {
			out = e.results(out, s, win, true)
		}
	}
	out = e.takeSide(out)
	e.misused("feed after Drain")
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
		all[tp] = Commit{Position: max(p.pos, p.handedOut), Low: p.pos, MaxAtLow: p.maxTime, Emitted: p.shard.emitted}
	}
	for _, s := range e.shards() {
		for _, w := range s.windows {
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
