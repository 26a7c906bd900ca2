package groups

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/store"
)

// ErrRefused: the groups cannot be restored as asked; trying again is of no use before something has been changed.
var ErrRefused = errors.New("the groups cannot be restored")

// Log is one partition of a job, as far as groups are concerned.
type Log struct {
	Source             record.TopicPartition
	TopicID, ClusterID string // of the archived log
	Target             record.TopicPartition
}

// Plan chooses groups from the newest snapshot at or before the time that is asked for. Errors: ErrRefused, and the archive's.
func Plan(ctx context.Context, a *archive.Archive, want *job.Groups, logs []Log) (*job.GroupsPlan, error) {
	until := int64(math.MaxInt64)
	if want.Until != nil {
		until = *want.Until
	}
	snap, err := a.Groups(ctx, until)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, fmt.Errorf("%w: the archive holds no positions of groups of that time (the archiver keeps them where groups or groups.regex is set): %w", ErrRefused, err)
	case err != nil:
		return nil, err
	}
	return choose(snap, want, logs)
}

// choose is Plan without the store.
func choose(snap *archive.GroupSnapshot, want *job.Groups, logs []Log) (*job.GroupsPlan, error) {
	chosen, err := want.Chooses()
	if err != nil {
		return nil, fmt.Errorf("%w: pattern: %w", ErrRefused, err)
	}
	known := logsBySource(logs)
	p := &job.GroupsPlan{Snapshot: snap.Time, Groups: []job.GroupPlan{}}
	var all []string
	taken := map[string]string{}
	for _, g := range snap.Groups {
		all = append(all, g.Group)
		if !chosen(g.Group) {
			continue
		}
		to := g.Group
		if name, ok := want.Mapping[g.Group]; ok {
			to = name
		}
		if other, ok := taken[to]; ok {
			return nil, fmt.Errorf("%w: %s and %s would both be %s; change mapping", ErrRefused, other, g.Group, to)
		}
		taken[to] = g.Group
		n, other := 0, 0
		for _, pos := range g.Positions {
			if l, ok := known[record.TopicPartition{Topic: pos.Topic, Partition: pos.Partition}]; ok && l.of(snap, pos.Topic) {
				n++
				continue
			}
			other++
		}
		if other > 0 {
			p.Notes = append(p.Notes, fmt.Sprintf("group %s: %d positions lie in what this job does not restore", g.Group, other))
		}
		p.Groups = append(p.Groups, job.GroupPlan{Group: g.Group, To: to, Positions: n})
	}
	for _, name := range want.Names {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("%w: group %s has no positions in the snapshot of %d ms; it holds: %s", ErrRefused, name, snap.Time, some(all))
		}
	}
	if len(p.Groups) == 0 {
		return nil, fmt.Errorf("%w: no group of the snapshot of %d ms matches %q; it holds: %s", ErrRefused, snap.Time, want.Pattern, some(all))
	}
	return p, nil
}

func some(names []string) string {
	const most = 20
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

func logsBySource(logs []Log) map[record.TopicPartition]Log {
	out := make(map[record.TopicPartition]Log, len(logs))
	for _, l := range logs {
		out[l.Source] = l
	}
	return out
}

// of reports whether the snapshot's positions of a topic are of this very log: a topic of the same name may be another one.
func (l Log) of(snap *archive.GroupSnapshot, topic string) bool {
	return snap.ClusterID == l.ClusterID && snap.Topics[topic] == l.TopicID
}

// Busy returns the groups of the plan that have members at the target: their positions cannot be set.
func Busy(ctx context.Context, admin *kafka.Admin, p *job.GroupsPlan) error {
	for _, g := range p.Groups {
		n, err := admin.GroupMembers(ctx, g.To)
		if err != nil {
			return err
		}
		if n > 0 {
			return busy(g.To, n)
		}
	}
	return nil
}

func busy(group string, members int) error {
	return fmt.Errorf("%w: group %s has %d members at the target, which would overwrite its positions; stop them until the job is COMPLETED (then retry it), or choose another name by groups.mapping",
		ErrRefused, group, members)
}
