package segment

import (
	"fmt"
	"slices"

	"tapedeck.dev/tapedeck/shared/record"
)

// Chain is what a segment inherits from the one before it in its chain.
type Chain struct {
	Ordinal             int64 // of the new segment
	RunningMaxTimestamp int64 // −1 for none
	LastOffset          int64 // −1 for none
	LastEpoch           int32
	LastHash            []byte
	Rows                []Row // the segments since the last index object, in order
}

// First is the Chain of a partition's first segment, which starts at offset 0.
func First() Chain {
	return Chain{RunningMaxTimestamp: -1, LastOffset: -1, LastEpoch: record.NoEpoch}
}

// After returns the Chain for the segment that follows h, whose object has size bytes. The segment with ordinal k carries the
// rows of the ordinals k − k mod IndexEvery … k−1: none where the segment before it wrote an index object, which covers itself.
func After(h *Header, size int64) Chain {
	c := Chain{
		Ordinal:             h.Ordinal + 1,
		RunningMaxTimestamp: h.RunningMaxTimestamp,
		LastOffset:          h.LastOffset,
		LastEpoch:           h.LastEpoch,
		LastHash:            slices.Clone(h.LastHash),
	}
	if c.Ordinal%IndexEvery != 0 {
		c.Rows = append(slices.Clone(h.Rows), h.Row(size))
	}
	return c
}

// Row returns the row that describes h's segment, whose object has size bytes.
func (h *Header) Row(size int64) Row {
	return Row{Start: h.Start, Count: h.Count, Bytes: size, MinTimestamp: h.MinTimestamp, MaxTimestamp: h.MaxTimestamp}
}

// checkRows says whether rows tile the segments of a chain that come before (ordinal, start), since the last index object.
func checkRows(rows []Row, ordinal, start int64) error {
	if want := ordinal % IndexEvery; int64(len(rows)) != want {
		return fmt.Errorf("%d rows, want %d for ordinal %d", len(rows), want, ordinal)
	}
	for i, r := range rows {
		end := start
		if i+1 < len(rows) {
			end = rows[i+1].Start
		}
		switch {
		case r.Start < 0 || r.Start >= end:
			return fmt.Errorf("row %d: starts at %d, but what follows starts at %d", i, r.Start, end)
		case r.Count < 0 || r.Count > end-r.Start:
			return fmt.Errorf("row %d: %d records in [%d,%d)", i, r.Count, r.Start, end)
		case r.Bytes <= 0:
			return fmt.Errorf("row %d: object of %d bytes", i, r.Bytes)
		case r.MinTimestamp > r.MaxTimestamp || r.Count == 0 && (r.MinTimestamp != 0 || r.MaxTimestamp != 0):
			return fmt.Errorf("row %d: timestamps from %d to %d with %d records", i, r.MinTimestamp, r.MaxTimestamp, r.Count)
		}
	}
	// Only the first segment of a chain starts at 0.
	first, base := start, ordinal
	if len(rows) > 0 {
		first, base = rows[0].Start, ordinal-int64(len(rows))
	}
	if (first == 0) != (base == 0) {
		return fmt.Errorf("segment with ordinal %d starts at %d", base, first)
	}
	return nil
}
