package run

import (
	"context"
	"errors"
	"fmt"
	"io"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/pace"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/segment"
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

	gap   *job.Unreadable // the object could not be read, and body stands for its offsets without records
	head  *segment.Header // of the object; nil with a gap
	named schema.Seen     // writer schemas that the planned records name

	spans []span // what of it goes at once, in order; one where it is sent as it is

	// Where part is at making the spans' bytes.
	rd       *segment.Reader
	pos      int64          // rd is before this offset,
	pending  *record.Record // but for this record, which has been read
	made     []byte         // bytes of the span that begins at madeFrom
	madeFrom int64
}

// load reads one planned object, checks every record of it, and finds where to cut it so that no part passes the bounds; keep chooses among the
// records of the range. Errors: *Failure of an *unreadable where the object is damaged, missing or not the planned one; others are the store's and
// worth a repetition.
func load(ctx context.Context, arch Source, rng *job.Range, keep *job.Keeper, index int, ps archive.PlannedSegment, b pace.Bounds) (*loaded, error) {
	data, err := arch.Segment(ctx, ps)
	if err != nil {
		return nil, notRead(err, rng.TopicPartition, ps.Key)
	}
	l := &loaded{index: index, start: ps.Start, next: ps.Next, size: int64(len(data)), body: data, proof: job.EmptyProof(), maxTs: -1}
	if err := l.read(ps.Key, rng, keep, ps, b); err != nil {
		return nil, &Failure{err}
	}
	return l, nil
}

func (l *loaded) read(key string, rng *job.Range, keep *job.Keeper, ps archive.PlannedSegment, b pace.Bounds) error {
	rd, err := segment.NewReader(key, l.body)
	if err != nil {
		return damaged(key, err)
	}
	h := rd.Header()
	l.head = h
	if h.TP() != rng.TopicPartition || h.TopicID != rng.TopicID || h.ClusterID != rng.ClusterID || h.Isolation != rng.Isolation ||
		h.Start != ps.Start || h.Next != ps.Next {
		return unreadablef(key, "object %s is not the planned one: it holds %s [%d, %d) of topic id %s, cluster %s, %s; planned: %s [%d, %d) of topic id %s, cluster %s, %s",
			key, h.TP(), h.Start, h.Next, h.TopicID, h.ClusterID, h.Isolation,
			rng.TopicPartition, ps.Start, ps.Next, rng.TopicID, rng.ClusterID, rng.Isolation)
	}
	cut, err := newCut(rng, keep, h)
	if err != nil {
		return fmt.Errorf("cut %s: %w", key, err)
	}
	spans := newCutter(b, h, l.size)
	var rec record.Record
	var sum uint64
	for {
		if err := rd.Next(&rec); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return damaged(key, err)
		}
		if !rng.Holds(&rec) || !keep.Keep(&rec) {
			continue
		}
		if l.proof.Count == 0 {
			l.proof.First = rec.Offset
		}
		l.proof.Count++
		l.proof.Last = rec.Offset
		sum += rd.DatumChecksum()
		l.maxTs = max(l.maxTs, rec.Timestamp)
		l.named.Add(&rec)
		spans.add(&rec, len(rd.Datum()))
		if err := cut.add(&rec); err != nil {
			return fmt.Errorf("cut %s: %w", key, err)
		}
	}
	l.proof.Checksum = job.Hex(sum)
	if l.spans = spans.spans; len(l.spans) == 1 {
		l.spans[0].bytes = l.size
	}
	body, err := cut.close()
	if err != nil {
		return fmt.Errorf("cut %s: %w", key, err)
	}
	if body != nil {
		l.body = body
	}
	return nil
}
