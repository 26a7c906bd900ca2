package groups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
)

// Reasons why a position is not set.
const (
	otherLog = "the position is of another log of that name than the restored one"
	notPart  = "this partition is not part of the job"
)

// move is one position to set.
type move struct {
	job.RestoredPosition
	metadata string
}

// moves translates the positions of one group that lie in topics of the job. The metadata goes along; the leader epoch does not: it counts the
// leaders of the old cluster, and would make the new one refuse the position.
func moves(snap *archive.GroupSnapshot, group string, logs []Log, maps map[record.TopicPartition]*Map) []move {
	known := logsBySource(logs)
	topics := map[string]bool{}
	for _, l := range logs {
		topics[l.Source.Topic] = true
	}
	at := slices.IndexFunc(snap.Groups, func(g archive.GroupPositions) bool { return g.Group == group })
	if at < 0 {
		return nil
	}
	var out []move
	for _, p := range snap.Groups[at].Positions {
		if !topics[p.Topic] {
			continue
		}
		m := move{job.RestoredPosition{TopicPartition: record.TopicPartition{Topic: p.Topic, Partition: p.Partition}, Old: p.Offset, New: -1}, p.Metadata}
		l, ok := known[m.TopicPartition]
		switch {
		case !ok:
			m.Note = notPart
		case !l.of(snap, p.Topic):
			m.Note = otherLog
		default:
			var note Note
			m.Target = l.Target
			m.New, note = maps[m.TopicPartition].At(p.Offset)
			m.Note = string(note)
		}
		out = append(out, m)
	}
	return out
}

// settle compares what is to be set with what the group has at the target: it sets what is not there or lower. A later position says that the group has gone
// on there (after this very job, say, which is run to its end a second time), and stays.
func settle(ms []move, there map[kafka.TP]kafka.CommitOffset) (set map[kafka.TP]kafka.CommitOffset) {
	set = map[kafka.TP]kafka.CommitOffset{}
	for i := range ms {
		m := &ms[i]
		if m.New < 0 {
			continue
		}
		cur, ok := there[m.Target]
		switch {
		case ok && cur.Offset > m.New:
			m.Note = fmt.Sprintf("the group is at %d at the target already, later than %d, and stays there", cur.Offset, m.New)
			m.New = cur.Offset
		case ok && cur.Offset == m.New:
		default:
			set[m.Target] = kafka.CommitOffset{Offset: m.New, LeaderEpoch: record.NoEpoch, Metadata: m.metadata}
		}
	}
	return set
}

// Restore commits the translated positions of the plan's groups and reads them back. It may be repeated. between is called before each group and after
// the last; its error ends it. Errors: ErrRefused (a group has members), those of the archive and of Kafka, which may pass.
func Restore(ctx context.Context, a *archive.Archive, admin *kafka.Admin, p *job.GroupsPlan, logs []Log, maps map[record.TopicPartition]*Map,
	between func() error) ([]job.RestoredGroup, error) {
	snap, err := a.Groups(ctx, p.Snapshot)
	if err != nil {
		return nil, err
	}
	if snap.Time != p.Snapshot {
		return nil, fmt.Errorf("%w: the snapshot of %d ms is gone from the archive", ErrRefused, p.Snapshot)
	}
	out := make([]job.RestoredGroup, 0, len(p.Groups))
	for _, g := range p.Groups {
		if err := between(); err != nil {
			return nil, err
		}
		ms := moves(snap, g.Group, logs, maps)
		if err := commit(ctx, admin, g.To, ms); err != nil {
			return nil, err
		}
		r := job.RestoredGroup{Group: g.Group, To: g.To, Positions: make([]job.RestoredPosition, len(ms))}
		for i, m := range ms {
			r.Positions[i] = m.RestoredPosition
		}
		out = append(out, r)
	}
	return out, between()
}

func commit(ctx context.Context, admin *kafka.Admin, group string, ms []move) error {
	there, err := admin.GroupOffsets(ctx, group)
	if err != nil {
		return err
	}
	set := settle(ms, there)
	if len(set) == 0 {
		return nil
	}
	err = admin.SetGroupOffsets(ctx, group, set)
	if errors.Is(err, kafka.ErrGroupBusy) {
		n, _ := admin.GroupMembers(ctx, group) // for the message only
		return errors.Join(busy(group, n), err)
	}
	if err != nil {
		return err
	}
	if there, err = admin.GroupOffsets(ctx, group); err != nil {
		return err
	}
	var wrong []string
	for tp, want := range set {
		if got, ok := there[tp]; !ok || got.Offset < want.Offset { // later: it has begun to read
			wrong = append(wrong, fmt.Sprintf("%s: %d, set to %d", tp, got.Offset, want.Offset))
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return fmt.Errorf("group %s does not have the positions that were set: %s", group, strings.Join(wrong, "; "))
	}
	return nil
}
