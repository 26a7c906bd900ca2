package engine

import (
	"fmt"
	"hash/fnv"
)

// Bound is what one piece of TakeSome is about: it ends with the output that reaches either. Zero: no bound.
type Bound struct {
	Records int
	Bytes   int64
}

// Partial is how far the first window after Commit.Emitted has been handed out; the zero Partial: nothing of it.
//
// A window's results are handed out in the order of their keys, and a window that is closed changes no more: what comes to its partitions later is
// late for it. So the number of results says which ones, after a restart too, and no key, which may be large, has to be kept. Check tells
// whether that holds: an input that was compacted, or rewritten, in between gives other results, and then nobody knows which are out.
type Partial struct {
	End   int64  `json:"end"`   // the window's
	N     int64  `json:"n"`     // results handed out, > 0
	Check uint64 `json:"check"` // FNV-1a, 64 bits, of the key of the last of them
}

// room counts what a piece holds.
type room struct {
	bound   Bound
	records int
	bytes   int64
}

func (r *room) full() bool {
	return r.bound.Records > 0 && r.records >= r.bound.Records || r.bound.Bytes > 0 && r.bytes >= r.bound.Bytes
}

func (r *room) exceededBy(bytes int64) bool {
	return r.bound.Bytes > 0 && r.bytes+bytes > r.bound.Bytes
}

// handOut appends results of the windows that are closed, as far as there is room.
func (e *Engine) handOut(out []Output, s *shard, left *room) (_ []Output, more bool, err error) {
	for len(s.closing) > 0 {
		w := s.closing[0]
		if w.order == nil {
			w.order = w.sorted()
			if err := s.resume(w); err != nil {
				return out, false, err
			}
		}
		for w.next < len(w.order) {
			if left.full() {
				return out, true, nil
			}
			g := w.order[w.next]
			o := e.result(s, w, g)
			w.next++
			s.partial = Partial{End: w.end, N: int64(w.next), Check: checkOf(g.key)}
			out = append(out, o)
			left.records++
			left.bytes += o.size()
			e.stats.Results++
		}
		s.closing = s.closing[1:]
		s.emitted, s.partial = max(s.emitted, w.end), Partial{}
		e.stats.StateBytes -= w.bytes
	}
	s.emitted = max(s.emitted, s.closed)
	return out, false, nil
}

// resume leaves out what of w was handed out before the restart.
func (s *shard) resume(w *window) error {
	p := s.partial
	if p.N == 0 {
		return nil
	}
	if w.end != p.End || p.N > int64(len(w.order)) || checkOf(w.order[p.N-1].key) != p.Check {
		return fmt.Errorf("%d results of the window that ends at %d were written before the restart, but the records read again give others: "+
			"was the input compacted or changed in between", p.N, p.End)
	}
	w.next = int(p.N)
	return nil
}

// handedOut takes over what a partition's commit says. The partitions of a shard are stored together, so that they differ only where one is new.
func (s *shard) handedOut(emitted int64, p Partial) {
	switch {
	case emitted > s.emitted:
		s.emitted, s.partial = emitted, p
	case emitted == s.emitted && p.N > s.partial.N:
		s.partial = p
	}
}

func checkOf(key string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // never fails
	return h.Sum64()
}

// HandedOut returns through which window end results of a merged pipeline are out, in full or in part, in this run or before a restart; NoTime for none.
// After a kill within a closing it is above the watermark until what was read before has been read again.
func (e *Engine) HandedOut() int64 {
	if e.merged == nil {
		return NoTime
	}
	if e.merged.partial.N > 0 {
		return max(e.merged.emitted, e.merged.partial.End)
	}
	return e.merged.emitted
}

// Waits reports whether a merged pipeline has an open window that ends at w or before: partitions behind w hold it back.
func (e *Engine) Waits(w int64) bool {
	if e.merged == nil {
		return false
	}
	for end := range e.merged.windows {
		if end <= w {
			return true
		}
	}
	return false
}
