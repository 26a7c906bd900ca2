package decision

import (
	"errors"
	"fmt"
	"sort"

	"tapedeck.dev/tapedeck/shared/record"
)

// Place is one offset of one input log.
type Place struct {
	record.TopicPartition
	Offset int64
}

// Log is a whole decision log, in memory. The zero Log is empty.
type Log struct {
	Origin  *Origin
	Floors  []Floor // in log order
	Unknown map[Place]UnknownSchema
}

// Add appends an entry. A second origin is an error, as is anything before the first.
func (l *Log) Add(e Entry) error {
	if o, ok := e.(*Origin); ok {
		if l.Origin != nil {
			return errors.New("the decision log holds a second origin")
		}
		l.Origin = o
		return nil
	}
	if l.Origin == nil {
		return fmt.Errorf("the decision log holds an entry of kind %s before its origin", e.Kind())
	}
	switch e := e.(type) {
	case Floor:
		l.Floors = append(l.Floors, e)
	case UnknownSchema:
		if l.Unknown == nil {
			l.Unknown = map[Place]UnknownSchema{}
		}
		l.Unknown[Place{e.TopicPartition, e.Offset}] = e
	}
	return nil
}

// ParseLog reads the values of a decision log in offset order.
func ParseLog(values [][]byte) (*Log, error) {
	l := &Log{}
	for i, v := range values {
		e, err := Parse(v)
		if err == nil {
			err = l.Add(e)
		}
		if err != nil {
			return nil, fmt.Errorf("decision %d: %w", i, err)
		}
	}
	return l, nil
}

// Members returns the offset at which each partition of the pipeline begins: the origin's, and those that floors added.
func (l *Log) Members() map[record.TopicPartition]int64 {
	m := map[record.TopicPartition]int64{}
	if l.Origin != nil {
		for name, t := range l.Origin.Topics {
			for p, off := range t.Start {
				m[record.TopicPartition{Topic: name, Partition: p}] = off
			}
		}
	}
	for _, f := range l.Floors {
		if _, ok := m[f.TopicPartition]; !ok {
			m[f.TopicPartition] = f.Offset
		}
	}
	return m
}

// IsUnknown reports whether the record at this place is decided to have no schema.
func (l *Log) IsUnknown(tp record.TopicPartition, offset int64) bool {
	_, ok := l.Unknown[Place{tp, offset}]
	return ok
}

// MissingFrom returns an entry of l that counts for a replay of these ranges (exclusive ends per partition) and that have
// lacks; nil where there is none. A floor counts at the end itself, because it is applied when the partition has been read to
// its offset. A floor of a partition outside the ranges counts too: its partition would hold results back.
//
// hold: the replay ends there and closes nothing by itself. Then a floor at the end of a partition that have knows only says how far results go,
// and none of its records counts from it: without it the replay gives fewer of the same results. A partition that stays idle gets such floors all
// the time, so that an archive that is a second behind would lack one always.
func (l *Log) MissingFrom(have *Log, until map[record.TopicPartition]int64, hold bool) Entry {
	members := have.Members()
	floors := map[Floor]bool{}
	for _, f := range have.Floors {
		floors[f] = true
	}
	for _, f := range l.Floors {
		end, ok := until[f.TopicPartition]
		if _, member := members[f.TopicPartition]; hold && ok && member && f.Offset == end {
			continue
		}
		if (!ok || f.Offset <= end) && !floors[f] {
			return f
		}
	}
	var missing []UnknownSchema
	for at, u := range l.Unknown {
		if end, ok := until[at.TopicPartition]; ok && at.Offset < end && !have.IsUnknown(at.TopicPartition, at.Offset) {
			missing = append(missing, u)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	sort.Slice(missing, func(i, j int) bool {
		a, b := missing[i], missing[j]
		if a.TopicPartition != b.TopicPartition {
			return a.Less(b.TopicPartition)
		}
		return a.Offset < b.Offset
	})
	return missing[0]
}
