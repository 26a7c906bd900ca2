package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// Partitions that bring no record take part all the same: a pipeline that merges partitions waits for each of them, so that one
// which brings nothing is something else than one which is not there.

// emptyRange plans a partition without a record in its window, which archive.Plan refuses. The objects that say so are sent like any
// others, so that the target gets to the same position. A window in time has no offsets of its own: it is empty at its beginning.
func emptyRange(ctx context.Context, arch *archive.Archive, r *job.Request, tp record.TopicPartition) (*archive.PartitionPlan, error) {
	info, err := arch.Inspect(ctx, tp)
	if err != nil {
		return nil, err
	}
	t, err := arch.Tail(ctx, tp.Topic, tp.Partition, -1)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, fmt.Errorf("plan %s: %w", tp, archive.ErrNotArchived)
	}
	h := t.Header
	p := &archive.PartitionPlan{TopicPartition: tp, TopicID: h.TopicID, ClusterID: h.ClusterID, Isolation: h.Isolation,
		From: info.Start, Until: info.Next, FromTimestamp: -1, UntilTimestamp: -1}
	from, until := r.EndsOf(tp)
	if from.Kind == job.Offset {
		p.From = min(from.Value, info.Next)
	}
	switch until.Kind {
	case job.Offset:
		p.Until = min(until.Value, info.Next)
	case job.Timestamp:
		p.Until = p.From
	}
	if from.Kind == job.Timestamp || p.Until < p.From {
		p.Until = p.From
	}
	if p.From < p.Until {
		p.Segments, err = segmentsOf(ctx, arch, p)
	}
	return p, err
}

// segmentsOf lists the objects of a range and reads their headers.
func segmentsOf(ctx context.Context, arch *archive.Archive, p *archive.PartitionPlan) ([]archive.PlannedSegment, error) {
	var out []archive.PlannedSegment
	prefix := segment.PartitionPrefix(arch.TopicsDir(), p.Topic, p.Partition)
	for after, more := "", true; more; {
		objs, m, err := arch.Store().List(ctx, prefix, after, 0)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", prefix, err)
		}
		more = m && len(objs) > 0
		for _, o := range objs {
			after = o.Key
			n, err := segment.ParseName(arch.TopicsDir(), o.Key)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", archive.ErrForeign, err)
			}
			if n.Start >= p.Until {
				return out, nil
			}
			h, err := header(ctx, arch, o.Key)
			if err != nil {
				return nil, err
			}
			if h.Next > p.From {
				out = append(out, archive.PlannedSegment{Key: o.Key, Start: h.Start, Next: h.Next, Count: h.Count, Bytes: o.Size})
			}
		}
	}
	return out, nil
}

func header(ctx context.Context, arch *archive.Archive, key string) (*segment.Header, error) {
	for n := int64(segment.HeadBytes); ; {
		head, _, err := arch.Store().GetRange(ctx, key, 0, n)
		if err != nil {
			return nil, fmt.Errorf("read the header of %s: %w", key, err)
		}
		h, _, err := segment.ParseHeader(key, head)
		var more *segment.ErrNeedMore
		if !errors.As(err, &more) || more.Bytes <= n {
			return h, err
		}
		n = more.Bytes
	}
}

// member is what the replayer reads of a decision: which partitions the live run had, and where it began. docs/processor.md describes
// the entries.
type member struct {
	Kind   string `json:"kind"`
	Topics map[string]struct {
		ID    string          `json:"id"`
		Start map[int32]int64 `json:"start"`
	} `json:"topics"` // origin
	record.TopicPartition       // floor
	Offset                int64 `json:"offset"`
}

// addMembers adds an empty range for each partition that the live run read and that has no archive at all, because nothing was ever
// written to it. Only topics that were asked for as a whole are completed.
func (p *Plan) addMembers(ctx context.Context, arch *archive.Archive, r *job.Request) error {
	values, err := readDecisions(ctx, arch.Store(), p.Decisions)
	if err != nil {
		return err
	}
	began := map[record.TopicPartition]int64{}
	for _, v := range values {
		var m member
		if err := json.Unmarshal(v, &m); err != nil {
			return failf("decision log %s holds %.100q: %w", p.Decisions.TopicPartition, v, err)
		}
		for topic, t := range m.Topics {
			for n, at := range t.Start {
				began[record.TopicPartition{Topic: topic, Partition: n}] = at
			}
		}
		if _, known := began[m.TopicPartition]; m.Kind == "floor" && !known {
			began[m.TopicPartition] = m.Offset
		}
	}
	sibling := map[string]*archive.PartitionPlan{}
	for i := range p.Partitions {
		delete(began, p.Partitions[i].TopicPartition)
		sibling[p.Partitions[i].Topic] = &p.Partitions[i]
	}
	for _, t := range r.Topics {
		if len(t.Partitions) > 0 {
			delete(sibling, t.Name)
		}
	}
	var added []archive.PartitionPlan
	for tp, at := range began {
		if s := sibling[tp.Topic]; s != nil {
			added = append(added, archive.PartitionPlan{TopicPartition: tp, TopicID: s.TopicID, ClusterID: s.ClusterID, Isolation: s.Isolation,
				From: at, Until: at, FromTimestamp: -1, UntilTimestamp: -1})
		}
	}
	p.Partitions = append(p.Partitions, added...)
	slices.SortFunc(p.Partitions, func(a, b archive.PartitionPlan) int { return byTP(a.TopicPartition, b.TopicPartition) })
	return nil
}
