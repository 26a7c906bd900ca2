package schema

import (
	"maps"
	"slices"

	"tapedeck.dev/tapedeck/shared/record"
)

// MaxSeen is how many distinct ids a Seen keeps. Real topics have a handful; binary data that looks like the wire format by
// accident has any number, and each would be a question to the registry.
const MaxSeen = 1024

// Seen collects the distinct schema ids in the keys and values of records. The zero value is empty. It is not safe for concurrent use.
type Seen struct {
	ids  map[int]struct{}
	last [2]int // id+1 of the last key and the last value: most records repeat them
	full bool
}

// Add notes the ids of r's key and value, where they have the wire format.
func (s *Seen) Add(r *record.Record) {
	s.add(0, r.Key)
	s.add(1, r.Value)
}

func (s *Seen) add(place int, b []byte) {
	id, _, ok := WireID(b)
	if !ok || s.last[place] == id+1 {
		return
	}
	s.last[place] = id + 1
	if _, ok := s.ids[id]; ok {
		return
	}
	if len(s.ids) >= MaxSeen {
		s.full = true
		return
	}
	if s.ids == nil {
		s.ids = map[int]struct{}{}
	}
	s.ids[id] = struct{}{}
}

// IDs returns the ids, ascending: the first MaxSeen that came.
func (s *Seen) IDs() []int { return slices.Sorted(maps.Keys(s.ids)) }

// Full reports whether there were more than MaxSeen.
func (s *Seen) Full() bool { return s.full }

// Reset empties s.
func (s *Seen) Reset() { *s = Seen{} }
