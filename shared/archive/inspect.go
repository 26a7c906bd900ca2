package archive

import (
	"context"
	"fmt"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// PartitionInfo is one row of inspect.
type PartitionInfo struct {
	record.TopicPartition
	TopicID      string         `json:"topicId"`
	Incarnation  int            `json:"incarnation"` // 1, or n of the log archived as <topic>~<n>
	Start        int64          `json:"start"`       // after a leading skip
	Next         int64          `json:"next"`
	Records      int64          `json:"records"`
	Segments     int64          `json:"segments"`
	Bytes        int64          `json:"bytes"`
	MinTimestamp int64          `json:"minTimestamp"` // ms; 0 where there is no record
	MaxTimestamp int64          `json:"maxTimestamp"` // ms; 0 where there is no record
	Gaps         []segment.Skip `json:"gaps"`         // all but no-data
}

// Inspect summarises a partition from its index objects and headers; no record is read. Errors: ErrNotArchived, ErrBroken, ErrForeign,
// and the store's.
func (a *Archive) Inspect(ctx context.Context, tp record.TopicPartition) (*PartitionInfo, error) {
	info, err := a.inspect(ctx, tp)
	if err != nil {
		return nil, fmt.Errorf("inspect %s: %w", tp, err)
	}
	return info, nil
}

func (a *Archive) inspect(ctx context.Context, tp record.TopicPartition) (*PartitionInfo, error) {
	m, err := a.chainMap(ctx, tp)
	if err != nil {
		return nil, err
	}
	if err := a.load(ctx, m, m.overlapping(0, m.next())); err != nil {
		return nil, err
	}
	all := &window{until: m.next(), fromTS: noMin, untilTS: noMax}
	segs := all.plan(m, 0, m.next(), a.key).Segments
	skips, err := a.skips(ctx, tp, segs, false)
	if err != nil {
		return nil, err
	}
	info := &PartitionInfo{TopicPartition: tp, TopicID: m.tail.Header.TopicID, Next: m.next(), Segments: int64(len(segs)),
		Gaps: gapsOf(skips, 0, m.next(), func(c segment.Class) bool { return c != segment.NoData })}
	_, info.Incarnation = segment.SplitTopic(tp.Topic)
	info.Start = leading(0, skips)
	for i := range m.stretches {
		for _, r := range m.stretches[i].rows {
			info.Bytes += r.Bytes
			if r.Count == 0 {
				continue
			}
			if info.Records == 0 {
				info.MinTimestamp, info.MaxTimestamp = r.MinTimestamp, r.MaxTimestamp
			}
			info.Records += r.Count
			info.MinTimestamp = min(info.MinTimestamp, r.MinTimestamp)
			info.MaxTimestamp = max(info.MaxTimestamp, r.MaxTimestamp)
		}
	}
	return info, nil
}

// leading returns the first offset from at on that the beginning of a chain does not skip as lost or not archived.
func leading(at int64, skips []segment.Skip) int64 {
	for _, s := range skips {
		if s.From == at && (s.Class == segment.Lost || s.Class == segment.NotArchived) {
			at = s.To
		}
	}
	return at
}
