package run

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// choice is what a request's topics and exclude come to.
type choice struct {
	tps []record.TopicPartition // chains, by name and partition
	// partial: topics in Kafka of which not every partition was asked for.
	partial map[string]bool
}

// choose finds the partitions of a request. inputs are taken where it names no topics.
func choose(ctx context.Context, arch Source, r *job.Request, inputs []string) (*choice, error) {
	topics := slices.Clone(r.Topics)
	if len(topics) == 0 {
		for _, name := range inputs {
			topics = append(topics, job.Topic{Name: name})
		}
	}
	if len(topics) == 0 {
		return nil, failf("the request names no topics, and the target's pipeline names no inputs")
	}
	named, patterns := split(topics)
	if len(patterns) > 0 {
		have, err := arch.List(ctx)
		if err != nil {
			return nil, wrapDefinite(err)
		}
		more, err := matching(patterns, named, have, arch.Where())
		if err != nil {
			return nil, err
		}
		named = append(named, more...)
	}
	return chooseOf(ctx, arch, r, named)
}

// chooseOf finds the partitions of topics that are given by name, without what is excluded.
func chooseOf(ctx context.Context, arch Source, r *job.Request, named []job.Topic) (*choice, error) {
	c := &choice{partial: map[string]bool{}}
	out := newExclusion(r.Exclude)
	logs := map[string]string{} // topic in Kafka → as it was asked for
	for _, t := range named {
		if base, _ := segment.SplitTopic(t.Name); out.whole(base) {
			continue // which of its logs, if there are several, need not be said
		}
		chain, err := chainOf(ctx, arch, t.Name)
		if err != nil {
			return nil, err
		}
		base, _ := segment.SplitTopic(chain)
		if other, twice := logs[base]; twice {
			return nil, failf("topics: %s and %s are two logs of one topic, and one replay takes one of them", other, t.Name)
		}
		logs[base] = t.Name
		have, err := arch.List(ctx, chain)
		if err != nil {
			return nil, wrapDefinite(err)
		}
		if len(have) == 0 {
			return nil, missingTopic(ctx, arch, chain)
		}
		c.partial[base] = len(t.Partitions) > 0
		if len(t.Partitions) > 0 {
			all := have
			have = nil
			for _, n := range t.Partitions {
				tp := record.TopicPartition{Topic: chain, Partition: n}
				if !slices.Contains(all, tp) {
					return nil, failf("the archive holds no partition %d of topic %s (it holds %d partitions of it)", n, chain, len(all))
				}
				have = append(have, tp)
			}
		}
		for _, tp := range have {
			if out.drops(inKafka(tp)) {
				c.partial[base] = true
				continue
			}
			c.tps = append(c.tps, tp)
		}
	}
	if err := out.unused(); err != nil {
		return nil, err
	}
	if len(c.tps) == 0 {
		return nil, failf("exclude leaves nothing of what topics select")
	}
	slices.SortFunc(c.tps, byTP)
	for key := range r.Bounds {
		if !slices.ContainsFunc(c.tps, func(tp record.TopicPartition) bool {
			return fmt.Sprintf("%s/%d", inKafka(tp).Topic, tp.Partition) == key
		}) {
			return nil, failf("bounds name %s, which is not among the partitions to replay", key)
		}
	}
	return c, nil
}

func split(topics []job.Topic) (named, patterns []job.Topic) {
	for _, t := range topics {
		if t.Pattern == "" {
			named = append(named, t)
		} else {
			patterns = append(patterns, t)
		}
	}
	return named, patterns
}

// matching returns the topics that patterns choose of the chains that there are, without those that are given by name: a name says more (which partitions,
// which log), and so goes before. A pattern is held against the topic's name in Kafka.
func matching(patterns, named []job.Topic, have []record.TopicPartition, where string) ([]job.Topic, error) {
	byName := map[string]bool{}
	for _, t := range named {
		base, _ := segment.SplitTopic(t.Name)
		byName[base] = true
	}
	parts := map[string][]int32{} // topic in Kafka → partitions, of whichever of its logs
	var names []string
	for _, tp := range have {
		tp := inKafka(tp)
		if _, ok := parts[tp.Topic]; !ok {
			names = append(names, tp.Topic)
		}
		if !slices.Contains(parts[tp.Topic], tp.Partition) {
			parts[tp.Topic] = append(parts[tp.Topic], tp.Partition)
		}
	}
	slices.Sort(names)
	type picked struct {
		all   bool
		parts []int32
	}
	found := map[string]*picked{}
	for _, t := range patterns {
		re, err := t.Regexp()
		if err != nil {
			return nil, failf("topics: %s: %w", t, err)
		}
		matched, any := false, false
		for _, name := range names {
			if !re.MatchString(name) {
				continue
			}
			matched = true
			p := found[name]
			if p == nil {
				p = &picked{}
			}
			if len(t.Partitions) == 0 {
				p.all = true
			}
			for _, n := range t.Partitions {
				if slices.Contains(parts[name], n) && !slices.Contains(p.parts, n) {
					p.parts = append(p.parts, n)
				}
			}
			if p.all || len(p.parts) > 0 {
				any, found[name] = true, p
			}
		}
		switch {
		case len(names) == 0:
			return nil, failf("topics: %s matches nothing: %s holds no topics at all; check the store's address, its prefix and topics.dir", t, where)
		case !matched:
			return nil, failf("topics: %s matches none of the topics of the archive (the whole name must match): %s holds %s", t, where, shortList(names))
		case !any:
			return nil, failf("topics: none of the topics that %s matches has a partition of %v", t, t.Partitions)
		}
	}
	var out []job.Topic
	for _, name := range names {
		if p := found[name]; p != nil && !byName[name] {
			t := job.Topic{Name: name}
			if !p.all {
				t.Partitions = p.parts
				slices.Sort(t.Partitions)
			}
			out = append(out, t)
		}
	}
	return out, nil
}

// shortList names at most ten.
func shortList(names []string) string {
	more := ""
	if len(names) > 10 {
		more = fmt.Sprintf(" and %d more", len(names)-10)
		names = names[:10]
	}
	return strings.Join(names, ", ") + more
}

// exclusion is a request's exclude, and what has come of it.
type exclusion struct {
	topics []job.Topic
	used   []bool
}

func newExclusion(topics []job.Topic) *exclusion {
	return &exclusion{topics: topics, used: make([]bool, len(topics))}
}

func (x *exclusion) matches(i int, topic string) bool {
	t := x.topics[i]
	if t.Pattern == "" {
		return t.Name == topic
	}
	re, err := t.Regexp() // checked with the request
	return err == nil && re.MatchString(topic)
}

// whole reports whether all of a topic is excluded.
func (x *exclusion) whole(topic string) bool {
	out := false
	for i, t := range x.topics {
		if len(t.Partitions) == 0 && x.matches(i, topic) {
			x.used[i], out = true, true
		}
	}
	return out
}

// drops reports whether a partition is excluded.
func (x *exclusion) drops(tp record.TopicPartition) bool {
	out := false
	for i, t := range x.topics {
		if (len(t.Partitions) == 0 || slices.Contains(t.Partitions, tp.Partition)) && x.matches(i, tp.Topic) {
			x.used[i], out = true, true
		}
	}
	return out
}

// unused refuses an exclusion that has excluded nothing: a slip in its name would replay what somebody wanted to be left out.
func (x *exclusion) unused() error {
	for i, t := range x.topics {
		if !x.used[i] {
			return failf("exclude: %s takes nothing out of what topics select", t)
		}
	}
	return nil
}
