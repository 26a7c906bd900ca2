package archiver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/store"
)

// replayTargets holds one object per topic that a replay writes to, named for the topic's id. Such a topic is archived only where it is
// named: a pattern that matched it would archive the archive.
const replayTargets = "_tapedeck/replay-targets/"

// logRangeEvery is how often log ends are asked for.
const logRangeEvery = 5 * time.Second

// topicsSeen is what the watcher found.
type topicsSeen struct {
	selected []string          // sorted
	missing  []string          // named, and not in Kafka; sorted
	ids      map[string]string // of all topics
}

// logRanges are the ranges in Kafka of the partitions that this process owns.
type logRanges map[kafka.TP]kafka.LogRange

// watcher looks for topics, their ids and log ends.
type watcher struct {
	admin     *kafka.Admin
	store     store.Store
	sel       Selection
	every     time.Duration
	log       *zap.Logger
	inbox     *inbox
	owned     *atomic.Pointer[[]kafka.TP]
	answered  func() // called when Kafka has answered
	first     *firstLook
	keeper    *topicKeeper
	groups    *groupKeeper
	target    map[string]bool // topic id → a replay writes to it; for topics that a pattern found
	isolation string
	member    func(context.Context) (is, known bool, err error) // whether the group has this process; nil: it is not asked
	seen      func(member bool)                                 // called with the answer
	told      map[string]bool                                   // of hidden topics, see hidden
}

// alone returns a watcher that may be used beside this one: what it remembers for itself is its own.
func (w *watcher) alone() *watcher {
	c := *w
	c.target = map[string]bool{}
	return &c
}

func (w *watcher) run(ctx context.Context) {
	var ranges time.Time
	for {
		if err := w.topics(ctx); err != nil && ctx.Err() == nil {
			w.log.Warn("look for topics", zap.Error(err))
		}
		if time.Since(ranges) >= logRangeEvery {
			ranges = time.Now()
			if err := w.ranges(ctx); err != nil && ctx.Err() == nil {
				w.log.Debug("look for log ends", zap.Error(err))
			}
			w.membership(ctx)
		}
		if pause(ctx, w.every) != nil {
			return
		}
	}
}

func (w *watcher) topics(ctx context.Context) error {
	seen, _, err := w.look(ctx)
	if err == nil {
		w.inbox.put(seen)
	}
	return err
}

// look finds the topics to archive, among all.
func (w *watcher) look(ctx context.Context) (topicsSeen, map[string]kafka.Topic, error) {
	all, err := w.admin.Topics(ctx)
	if err != nil {
		return topicsSeen{}, nil, err
	}
	w.answered()
	w.first.see(all)
	w.keeper.see(all)
	seen := topicsSeen{selected: []string{}, ids: make(map[string]string, len(all))}
	for name, t := range all {
		seen.ids[name] = t.ID
		ok, err := w.selects(ctx, t)
		if err != nil {
			return topicsSeen{}, nil, err
		}
		if ok {
			seen.selected = append(seen.selected, name)
		}
	}
	for _, name := range w.sel.Names {
		if _, ok := all[name]; !ok {
			seen.missing = append(seen.missing, name)
		}
	}
	w.hidden(ctx, seen.missing)
	slices.Sort(seen.missing)
	slices.Sort(seen.selected)
	w.groups.see(all, seen.selected)
	return seen, all, nil
}

func (w *watcher) selects(ctx context.Context, t kafka.Topic) (bool, error) {
	if slices.Contains(w.sel.Names, t.Name) {
		return true, nil
	}
	if !w.sel.Matches(t) {
		return false, nil
	}
	if is, known := w.target[t.ID]; known {
		return !is, nil
	}
	_, _, err := w.store.GetRange(ctx, replayTargets+t.ID, 0, 1)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return false, fmt.Errorf("ask whether a replay writes to topic %s: %w", t.Name, err)
	}
	w.target[t.ID] = err == nil
	return err != nil, nil
}

// Matches reports whether the patterns select a topic. Internal topics are matched by name only.
func (s Selection) Matches(t kafka.Topic) bool {
	internal := t.Internal || len(t.Name) > 1 && t.Name[:2] == "__"
	return !internal && s.Pattern != nil && s.Pattern.MatchString(t.Name) && (s.Exclude == nil || !s.Exclude.MatchString(t.Name))
}

func (w *watcher) ranges(ctx context.Context) error {
	tps := w.owned.Load()
	if tps == nil || len(*tps) == 0 {
		return nil
	}
	r, err := w.admin.Offsets(ctx, *tps)
	if err != nil {
		return err
	}
	w.inbox.put(logRanges(r))
	// What can be fetched may end below the log's end, at an open transaction.
	stable, err := w.admin.StableOffsets(ctx, *tps, w.isolation)
	if err != nil {
		return err
	}
	w.inbox.put(stableOffsets(stable))
	return nil
}

// membership asks whether the group has this process.
func (w *watcher) membership(ctx context.Context) {
	if w.member == nil {
		return
	}
	is, known, err := w.member(ctx)
	if err != nil && ctx.Err() == nil {
		w.log.Debug("ask the group for its members", zap.Error(err))
	}
	if known && err == nil {
		w.seen(is)
	}
}

// pause waits, or returns the context's error.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
