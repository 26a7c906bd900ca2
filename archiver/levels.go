package archiver

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/store"
)

const parallelLevels = 4

// levelKeeper keeps the registry's compatibility levels in the archive: its own, and those of the subjects that archived schemas name, whichever archiver
// has archived them. One of the archivers does so, the one that keeps groups; where two believe that they do, there are two right snapshots.
type levelKeeper struct {
	registry *schema.Registry // nil: none
	arc      *archive.Archive
	leads    func() bool // this process is the one
	every    time.Duration
	tick     time.Duration // of looking whether it is time
	log      *zap.Logger
	m        *metrics

	subjects, texts map[string]bool // in the archive, and the objects that tell them
	next            time.Time
	taken           bool // by this process
	told            string
}

func (k *levelKeeper) run(ctx context.Context) {
	if k.registry == nil {
		return
	}
	for pause(ctx, k.tick) == nil {
		if now := time.Now(); !now.Before(k.next) {
			k.look(ctx, now, false)
		}
	}
}

// finish keeps the levels of subjects that have come since the last look: a short run has had none.
func (k *levelKeeper) finish(ctx context.Context) {
	if k.registry != nil {
		k.look(ctx, time.Now(), k.taken)
	}
}

// look keeps what has changed; with onlyNew, only where there are schemas that it has not seen.
func (k *levelKeeper) look(ctx context.Context, now time.Time, onlyNew bool) {
	if !k.leads() {
		return
	}
	k.next = now.Add(k.every)
	result, err := k.take(ctx, onlyNew)
	if ctx.Err() != nil {
		return
	}
	if result != "" {
		k.m.levelSnapshots.WithLabelValues(result).Inc()
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != k.told { // the same each time would fill the log
		k.log.Warn("keep the compatibility levels of the schema registry; trying again", zap.Error(err))
	}
	k.told = text
}

// take returns what became of a look: kept, unchanged or error; "" where there was nothing to look for.
func (k *levelKeeper) take(ctx context.Context, onlyNew bool) (string, error) {
	if k.subjects == nil {
		k.subjects, k.texts = map[string]bool{}, map[string]bool{}
	}
	seen := len(k.texts)
	if err := k.arc.Subjects(ctx, k.subjects, k.texts); err != nil {
		return "error", err
	}
	if len(k.subjects) == 0 || onlyNew && len(k.texts) == seen {
		return "", nil
	}
	// Read each time: one that led before, and was slow, may have written what it had asked for before we did.
	last, err := k.arc.Levels(ctx, math.MaxInt64)
	if errors.Is(err, store.ErrNotFound) {
		last, err = &archive.LevelSnapshot{}, nil
	}
	if err != nil {
		return "error", err
	}
	s, err := k.ask(ctx, last)
	if err != nil {
		return "error", err
	}
	k.taken = true
	if s.Same(last) {
		return "unchanged", nil
	}
	// Names must rise also where the clock was set back.
	s.Time = max(time.Now().UnixMilli(), last.Time+1)
	if err := k.arc.KeepLevels(ctx, s); err != nil {
		return "error", err
	}
	k.log.Debug("kept the compatibility levels of the schema registry", zap.Int("subjects", len(s.Subjects)))
	return "kept", nil
}

// ask reads all levels, or none.
func (k *levelKeeper) ask(ctx context.Context, last *archive.LevelSnapshot) (*archive.LevelSnapshot, error) {
	s := &archive.LevelSnapshot{Subjects: map[string]string{}}
	var err error
	if s.Global, err = k.registry.Level(ctx, ""); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelLevels)
	for _, subject := range slices.Sorted(maps.Keys(k.subjects)) {
		g.Go(func() error {
			if gctx.Err() != nil {
				return gctx.Err() // the first error is the one that is told
			}
			level, err := k.of(gctx, subject, last.Subjects[subject])
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			s.Subjects[subject] = level
			return nil
		})
	}
	return s, g.Wait()
}

// of asks for the level of a subject. One that the registry no longer has keeps what was kept of it: a registry that was rebuilt empty must not take away
// what it is to be restored from.
func (k *levelKeeper) of(ctx context.Context, subject, had string) (string, error) {
	level, err := k.registry.Level(ctx, subject)
	if err != nil || level != "" || had == "" {
		return level, err
	}
	there, err := k.registry.HasSubject(ctx, subject)
	if err != nil || there {
		return "", err
	}
	return had, nil
}
