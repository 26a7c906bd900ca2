// Package offsetmap says where archived records lie in a topic that they were restored into. Offsets are not kept by a restore: transaction markers
// take up offsets of the target, and compaction and markers left gaps in the source.
package offsetmap

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sort"

	"tapedeck.dev/tapedeck/shared/record"
)

// Run maps Len consecutive offsets that all hold a record: Old+i became New+i, for 0 ≤ i < Len. In JSON it is [old, new, len].
type Run struct{ Old, New, Len int64 }

// MarshalJSON writes [old, new, len].
func (r Run) MarshalJSON() ([]byte, error) { return json.Marshal([3]int64{r.Old, r.New, r.Len}) }

// UnmarshalJSON reads [old, new, len].
func (r *Run) UnmarshalJSON(data []byte) error {
	var a []int64
	if err := json.Unmarshal(data, &a); err != nil {
		return fmt.Errorf("run %.60s: %w", data, err)
	}
	if len(a) != 3 || a[0] < 0 || a[1] < 0 || a[2] < 1 {
		return fmt.Errorf("run %.60s: want [old ≥ 0, new ≥ 0, length ≥ 1]", data)
	}
	*r = Run{a[0], a[1], a[2]}
	return nil
}

// Append adds a run to a list in ascending order, joining it with the last where they are contiguous on both sides.
func Append(runs []Run, r Run) []Run {
	if n := len(runs); n > 0 {
		last := &runs[n-1]
		if last.Old+last.Len == r.Old && last.New+last.Len == r.New {
			last.Len += r.Len
			return runs
		}
	}
	return append(runs, r)
}

// Entry is what one job restored of one partition, as far as it is committed.
type Entry struct {
	Job        string                // its name
	JobID      string                // its id: a name may be used again
	Source     record.TopicPartition // in Kafka, without an incarnation
	SourceID   string                // topic id of the archived log
	SourceFrom string                // cluster id of the archived log
	Target     record.TopicPartition
	TargetID   string // topic id at the target
	Next       int64  // of the source: what the job was to restore below this has been restored
	Runs       []Run  // ascending on both sides
}

// Map translates offsets of one archived partition into those of the partition that it was restored into.
type Map struct {
	runs []Run // by Old, disjoint
	end  int64 // −1: no record
}

// Of makes the map of one archived log (sourceID, source) into the topic targetID, over everything that jobs restored: several incremental
// restores of one topic are one map. target is where the records went; an archived partition goes to one partition, so another is an error.
func Of(entries []Entry, sourceID string, source record.TopicPartition, targetID string) (m *Map, target record.TopicPartition, err error) {
	var runs []Run
	found := false
	for _, e := range entries {
		if e.SourceID != sourceID || e.Source != source || e.TargetID != targetID {
			continue
		}
		if found && e.Target != target {
			return nil, target, fmt.Errorf("%s was restored into %s by one job, into %s by another (%s): which offsets a group should have cannot be said",
				source, target, e.Target, e.Job)
		}
		found, target = true, e.Target
		runs = append(runs, e.Runs...)
	}
	return New(runs), target, nil
}

// New makes a map of runs in any order. Where several map the same old offset (a range that was restored twice), the highest new offset holds.
func New(runs []Run) *Map {
	m := &Map{end: -1}
	for _, r := range runs {
		m.end = max(m.end, r.New+r.Len)
	}
	m.runs = slices.Clone(runs)
	slices.SortFunc(m.runs, func(a, b Run) int {
		return cmp.Or(cmp.Compare(a.Old, b.Old), cmp.Compare(a.New, b.New))
	})
	for i := 1; i < len(m.runs); i++ {
		if m.runs[i-1].Old+m.runs[i-1].Len > m.runs[i].Old {
			m.runs = overlay(m.runs)
			break
		}
	}
	return m
}

// overlay resolves overlaps: the pieces between all borders, each with the run of the highest new offset that covers it.
func overlay(runs []Run) []Run {
	var borders []int64
	for _, r := range runs {
		borders = append(borders, r.Old, r.Old+r.Len)
	}
	slices.Sort(borders)
	borders = slices.Compact(borders)
	var out []Run
	var open []Run
	next := 0 // of runs, which are sorted by Old
	for i := 0; i+1 < len(borders); i++ {
		from, to := borders[i], borders[i+1]
		for next < len(runs) && runs[next].Old <= from {
			open = append(open, runs[next])
			next++
		}
		open = slices.DeleteFunc(open, func(r Run) bool { return r.Old+r.Len <= from })
		best := int64(-1)
		for _, r := range open {
			best = max(best, r.New+from-r.Old)
		}
		if best >= 0 {
			out = Append(out, Run{Old: from, New: best, Len: to - from})
		}
	}
	return out
}

// Translate returns the position at the target of a reader that stood at old: the offset of the first restored record that is not below old.
// Where no such record was restored, exists is false and at is the offset behind everything that was restored, −1 where nothing was.
func (m *Map) Translate(old int64) (at int64, exists bool) {
	i := sort.Search(len(m.runs), func(i int) bool { return m.runs[i].Old+m.runs[i].Len > old })
	if i == len(m.runs) {
		return m.end, false
	}
	r := m.runs[i]
	return r.New + max(0, old-r.Old), true
}

// Runs returns the map by old offset.
func (m *Map) Runs() []Run { return m.runs }
