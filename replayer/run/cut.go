package run

import (
	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// cut writes a segment again without the records that a time bound or a filter leaves out. A receiver knows offsets only; so what is chosen record by
// record, whatever the order of timestamps, is applied before sending: what is sent is an ordinary segment of the same range of offsets that records the
// rest as not archived. A nil cut passes the object on as it is.
type cut struct {
	w    *segment.Writer
	head *segment.Header
	pos  int64 // first offset not yet dealt with
}

func newCut(rng *job.Range, keep *job.Keeper, h *segment.Header) (*cut, error) {
	inside := (rng.FromTimestamp < 0 || h.MinTimestamp >= rng.FromTimestamp) && (rng.UntilTimestamp < 0 || h.MaxTimestamp < rng.UntilTimestamp)
	if h.Count == 0 || inside && keep == nil {
		return nil, nil
	}
	w, err := segment.NewWriter(h.Identity(), h.Start, h.Codec)
	if err != nil {
		return nil, err
	}
	return &cut{w: w, head: h, pos: h.Start}, nil
}

func (c *cut) add(rec *record.Record) error {
	if c == nil {
		return nil
	}
	if err := c.skipTo(rec.Offset); err != nil {
		return err
	}
	c.pos = rec.Offset + 1
	_, err := c.w.Append(rec)
	return err
}

func (c *cut) skipTo(offset int64) error {
	if offset <= c.pos {
		return nil
	}
	return c.w.Skip(c.pos, offset, segment.NotArchived)
}

func (c *cut) close() ([]byte, error) {
	if c == nil {
		return nil, nil
	}
	if err := c.skipTo(c.head.Next); err != nil {
		return nil, err
	}
	chain := segment.First()
	chain.Ordinal, chain.RunningMaxTimestamp, chain.Rows = c.head.Ordinal, c.head.RunningMaxTimestamp, c.head.Rows
	data, _, err := c.w.Close(c.head.Next, chain, c.head.Schemas)
	return data, err
}
