package schema

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"tapedeck.dev/tapedeck/shared/segment"
)

// Versions returns the schemas of a subject that are not deleted, by version, ascending, each with its references resolved; none where the registry
// knows no such subject. What an id means is asked once (see Find); which ids a subject has is asked each time. Errors: ErrRefused, ErrUnavailable,
// ErrNoSuchID where a version goes while it is asked for.
func (r *Registry) Versions(ctx context.Context, subject string) ([]segment.Schema, error) {
	path := "/subjects/" + url.PathEscape(subject) + "/versions"
	var numbers []int
	var a *answer
	err := r.call(ctx, http.MethodGet, path, nil, &numbers)
	switch {
	case errors.As(err, &a) && a.missing():
		return nil, nil
	case err != nil:
		return nil, r.refused(err, "list the versions of subject %s", subject)
	}
	slices.Sort(numbers)
	out := make([]segment.Schema, 0, len(numbers))
	for _, n := range numbers {
		var w wireSchema
		err := r.call(ctx, http.MethodGet, fmt.Sprintf("%s/%d", path, n), nil, &w)
		if errors.As(err, &a) && a.missing() {
			continue // deleted since it was listed
		}
		if err != nil {
			return nil, r.refused(err, "look for version %d of subject %s", n, subject)
		}
		s, err := r.ByID(ctx, w.ID)
		if err != nil {
			return nil, fmt.Errorf("version %d of subject %s: %w", n, subject, err)
		}
		s.Subject, s.Version = subject, n
		out = append(out, s)
	}
	return out, nil
}
