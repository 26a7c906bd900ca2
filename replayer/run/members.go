package run

import (
	"context"
	"encoding/json"
	"slices"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
)

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
func (p *Plan) addMembers(ctx context.Context, arch Source, partial map[string]bool) error {
	values, err := readDecisions(ctx, arch, p.Decisions)
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
	for topic, some := range partial {
		if some {
			delete(sibling, topic)
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
