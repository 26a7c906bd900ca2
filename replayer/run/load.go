package run

import (
	"context"
	"errors"
	"fmt"
	"io"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

// loaded is a segment that has been read in full and found sound.
type loaded struct {
	index int    // in the partition's plan
	start int64  // first offset of the object
	next  int64  // first offset after it
	size  int64  // bytes of the object in the archive
	body  []byte // what to send
	proof job.Proof
	maxTs int64 // largest timestamp in range, −1 for none

	head  *segment.Header // of the object
	named schema.Seen     // writer schemas that the planned records name
}

// load reads one planned object and checks every record of it. Errors: *Failure where the object is damaged, missing or not the planned
// one; others are the store's and worth a repetition.
func load(ctx context.Context, st store.Store, rng *job.Range, index int, ps archive.PlannedSegment) (*loaded, error) {
	data, err := st.Get(ctx, ps.Key)
	if err != nil {
		if errors.Is(err, store.ErrNotFound) {
			return nil, failf("object %s is gone from the archive (planned for %s): %w", ps.Key, rng.TopicPartition, err)
		}
		return nil, fmt.Errorf("read %s: %w", ps.Key, err)
	}
	l := &loaded{index: index, start: ps.Start, next: ps.Next, size: int64(len(data)), body: data, proof: job.EmptyProof(), maxTs: -1}
	if err := l.read(ps.Key, rng, ps); err != nil {
		return nil, &Failure{err}
	}
	return l, nil
}

func (l *loaded) read(key string, rng *job.Range, ps archive.PlannedSegment) error {
	rd, err := segment.NewReader(key, l.body)
	if err != nil {
		return damaged(key, err)
	}
	h := rd.Header()
	l.head = h
	if h.TP() != rng.TopicPartition || h.TopicID != rng.TopicID || h.ClusterID != rng.ClusterID || h.Isolation != rng.Isolation ||
		h.Start != ps.Start || h.Next != ps.Next {
		return fmt.Errorf("object %s is not the planned one: it holds %s [%d, %d) of topic id %s, cluster %s, %s; planned: %s [%d, %d) of topic id %s, cluster %s, %s",
			key, h.TP(), h.Start, h.Next, h.TopicID, h.ClusterID, h.Isolation,
			rng.TopicPartition, ps.Start, ps.Next, rng.TopicID, rng.ClusterID, rng.Isolation)
	}
	cut, err := newTimeCut(rng, h)
	if err != nil {
		return fmt.Errorf("cut %s by time: %w", key, err)
	}
	var rec record.Record
	var sum uint64
	for {
		if err := rd.Next(&rec); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return damaged(key, err)
		}
		if !rng.Holds(&rec) {
			continue
		}
		if l.proof.Count == 0 {
			l.proof.First = rec.Offset
		}
		l.proof.Count++
		l.proof.Last = rec.Offset
		sum += segment.Checksum(rd.Datum())
		l.maxTs = max(l.maxTs, rec.Timestamp)
		l.named.Add(&rec)
		if err := cut.add(&rec); err != nil {
			return fmt.Errorf("cut %s by time: %w", key, err)
		}
	}
	l.proof.Checksum = job.Hex(sum)
	body, err := cut.close()
	if err != nil {
		return fmt.Errorf("cut %s by time: %w", key, err)
	}
	if body != nil {
		l.body = body
	}
	return nil
}

// damaged says what a reader's error means; the error itself names object and byte position.
func damaged(key string, err error) error {
	var c *segment.CorruptError
	if errors.As(err, &c) {
		return fmt.Errorf("damaged object: %w", err)
	}
	return fmt.Errorf("damaged object %s: %w", key, err)
}

// timeCut writes a segment again without the records outside a time bound. A receiver knows offsets only; so a bound in time, which
// holds record by record whatever the order of timestamps, is applied before sending: what is sent is an ordinary segment of the same
// range of offsets that records the rest as not archived. A nil timeCut passes the object on as it is.
type timeCut struct {
	w    *segment.Writer
	head *segment.Header
	pos  int64 // first offset not yet dealt with
}

func newTimeCut(rng *job.Range, h *segment.Header) (*timeCut, error) {
	inside := h.Count == 0 || (rng.FromTimestamp < 0 || h.MinTimestamp >= rng.FromTimestamp) &&
		(rng.UntilTimestamp < 0 || h.MaxTimestamp < rng.UntilTimestamp)
	if inside {
		return nil, nil
	}
	w, err := segment.NewWriter(h.Identity(), h.Start, h.Codec)
	if err != nil {
		return nil, err
	}
	return &timeCut{w: w, head: h, pos: h.Start}, nil
}

func (c *timeCut) add(rec *record.Record) error {
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

func (c *timeCut) skipTo(offset int64) error {
	if offset <= c.pos {
		return nil
	}
	return c.w.Skip(c.pos, offset, segment.NotArchived)
}

func (c *timeCut) close() ([]byte, error) {
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
