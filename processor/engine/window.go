package engine

import (
	"math"
	"slices"
	"strings"

	"tapedeck.dev/tapedeck/processor/agg"
	"tapedeck.dev/tapedeck/processor/value"
)

// shard is the windows that close together, and the partitions whose minimum closes them: all of a merged pipeline, one of a keyed one.
type shard struct {
	parts   []*partition
	windows map[int64]*window // open ones, by end
	last    *window           // the one used last
	closed  int64             // every window with end ≤ closed has been closed in this run
	closing []*window         // those of them that are not handed out to their end, in order
	emitted int64             // every window with end ≤ emitted has been handed out, in this run or before the restart
	partial Partial           // of the first window after emitted
	limit   int64             // no window with end > limit will ever close (NoMore)
}

// window is one open window.
type window struct {
	end    int64
	groups map[string]*group
	needs  []need // by partition index; shorter where the last partitions have none
	bytes  int64

	// Once it is closed:
	order   []*group // sorted
	next    int      // in order: what is handed out next
	drained bool     // its time had not come
}

// group is one key's state.
type group struct {
	key  string // canonical JSON
	accs []agg.Acc
}

// need is the first record of one partition that a window holds: a restart must read from there.
type need struct {
	offset  int64 // −1: none
	maxTime int64 // M_p before that record
}

func newShard() *shard {
	return &shard{windows: map[int64]*window{}, closed: NoTime, emitted: NoTime, limit: math.MaxInt64}
}

// watermark is the minimum of the partitions', and the partition that holds it (the first by topic and partition where several do).
func (s *shard) watermark() (w int64, heldBy TP) {
	w = NoTime
	for i, p := range s.parts {
		if pw := p.watermark(); i == 0 || pw < w || pw == w && p.tp.Less(heldBy) {
			w, heldBy = pw, p.tp
		}
	}
	return w, heldBy
}

// window returns the open window that ends at end.
func (e *Engine) window(s *shard, end int64) *window {
	if s.last != nil && s.last.end == end {
		return s.last
	}
	w := s.windows[end]
	if w == nil {
		w = &window{end: end, groups: map[string]*group{}, bytes: windowBytes}
		s.windows[end] = w
		e.stats.OpenWindows++
		e.stats.StateBytes += w.bytes
	}
	s.last = w
	return w
}

// add adds the record at p's position, with its key and aggregate arguments, to the window that ends at end.
func (e *Engine) add(p *partition, end int64, key []byte, args []value.Value) {
	if s := p.shard; s.closed < end && end <= s.emitted || end > s.limit {
		return // handed out before a restart, after which it is read again; or it will never be
	}
	w := e.window(p.shard, end)
	held := w.bytes
	for len(w.needs) <= p.index {
		w.needs = append(w.needs, need{offset: -1})
		w.bytes += needBytes
	}
	if n := &w.needs[p.index]; n.offset < 0 {
		*n = need{p.pos, p.maxTime}
	}
	g := w.groups[string(key)]
	if g == nil {
		g = &group{key: string(key), accs: make([]agg.Acc, len(e.p.Aggregates))}
		w.groups[g.key] = g
		w.bytes += groupBytes + int64(len(g.key)) + agg.AccBytes*int64(len(g.accs))
	}
	for i := range g.accs {
		a := &g.accs[i]
		before := a.Extra()
		e.p.Aggregates[i].Func.Add(a, args[i])
		w.bytes += a.Extra() - before
	}
	e.stats.StateBytes += w.bytes - held
}

// What things take in memory beyond their keys and aggregates, bytes: measured (size_test.go), with what the allocator and a map's free places add.
const (
	windowBytes = 512
	groupBytes  = 144
	needBytes   = 24
)

// close takes out the windows with end ≤ w, in order.
func (e *Engine) close(s *shard, w int64) []*window {
	var done []*window
	for end, win := range s.windows {
		if end <= w {
			done = append(done, win)
		}
	}
	slices.SortFunc(done, func(a, b *window) int {
		if a.end < b.end {
			return -1
		}
		return 1
	})
	for _, win := range done {
		delete(s.windows, win.end)
		e.stats.OpenWindows--
	}
	s.last = nil
	return done
}

// sorted returns the groups in the order of their keys' canonical bytes.
func (w *window) sorted() []*group {
	list := make([]*group, 0, len(w.groups))
	for _, g := range w.groups {
		list = append(list, g)
	}
	slices.SortFunc(list, func(a, b *group) int { return strings.Compare(a.key, b.key) })
	return list
}
