// Package groups restores positions of consumer groups: a position in an archived topic becomes the position of the same next record in the topic that
// it was restored into.
package groups

import (
	"sort"

	"tapedeck.dev/tapedeck/replayer/offsetmap"
)

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
	runs      []offsetmap.Run // ascending by Old, each old offset in one at most
	least     []int64         // least[i]: the smallest New of runs[i:]
	from, end int64
}

// NewMap makes a Map of where records went. from is the first old offset that the restores covered, whether it held a record or not; end is the position of
// a group that has read everything where no record was restored at all.
func NewMap(m *offsetmap.Map, from, end int64) *Map {
	t := &Map{runs: m.Runs(), from: from, end: end}
	t.least = make([]int64, len(t.runs))
	for i := len(t.runs) - 1; i >= 0; i-- {
		t.least[i] = t.runs[i].New
		t.end = max(t.end, t.runs[i].New+t.runs[i].Len)
		if i+1 < len(t.runs) {
			t.least[i] = min(t.least[i], t.least[i+1])
		}
	}
	return t
}

// At returns the new position of a group that would have read the record of offset old next: the largest one from which it still reads, of every record at or
// behind old, the newest copy. Where the restores of a topic followed each other in the order of offsets, or there was one, that is exactly the new
// offset of the first record that there was at or behind old.
func (m *Map) At(old int64) (int64, Note) {
	i := sort.Search(len(m.runs), func(i int) bool { return m.runs[i].Old+m.runs[i].Len > old })
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
