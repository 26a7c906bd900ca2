package archive

import (
	"context"
	"fmt"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// Header reads the header of a planned segment: one ranged GET, more only where it is longer than its first page. Errors: store.ErrNotFound and the store's
// others; ErrDamaged.
func (a *Archive) Header(ctx context.Context, s PlannedSegment) (*segment.Header, error) {
	head, size, err := a.st.GetRange(ctx, s.Key, 0, segment.HeadBytes)
	if err != nil {
		return nil, fmt.Errorf("read header of %s: %w", s.Key, err)
	}
	t, err := a.parseHeader(ctx, s.Key, head, size)
	if err != nil {
		return nil, err
	}
	return t.Header, nil
}

// All returns every schema that the archive says the segment h of the chain tp was written with: those in its header, and those that were found for it
// afterwards. Store calls: for the first segment of a partition one LIST and a GET per object.
func (f *SchemaFinder) All(ctx context.Context, tp record.TopicPartition, h *segment.Header) ([]segment.Schema, error) {
	ranges, err := f.rangesOf(ctx, tp)
	if err != nil {
		return nil, fmt.Errorf("find schemas of %s from %d: %w", tp, h.Start, err)
	}
	all := append([]segment.Schema(nil), h.Schemas...)
	known := map[[2]any]bool{}
	for _, s := range all {
		known[[2]any{s.ID, s.GUID}] = true
	}
	for _, r := range ranges {
		if h.Start < r.From || h.Start >= r.Until {
			continue
		}
		for _, s := range r.schemas {
			if k := [2]any{s.ID, s.GUID}; !known[k] {
				known[k] = true
				all = append(all, s)
			}
		}
	}
	return all, nil
}
