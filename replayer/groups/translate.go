// Package groups restores positions of consumer groups: a position in an archived topic becomes the position of the same next record in the topic that
// it was restored into.
package groups

import (
	"cmp"
	"container/heap"
	"slices"
	"sort"
)

// Run says where records went: those of the old offsets [Old, Old+Length) have the new offsets [New, New+Length), each and in the same order. Offsets
// without a record are in no run.
type Run struct {
	Old, New, Length int64
}

// Note says what a reader of a translated position should know; "" where there is nothing to say.
type Note string

// Notes.
const (
	Exact     Note = ""                                                                                            // the record of this very position, or the next one there was
	AtEnd     Note = "everything that was restored has been read"                                                  // it is behind the last restored record
	Before    Note = "records between the group's position and the first restored one are not part of the restore" // it lies below the restored range
	OutOfLine Note = "the topic was not restored in the order of its old offsets; the group reads some records again"
)

// Map translates positions of one partition.
type Map struct {
	runs      []Run   // ascending by Old, each old offset in one at most
	least     []int64 // least[i]: the smallest New of runs[i:]
	from, end int64
}

// NewMap makes a Map of where records went. from is the first old offset that the restores covered, whether it held a record or not; end is the new
// offset behind the last restored record. runs may come in any order and may overlap in old offsets (the same records restored twice: the newest copy
// counts), never in new ones.
func NewMap(runs []Run, from, end int64) *Map {
	m := &Map{runs: newest(runs), from: from, end: end}
	m.least = make([]int64, len(m.runs))
	for i := len(m.runs) - 1; i >= 0; i-- {
		m.least[i] = m.runs[i].New
		if i+1 < len(m.runs) {
			m.least[i] = min(m.least[i], m.least[i+1])
		}
	}
	return m
}

// At returns the new position of a group that would have read the record of offset old next: the largest one from which it still reads, of every record at or
// behind old, the newest copy. Where the restores of a topic followed each other in the order of offsets, or there was one, that is exactly the new
// offset of the first record that there was at or behind old.
func (m *Map) At(old int64) (int64, Note) {
	i := sort.Search(len(m.runs), func(i int) bool { return m.runs[i].Old+m.runs[i].Length > old })
	if i == len(m.runs) {
		return m.end, AtEnd
	}
	at := m.runs[i].New + max(old-m.runs[i].Old, 0)
	switch {
	case i+1 < len(m.runs) && m.least[i+1] < at:
		return m.least[i+1], OutOfLine
	case old < m.from:
		return at, Before
	}
	return at, Exact
}

// newest cuts runs so that each old offset is in one at most, the one with the highest new offset; ascending by old offset.
func newest(runs []Run) []Run {
	in := slices.DeleteFunc(slices.Clone(runs), func(r Run) bool { return r.Length <= 0 })
	slices.SortFunc(in, func(a, b Run) int { return cmp.Compare(a.Old, b.Old) })
	if !overlapping(in) {
		return in
	}
	// Between two borders the run with the highest New of those that are open counts.
	borders := make([]int64, 0, 2*len(in))
	for _, r := range in {
		borders = append(borders, r.Old, r.Old+r.Length)
	}
	slices.Sort(borders)
	borders = slices.Compact(borders)
	var open byNew
	var out []Run
	for i, at := range borders[:len(borders)-1] {
		for len(in) > 0 && in[0].Old <= at {
			heap.Push(&open, in[0])
			in = in[1:]
		}
		for len(open) > 0 && open[0].Old+open[0].Length <= at {
			heap.Pop(&open)
		}
		if len(open) == 0 {
			continue
		}
		top := open[0]
		out = append(out, Run{Old: at, New: top.New + at - top.Old, Length: borders[i+1] - at})
	}
	return out
}

func overlapping(sorted []Run) bool {
	for i := 1; i < len(sorted); i++ {
		if sorted[i].Old < sorted[i-1].Old+sorted[i-1].Length {
			return true
		}
	}
	return false
}

// byNew is a heap with the highest New first.
type byNew []Run

func (h byNew) Len() int           { return len(h) }
func (h byNew) Less(i, j int) bool { return h[i].New > h[j].New }
func (h byNew) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byNew) Push(x any)        { *h = append(*h, x.(Run)) }
func (h *byNew) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
