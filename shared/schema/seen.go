package schema

import (
	"cmp"
	"slices"

	"tapedeck.dev/tapedeck/shared/record"
)

// MaxSeen is how many distinct schemas a Seen keeps. Real topics have a handful; binary data that looks like the wire format by
// accident has any number, and each would be a question to the registry.
const MaxSeen = 1024

// Seen collects the distinct writer schemas that the keys and values of records name. The zero value is empty. It is not safe for
// concurrent use.
type Seen struct {
	refs map[Ref]struct{}
	last [2]int // id+1 of the last key and the last value: most records repeat them
	full bool
	glue bool
}

// Add notes what r's key and value name: in a header KeyHeader or ValueHeader (the last of its name) that can be read, or else in the prefix. A
// value whose header names its schema has no prefix, so what its first bytes look like is not taken for one. Null names nothing.
func (s *Seen) Add(r *record.Record) {
	s.add(0, r, r.Key, KeyHeader)
	s.add(1, r, r.Value, ValueHeader)
}

func (s *Seen) add(place int, r *record.Record, b []byte, header string) {
	if b == nil {
		return
	}
	if _, ref, ok := headerOf(r, header); ok {
		s.note(ref)
		return
	}
	id, _, ok := WireID(b)
	if !ok {
		if !s.glue {
			_, s.glue = GlueFrame(b)
		}
		return
	}
	if s.last[place] != id+1 {
		s.last[place] = id + 1
		s.note(Ref{ID: id})
	}
}

func (s *Seen) note(ref Ref) {
	if _, ok := s.refs[ref]; ok {
		return
	}
	if len(s.refs) >= MaxSeen {
		s.full = true
		return
	}
	if s.refs == nil {
		s.refs = map[Ref]struct{}{}
	}
	s.refs[ref] = struct{}{}
}

// Refs returns the first MaxSeen that came, ascending: GUIDs, then ids.
func (s *Seen) Refs() []Ref {
	refs := make([]Ref, 0, len(s.refs))
	for ref := range s.refs {
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, CompareRefs)
	return refs
}

// CompareRefs orders by id, then GUID.
func CompareRefs(a, b Ref) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.GUID, b.GUID)) }

// Full reports whether there were more than MaxSeen.
func (s *Seen) Full() bool { return s.full }

// Glue reports whether there was a key or value in AWS Glue's frame.
func (s *Seen) Glue() bool { return s.glue }

// Reset empties s.
func (s *Seen) Reset() { *s = Seen{} }
