package archiver

import (
	"context"
	"errors"
	"math"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/service"
	"tapedeck.dev/tapedeck/shared/store"
)

const (
	parallelGroups = 8
	groupBound     = 10 * time.Second // for the positions of one group
)

func groupKeys() []service.Key {
	return []service.Key{
		{Name: "groups", Kind: service.List, Doc: "consumer groups, by name, whose positions in archived topics are kept in the archive", Example: "billing, fraud"},
		{Name: "groups.regex", Check: checkRegex, Doc: "consumer groups whose positions are kept, by full name (RE2); never the archiver's own group"},
		{Name: "groups.exclude", Check: checkRegex, Doc: "of the groups that groups.regex finds, leave out those whose full name matches (RE2)"},
		{Name: "groups.interval.ms", Kind: service.Int, Default: "60000", Check: atLeast(1000),
			Doc: "how often positions of groups are read, and kept where they have changed, in ms, ≥ 1000"},
	}
}

// GroupSelection says which consumer groups are archived, and how often.
type GroupSelection struct {
	Names   []string
	Pattern *regexp.Regexp // of the full name; nil: none
	Exclude *regexp.Regexp
	Every   time.Duration
}

func readGroups(c *service.Config) (GroupSelection, error) {
	s := GroupSelection{Names: c.List("groups"), Pattern: fullMatch(c.String("groups.regex")), Exclude: fullMatch(c.String("groups.exclude")),
		Every: time.Duration(c.Int("groups.interval.ms")) * time.Millisecond}
	if s.Exclude != nil && s.Pattern == nil {
		return s, errors.New("groups.exclude has no meaning without groups.regex")
	}
	return s, nil
}

// Any reports whether any group may be archived.
func (s GroupSelection) Any() bool { return len(s.Names) > 0 || s.Pattern != nil }

// Matches reports whether a group is archived.
func (s GroupSelection) Matches(group string) bool {
	return slices.Contains(s.Names, group) ||
		s.Pattern != nil && s.Pattern.MatchString(group) && (s.Exclude == nil || !s.Exclude.MatchString(group))
}

// groupKeeper keeps the positions of consumer groups in the archive, as snapshots of all of them. One of the archivers does so: the one that owns
// partition 0 of the first archived topic by name. Where a moment has none, a snapshot comes later; where it has two, there are two right ones.
type groupKeeper struct {
	admin     *kafka.Admin
	arc       *archive.Archive
	clusterID string
	own       string // the archiver's group
	sel       GroupSelection
	tick      time.Duration // of looking whether it is time
	owned     *atomic.Pointer[[]kafka.TP]
	log       *zap.Logger
	m         *metrics
	topics    atomic.Pointer[map[string]string] // archived ones: id by name

	last  *archive.GroupSnapshot // in the archive, as far as known; nil: not looked yet
	next  time.Time
	taken bool // by this process
}

// see takes what the watcher found.
func (k *groupKeeper) see(all map[string]kafka.Topic, selected []string) {
	if k == nil {
		return
	}
	ids := make(map[string]string, len(selected))
	for _, name := range selected {
		ids[name] = all[name].ID
	}
	k.topics.Store(&ids)
}

func (k *groupKeeper) run(ctx context.Context) {
	if !k.sel.Any() {
		return
	}
	for pause(ctx, k.tick) == nil {
		k.look(ctx, time.Now())
	}
}

// finish takes the snapshot of a run that ended before its first.
func (k *groupKeeper) finish(ctx context.Context) {
	if k.sel.Any() && !k.taken {
		k.next = time.Time{}
		k.look(ctx, time.Now())
	}
}

// elected reports whether this process is the one that keeps groups.
func (k *groupKeeper) elected(topics map[string]string) bool {
	owned := k.owned.Load()
	if owned == nil || len(topics) == 0 {
		return false
	}
	first := ""
	for name := range topics {
		if first == "" || name < first {
			first = name
		}
	}
	return slices.Contains(*owned, kafka.TP{Topic: first, Partition: 0})
}

// leads is elected as of now.
func (k *groupKeeper) leads() bool {
	topics := k.topics.Load()
	return topics != nil && k.elected(*topics)
}

func (k *groupKeeper) look(ctx context.Context, now time.Time) {
	topics := k.topics.Load()
	if topics == nil || !k.elected(*topics) {
		k.last = nil // another may write meanwhile
		return
	}
	if now.Before(k.next) {
		return
	}
	k.next = now.Add(k.sel.Every)
	if err := k.take(ctx, *topics); err != nil && ctx.Err() == nil {
		k.m.groupSnapshots.WithLabelValues("error").Inc()
		k.log.Warn("keep the positions of consumer groups; trying again (the archiver needs Describe on groups and topics)", zap.Error(err))
	}
}

func (k *groupKeeper) take(ctx context.Context, topics map[string]string) error {
	if k.last == nil {
		last, err := k.arc.Groups(ctx, math.MaxInt64)
		switch {
		case errors.Is(err, store.ErrNotFound):
			last = &archive.GroupSnapshot{}
		case err != nil:
			return err
		}
		k.last = last
	}
	s, err := k.read(ctx, topics)
	if err != nil {
		return err
	}
	k.taken = true
	if s.Same(k.last) || len(s.Groups) == 0 && len(k.last.Groups) == 0 {
		k.m.groupSnapshots.WithLabelValues("unchanged").Inc()
		return nil
	}
	// Names must rise also where the clock was set back.
	s.Time = max(time.Now().UnixMilli(), k.last.Time+1)
	if err := k.arc.KeepGroups(ctx, s); err != nil {
		return err
	}
	k.last = s
	k.m.groupSnapshots.WithLabelValues("kept").Inc()
	k.log.Debug("kept the positions of consumer groups", zap.Int("groups", len(s.Groups)))
	return nil
}

// read reads the positions of all groups that match. A group that cannot be read keeps what it had: a restore that misses a group is worse than one with
// older positions of it.
func (k *groupKeeper) read(ctx context.Context, topics map[string]string) (*archive.GroupSnapshot, error) {
	names, err := k.admin.Groups(ctx)
	if err != nil {
		return nil, err
	}
	s := &archive.GroupSnapshot{ClusterID: k.clusterID, Topics: map[string]string{}, Groups: []archive.GroupPositions{}}
	var mu sync.Mutex
	var failed []string
	var g errgroup.Group
	g.SetLimit(parallelGroups)
	for _, name := range names {
		if name == k.own || !k.sel.Matches(name) {
			continue
		}
		g.Go(func() error {
			bound, cancel := context.WithTimeout(ctx, groupBound)
			defer cancel()
			offsets, err := k.admin.GroupOffsets(bound, name)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, name)
				if len(failed) == 1 && ctx.Err() == nil {
					k.log.Warn("read the positions of a consumer group; what was kept of it stays", zap.String("group", name), zap.Error(err))
				}
				if i := slices.IndexFunc(k.last.Groups, func(g archive.GroupPositions) bool { return g.Group == name }); i >= 0 {
					s.Groups = append(s.Groups, k.last.Groups[i])
				}
				return nil
			}
			p := positions(name, offsets, topics)
			if len(p.Positions) > 0 {
				s.Groups = append(s.Groups, p)
			}
			return nil
		})
	}
	_ = g.Wait() // none returns an error
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	k.m.groupsUnread.Add(float64(len(failed)))
	for _, p := range s.Groups {
		for _, q := range p.Positions {
			if id, ok := topics[q.Topic]; ok {
				s.Topics[q.Topic] = id
			} else {
				s.Topics[q.Topic] = k.last.Topics[q.Topic]
			}
		}
	}
	s.Sort()
	return s, nil
}

func positions(group string, offsets map[kafka.TP]kafka.CommitOffset, topics map[string]string) archive.GroupPositions {
	p := archive.GroupPositions{Group: group, Positions: []archive.GroupPosition{}}
	for tp, o := range offsets {
		if _, archived := topics[tp.Topic]; archived {
			p.Positions = append(p.Positions, archive.GroupPosition{Topic: tp.Topic, Partition: tp.Partition, Offset: o.Offset, LeaderEpoch: o.LeaderEpoch, Metadata: o.Metadata})
		}
	}
	return p
}
