package archive

import (
	"context"
	"fmt"
	"maps"

	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

const levelsDir = dir + "compatibility/"

const levelsFormat = 1

// LevelSnapshot is which compatibility levels the schema registry had, at the latest at Time.
type LevelSnapshot struct {
	Version  int               `json:"version"`  // of this object's format; set by KeepLevels
	Time     int64             `json:"time"`     // ms since the epoch, by the writer's clock, when the last level had been read
	Global   string            `json:"global"`   // the registry's own
	Subjects map[string]string `json:"subjects"` // of each subject that an archived schema names; "": none of its own
}

// Same reports whether both hold the same levels, whenever they were read.
func (s *LevelSnapshot) Same(o *LevelSnapshot) bool {
	return s.Global == o.Global && maps.Equal(s.Subjects, o.Subjects)
}

// FormatLevelsName is the key of the snapshot of a time in ms: _tapedeck/compatibility/<2^63−1−ms>+<ms>.json.gz, both of 20 digits.
func FormatLevelsName(ms int64) string { return formatSnapshotName(levelsDir, ms) }

// ParseLevelsName is the reverse of FormatLevelsName.
func ParseLevelsName(key string) (ms int64, err error) { return parseSnapshotName(levelsDir, key) }

// KeepLevels writes a snapshot: one create. Errors: store.ErrExists where there is one of the same millisecond, and the store's others.
func (a *Archive) KeepLevels(ctx context.Context, s *LevelSnapshot) error {
	s.Version = levelsFormat
	if err := a.keepSnapshot(ctx, levelsDir, s.Time, s); err != nil {
		return fmt.Errorf("keep compatibility levels: %w", err)
	}
	return nil
}

// Levels returns the newest snapshot that was complete at or before the time until, in ms: one LIST of one key and one GET. Errors:
// store.ErrNotFound where there is none so old, ErrForeign, the store's.
func (a *Archive) Levels(ctx context.Context, until int64) (*LevelSnapshot, error) {
	s := &LevelSnapshot{}
	err := a.snapshot(ctx, levelsDir, until, s, func() (int, int64) { return s.Version, s.Time }, levelsFormat)
	if err != nil {
		return nil, fmt.Errorf("find compatibility levels at or before %d ms: %w", until, err)
	}
	return s, nil
}

// Subjects adds to subjects those that the texts under _tapedeck/schemas/ name: where each is kept, and where what it refers to is. read holds the
// objects that were looked at before, which are not read again. Store calls: 2 LISTs (and one per 1,000 texts), one GET per text that is new. Errors:
// ErrForeign, the store's.
func (a *Archive) Subjects(ctx context.Context, subjects, read map[string]bool) error {
	for _, kind := range []string{schemasDir + "ids/", schemasDir + "guids/"} {
		err := eachObject(ctx, a.st, kind, func(o store.Object) error {
			if read[o.Key] {
				return nil
			}
			var s segment.Schema
			if err := a.getJSON(ctx, o.Key, &s); err != nil {
				return err
			}
			if s.Subject != "" {
				subjects[s.Subject] = true
			}
			for _, r := range s.References {
				subjects[r.Subject] = true
			}
			read[o.Key] = true
			return nil
		})
		if err != nil {
			return fmt.Errorf("list subjects of schemas: %w", err)
		}
	}
	return nil
}
