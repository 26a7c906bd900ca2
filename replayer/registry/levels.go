package registry

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/store"
)

// maxNamed bounds the subjects that a note names.
const maxNamed = 10

// ArchivedLevels returns the newest compatibility levels of the archive; nil: it holds none. Errors: ErrRefused where they cannot be read, the store's.
func ArchivedLevels(ctx context.Context, a *archive.Archive) (*archive.LevelSnapshot, error) {
	s, err := a.Levels(ctx, math.MaxInt64)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case errors.Is(err, archive.ErrForeign):
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return s, err
}

// decideLevel is the rule of a subject's level: one of its own stays.
func decideLevel(subject, archived, own string) job.RegistryLevel {
	l := job.RegistryLevel{Subject: subject, Level: archived}
	switch own {
	case "":
		l.Action = job.LevelSet
	case archived:
		l.Action = job.LevelKept
	default:
		l.Action, l.Own = job.LevelLeft, own
	}
	return l
}

// addLevels adds to a plan what becomes of the compatibility levels of the subjects of wants; with apply it sets them. What is set and then lost with its
// replayer is set already for the next one.
func (r *Restorer) addLevels(ctx context.Context, wants []Want, p *job.RegistryPlan, apply bool) error {
	subjects := subjectsOf(wants)
	note := func(format string, args ...any) { p.Notes = append(p.Notes, fmt.Sprintf(format, args...)) }
	switch {
	case len(subjects) == 0:
		return nil
	case r.Levels == nil:
		note("the archive holds no compatibility levels: the registry's own hold")
		return nil
	}
	all, err := r.Registry.Level(ctx, "")
	if errors.Is(err, schema.ErrNoLevels) {
		note("the registry has no compatibility levels: archived ones are not set")
		return nil
	}
	if err != nil {
		return err
	}
	var unknown []string
	for _, s := range subjects {
		level, known := r.Levels.Subjects[s]
		if !known {
			unknown = append(unknown, s)
		}
		if level == "" {
			continue
		}
		own, err := r.Registry.Level(ctx, s)
		if err != nil {
			return err
		}
		l := decideLevel(s, level, own)
		if l.Action == job.LevelLeft {
			note("subject %s has the compatibility level %s at the registry and had %s: it is left as it is", s, own, level)
		}
		if apply && l.Action == job.LevelSet {
			// A subject in READONLY takes none, for example. Records can be read all the same, so this is told, and fails nothing.
			switch err := r.Registry.SetLevel(ctx, s, level); {
			case errors.Is(err, schema.ErrRefused), errors.Is(err, schema.ErrNoLevels):
				l.Action = job.LevelRefused
				note("subject %s has not got the compatibility level %s that it had; set it by hand (PUT /config/%s): %v", s, level, s, err)
			case err != nil:
				return err
			}
		}
		p.Levels = append(p.Levels, l)
	}
	if n := len(unknown); n > 0 {
		named := strings.Join(unknown[:min(n, maxNamed)], ", ")
		if n > maxNamed {
			named += ", …"
		}
		note("compatibility levels of %d subjects are not in the archive, the registry's own hold: %s", n, named)
	}
	if r.Levels.Global != all {
		note("the compatibility level of the registry as a whole is %s and was %s: it is left as it is, and holds for every subject without one of its own", all, r.Levels.Global)
	}
	return nil
}

// subjectsOf are the subjects that the archived schemas had, ascending.
func subjectsOf(wants []Want) []string {
	var out []string
	for _, w := range wants {
		if w.Subject != noSubject(w.Fingerprint) {
			out = append(out, w.Subject)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// verifyLevels looks again at the levels of a restored plan. One that somebody has changed since is theirs, and noted; one that is gone is an error.
func (r *Restorer) verifyLevels(ctx context.Context, p *job.RegistryPlan) (notes []string, err error) {
	for _, l := range p.Levels {
		if l.Action != job.LevelSet && l.Action != job.LevelKept {
			continue
		}
		own, err := r.Registry.Level(ctx, l.Subject)
		switch {
		case errors.Is(err, schema.ErrNoLevels):
			return nil, fmt.Errorf("%w: %w", ErrRefused, err)
		case err != nil:
			return nil, err
		case own == l.Level, own == "" && l.Level == schema.LevelNone: // Apicurio keeps NONE as no level
		case own == "":
			return nil, fmt.Errorf("%w: subject %s no longer has the compatibility level %s, which the job restored; set it (PUT /config/%s) and retry the job", ErrRefused,
				l.Subject, l.Level, l.Subject)
		default:
			notes = append(notes, fmt.Sprintf("subject %s was given the compatibility level %s, and has been changed to %s since", l.Subject, l.Level, own))
		}
	}
	return notes, nil
}
