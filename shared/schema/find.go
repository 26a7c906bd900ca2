package schema

import (
	"context"
	"errors"
	"fmt"
	"math"

	"tapedeck.dev/tapedeck/shared/segment"
)

// Ref names a writer schema as the wire format does: by the id that a registry gave, or by the GUID that follows from its text.
type Ref struct {
	ID   int    // −1 where there is a GUID
	GUID string // "" where there is an id; 8-4-4-4-12 lower-case hexadecimal digits
}

// ByGUID makes a Ref.
func ByGUID(guid string) Ref { return Ref{ID: -1, GUID: guid} }

func (r Ref) String() string {
	if r.GUID != "" {
		return "schema guid " + r.GUID
	}
	return fmt.Sprintf("schema id %d", r.ID)
}

// RefOf is the Ref that s answers.
func RefOf(s segment.Schema) Ref { return Ref{s.ID, s.GUID} }

// State is what is known about a Ref without asking.
type State int

// States.
const (
	Unknown State = iota // the registry would be asked
	Known                // there is a schema, which may be due to be confirmed
	Missing              // the registry said so, not long ago
)

// ByID is Find of an id.
func (r *Registry) ByID(ctx context.Context, id int) (segment.Schema, error) {
	return r.Find(ctx, Ref{ID: id})
}

// Find returns the schema with its references resolved (Text set in each), type, and, where it was asked for by id, subject and version as
// far as the registry tells (the first of them by name and number). References holds the direct and the indirect ones, each once, in an
// order in which each comes after those that it needs itself.
//
// A schema that is older than Config.Refresh is asked for again. The old one stays where the registry does not answer, or knows no such id
// any more: nobody can have been given the id for another meaning then. It stays with subject and version where only these differ.
//
// Errors: ErrNoSuchID where the registry says so (its error code 40403; a plain 404 may come from a wrong address), ErrUnavailable.
func (r *Registry) Find(ctx context.Context, ref Ref) (segment.Schema, error) {
	if ref.GUID == "" && (ref.ID < 0 || ref.ID > math.MaxInt32) {
		return segment.Schema{}, fmt.Errorf("%s: %w", ref, ErrNoSuchID)
	}
	s, state, ask := r.cache.look(ref)
	switch {
	case !ask && state == Known:
		return s, nil
	case !ask && state == Missing:
		return segment.Schema{}, fmt.Errorf("%s: %w", ref, ErrNoSuchID)
	case !ask:
		return segment.Schema{}, fmt.Errorf("%s: %w at %s: it did not answer a moment ago", ref, ErrUnavailable, r.cfg.URL)
	}
	bound, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	got, err := r.lookup(bound, ref)
	if err != nil && !errors.Is(err, ErrNoSuchID) && errors.Is(ctx.Err(), context.Canceled) {
		r.cache.gaveUp(ref) // says nothing about the registry
	} else {
		got, err = r.cache.answered(ref, got, err)
	}
	switch {
	case err == nil:
		return got, nil
	case state == Known:
		return s, nil
	}
	return segment.Schema{}, fmt.Errorf("%s: %w", ref, err)
}

// State says what is known of ref without asking anybody.
func (r *Registry) State(ref Ref) State { return r.cache.state(ref) }
