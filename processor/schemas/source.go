// Package schemas answers the engine's questions for writer schemas from what is already known. It never waits: a schema that is
// not known yet ends the feeding with a MissingError, and whoever feeds looks it up, with a context and a back-off of its own.
package schemas

import (
	"context"
	"fmt"
	"maps"

	"tapedeck.dev/tapedeck/processor/engine"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// Lookup asks the registry: schema.Registry.ByID.
type Lookup func(ctx context.Context, id int) (segment.Schema, error)

// MissingError asks for a schema. It wraps engine.ErrNotReady.
type MissingError struct {
	record.TopicPartition
	Offset int64
	ID     int
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("schema id %d of %s@%d is not known yet", e.ID, e.TopicPartition, e.Offset)
}

// Unwrap makes errors.Is(err, engine.ErrNotReady) hold.
func (e *MissingError) Unwrap() error { return engine.ErrNotReady }

type place struct {
	tp     record.TopicPartition
	offset int64
}

// Source implements engine.Schemas. Not safe for concurrent use, like the engine.
type Source struct {
	unknown  map[place]bool
	segment  map[record.TopicPartition]map[int]segment.Schema
	registry map[int]segment.Schema
}

// New returns a Source that knows nothing.
func New() *Source {
	return &Source{map[place]bool{}, map[record.TopicPartition]map[int]segment.Schema{}, map[int]segment.Schema{}}
}

// Decide makes the record at this offset one of an unknown schema. The decision holds whatever a segment or the registry says
// today: the live run acted on it.
func (s *Source) Decide(tp record.TopicPartition, offset int64) { s.unknown[place{tp, offset}] = true }

// Know adds what the registry said. Views that were taken before do not know it.
func (s *Source) Know(id int, w segment.Schema) {
	more := maps.Clone(s.registry)
	more[id] = w
	s.registry = more
}

// Segment sets the schemas embedded in the segment that tp reads now; they go before the registry's, because a registry
// may have been rebuilt with other ids since.
func (s *Source) Segment(tp record.TopicPartition, embedded []segment.Schema) {
	m := make(map[int]segment.Schema, len(embedded))
	for _, w := range embedded {
		if w.ID >= 0 {
			m[w.ID] = w
		}
	}
	s.segment[tp] = m
}

// Writer implements engine.Schemas.
func (s *Source) Writer(tp record.TopicPartition, offset int64, id int) (segment.Schema, bool, error) {
	return s.View(tp).Writer(tp, offset, id)
}

// View is what a Source knows of one partition's schemas at one moment. It may be used beside the Source, whatever becomes of that, except
// for Decide.
type View struct {
	unknown  map[place]bool
	segment  map[int]segment.Schema
	registry map[int]segment.Schema
}

// View returns what is known now.
func (s *Source) View(tp record.TopicPartition) View {
	return View{s.unknown, s.segment[tp], s.registry}
}

// Writer implements engine.Schemas.
func (v View) Writer(tp record.TopicPartition, offset int64, id int) (segment.Schema, bool, error) {
	if len(v.unknown) > 0 && v.unknown[place{tp, offset}] {
		return segment.Schema{}, false, nil
	}
	if w, ok := v.segment[id]; ok {
		return w, true, nil
	}
	if w, ok := v.registry[id]; ok {
		return w, true, nil
	}
	return segment.Schema{}, false, &MissingError{tp, offset, id}
}
