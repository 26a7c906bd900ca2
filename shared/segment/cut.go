package segment

import "tapedeck.dev/tapedeck/shared/record"

// CutRule decides from the records alone where a segment ends; a zero field is off.
type CutRule struct {
	FlushSize    int64 // records: a segment is full with this many
	SegmentBytes int64 // uncompressed encoded bytes: no segment of two records or more is larger
	// RotateIntervalMs is a record-time span in ms: cut before a record whose timestamp ≥ first record's timestamp + this, as
	// rotate.interval.ms of Kafka Connect's sinks with record timestamps.
	RotateIntervalMs int64
}

// CutBy names the field of a CutRule that ends a segment.
type CutBy uint8

// The fields.
const (
	CutByNothing  CutBy = iota
	CutByRecords        // FlushSize
	CutByBytes          // SegmentBytes
	CutByInterval       // RotateIntervalMs
)

// Cutter applies a CutRule. It sees records one by one and keeps only what the rule needs of them, so where it cuts does not
// depend on how the records arrive in batches. It is not safe for concurrent use.
type Cutter struct {
	rule  CutRule
	count int64
	bytes int64
	first int64 // timestamp of the segment's first record, where count > 0
	by    CutBy // of the newest answer of Before or Add
}

// NewCutter returns a Cutter at the beginning of a segment.
func NewCutter(rule CutRule) *Cutter { return &Cutter{rule: rule} }

// Before reports whether the segment must end before r (encoded size n bytes, see Size); the caller then Resets. It is false
// for the first record of a segment, whatever its size.
func (c *Cutter) Before(r *record.Record, n int) bool {
	c.by = CutByNothing
	switch {
	case c.count == 0:
	case c.rule.SegmentBytes > 0 && c.bytes+int64(n) > c.rule.SegmentBytes:
		c.by = CutByBytes
	// The difference of two int64 always fits a uint64, where the difference as int64 may overflow.
	case c.rule.RotateIntervalMs > 0 && r.Timestamp > c.first && uint64(r.Timestamp)-uint64(c.first) >= uint64(c.rule.RotateIntervalMs):
		c.by = CutByInterval
	}
	return c.by != CutByNothing
}

// Add counts r (encoded size n bytes) and reports whether the segment is full with it; the caller then ends it and Resets.
func (c *Cutter) Add(r *record.Record, n int) bool {
	if c.count == 0 {
		c.first = r.Timestamp
	}
	c.count++
	c.bytes += int64(n)
	c.by = CutByNothing
	switch {
	case c.rule.FlushSize > 0 && c.count >= c.rule.FlushSize:
		c.by = CutByRecords
	case c.rule.SegmentBytes > 0 && c.bytes >= c.rule.SegmentBytes:
		c.by = CutByBytes
	}
	return c.by != CutByNothing
}

// By says which field of the rule made the newest Before or Add true.
func (c *Cutter) By() CutBy { return c.by }

// Reset begins a new segment.
func (c *Cutter) Reset() { *c = Cutter{rule: c.rule} }
