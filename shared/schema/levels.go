package schema

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// ErrNoLevels: the registry has no compatibility levels to ask for.
var ErrNoLevels = errors.New("the schema registry has no compatibility levels")

// LevelNone is the compatibility level at which nothing is checked.
const LevelNone = "NONE"

// Level returns a subject's own compatibility level, "" for none (also of a subject that is not there), or, where subject is "", the registry's. Apicurio
// answers NONE for a subject without a level, and removes the level where NONE is set: its NONE is none. Errors: ErrNoLevels, ErrRefused, ErrUnavailable.
func (r *Registry) Level(ctx context.Context, subject string) (string, error) {
	path, what := "/config", "read the compatibility level"
	if subject != "" {
		path, what = levelPath(subject)+"?defaultToGlobal=false", fmt.Sprintf("%s of subject %s", what, subject)
	}
	var got struct {
		Level string `json:"compatibilityLevel"`
	}
	var a *answer
	switch err := r.call(ctx, http.MethodGet, path, nil, &got); {
	case errors.As(err, &a) && a.noRoute():
		return "", fmt.Errorf("%s: %w: %w", what, ErrNoLevels, err)
	case errors.As(err, &a) && a.missing() && subject != "":
		return "", nil
	case err != nil:
		return "", r.refused(err, "%s", what)
	case subject != "" && got.Level == LevelNone && r.isApicurio():
		return "", nil
	}
	return got.Level, nil
}

// SetLevel gives a subject a compatibility level of its own. It may be repeated. Errors: those of Level.
func (r *Registry) SetLevel(ctx context.Context, subject, level string) error {
	in := struct {
		Level string `json:"compatibility"`
	}{level}
	err := r.call(ctx, http.MethodPut, levelPath(subject), in, nil)
	var a *answer
	if errors.As(err, &a) && a.noRoute() {
		return fmt.Errorf("set the compatibility level of subject %s: %w: %w", subject, ErrNoLevels, err)
	}
	if err != nil {
		return r.refused(err, "set the compatibility level of subject %s to %s", subject, level)
	}
	return nil
}

// HasSubject reports whether the registry has a version of a subject that is not deleted. Errors: ErrRefused, ErrUnavailable.
func (r *Registry) HasSubject(ctx context.Context, subject string) (bool, error) {
	var versions []int
	var a *answer
	err := r.call(ctx, http.MethodGet, "/subjects/"+url.PathEscape(subject)+"/versions", nil, &versions)
	switch {
	case errors.As(err, &a) && a.missing():
		return false, nil
	case err != nil:
		return false, r.refused(err, "look for subject %s", subject)
	}
	return len(versions) > 0, nil
}

func levelPath(subject string) string { return "/config/" + url.PathEscape(subject) }

// isApicurio goes by the path under which Apicurio serves Confluent's API.
func (r *Registry) isApicurio() bool { return strings.Contains(r.cfg.URL, "/apis/ccompat/") }
