package segment

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"

	"tapedeck.dev/tapedeck/shared/record"
)

// Writer collects the records of one segment in memory, compressed block by block. It is not safe for concurrent use.
//
// The bytes that Close returns depend on the records, the ranges, the chain and the schemas alone: a block ends with the record that
// fills it, whenever that came.
type Writer struct {
	id    LogIdentity
	start int64

	finished   blocks
	block      []byte // datums of the open block
	blockCount int64  // records of the open block
	lastDatum  int    // position of the last record's datum in block

	skips       skipper
	count       int64
	datumBytes  int64
	maxBlock    int64
	checksum    uint64
	minTs       int64
	maxTs       int64
	lastEpoch   int32
	lastHash    [32]byte // of the last record of the last finished block
	closed      bool
	failedBlock error
}

// NewWriter begins a segment at start. codec "" means zstandard.
func NewWriter(id LogIdentity, start int64, codec string) (*Writer, error) {
	if codec == "" {
		codec = CodecZstd
	}
	c, err := codecByName(codec)
	if err == nil {
		err = id.check()
	}
	if err == nil && (start < 0 || start == math.MaxInt64) {
		err = errors.New("start is not an offset")
	}
	if err != nil {
		return nil, fmt.Errorf("begin segment of %s-%d at %d: %w", id.Topic, id.Partition, start, err)
	}
	return &Writer{
		id: id, start: start, finished: blocks{codec: c, sync: syncMarker(id.ClusterID, id.TopicID, id.Partition, start)},
		skips: skipper{start: start, pos: start},
	}, nil
}

// Append adds r. Its offset must be ≥ start, > the last record's and in no skipped range; topic and partition must be the
// writer's. It returns the encoded size in bytes (uncompressed). The bytes of r are copied. After an error the writer is as before, but for one of
// compression, which ends it: Close refuses then too.
func (w *Writer) Append(r *record.Record) (int, error) {
	n, err := w.append(r)
	if err != nil {
		return 0, fmt.Errorf("append %s-%d@%d to the segment of %s-%d from %d: %w",
			r.Topic, r.Partition, r.Offset, w.id.Topic, w.id.Partition, w.start, err)
	}
	return n, nil
}

func (w *Writer) append(r *record.Record) (int, error) {
	switch {
	case w.closed:
		return 0, errClosed
	case w.failedBlock != nil:
		return 0, w.failedBlock
	case r.Topic != w.id.Topic || r.Partition != w.id.Partition:
		return 0, errors.New("record of another log")
	case r.Offset < w.skips.pos && w.count == 0:
		return 0, errors.New("offset is before the segment's start")
	case r.Offset < w.skips.pos:
		return 0, fmt.Errorf("offset is not above the last record's %d", w.skips.pos-1)
	case r.Offset == math.MaxInt64:
		return 0, errors.New("offset is the largest number, which leaves no next one")
	case r.TimestampType < -1 || r.TimestampType > record.LogAppendTime:
		return 0, fmt.Errorf("unknown timestamp type %d", r.TimestampType)
	case r.LeaderEpoch < record.NoEpoch:
		return 0, fmt.Errorf("leader epoch %d is negative", r.LeaderEpoch)
	}
	if len(r.Key)+len(r.Value) > blockBytes || len(r.Headers) > 0 { // else it is not worth the time
		if size := Size(r); size > MaxDatumBytes {
			return 0, fmt.Errorf("record of %d bytes is larger than %d", size, MaxDatumBytes)
		}
	}
	if err := w.skips.record(r.Offset); err != nil {
		return 0, err
	}
	if w.block == nil && w.count > 0 { // a segment of few records needs no whole block
		w.block = takeBuffer()
	}
	at := len(w.block)
	w.block = AppendDatum(w.block, r)
	datum := w.block[at:]
	w.lastDatum = at
	w.blockCount++
	w.checksum += Checksum(datum)
	if w.count == 0 {
		w.minTs, w.maxTs = r.Timestamp, r.Timestamp
	}
	w.minTs, w.maxTs = min(w.minTs, r.Timestamp), max(w.maxTs, r.Timestamp)
	w.lastEpoch = r.LeaderEpoch
	w.count++
	w.datumBytes += int64(len(datum))
	n := len(datum)
	if len(w.block) >= blockBytes {
		w.failedBlock = w.flush()
	}
	return n, w.failedBlock
}

var errClosed = errors.New("segment is closed")

// flush ends the open block.
func (w *Writer) flush() error {
	if w.blockCount == 0 {
		return nil
	}
	w.maxBlock = max(w.maxBlock, int64(len(w.block)))
	w.lastHash = sha256.Sum256(w.block[w.lastDatum:])
	raw, count := w.block, w.blockCount
	w.block, w.blockCount = nil, 0
	return w.finished.add(raw, count)
}

// Skip records that [from, to) holds no data, with its class. Ranges between records that nobody skips are NoData. Ranges may
// come in any order, before or after the records around them; they must not overlap each other or hold a record.
func (w *Writer) Skip(from, to int64, class Class) error {
	err := errClosed
	if !w.closed {
		err = w.skips.tell(from, to, class)
	}
	if err != nil {
		return fmt.Errorf("skip [%d,%d) as %s in the segment of %s-%d from %d: %w",
			from, to, class, w.id.Topic, w.id.Partition, w.start, err)
	}
	return nil
}

// Count returns the number of records so far.
func (w *Writer) Count() int64 { return w.count }

// DatumBytes returns the encoded size of the records so far, uncompressed, in bytes.
func (w *Writer) DatumBytes() int64 { return w.datumBytes }

// MemBytes returns about how many bytes of memory w holds. Close needs as much again for a moment.
func (w *Writer) MemBytes() int64 {
	return w.finished.memBytes() + int64(cap(w.block)) + w.skips.memBytes() + 512
}

// Close ends the segment at next (≥ last record's offset+1, ≥ start; > start) and returns the whole object and its header.
// schemas are written in the order of (ID, GUID); equal ones once. After an error other than of compression, the writer can go on.
func (w *Writer) Close(next int64, c Chain, schemas []Schema) (data []byte, h *Header, err error) {
	data, h, err = w.close(next, c, schemas)
	if err != nil {
		return nil, nil, fmt.Errorf("close segment of %s-%d from %d at %d: %w", w.id.Topic, w.id.Partition, w.start, next, err)
	}
	return data, h, nil
}

func (w *Writer) close(next int64, c Chain, schemas []Schema) ([]byte, *Header, error) {
	switch {
	case w.closed:
		return nil, nil, errClosed
	case w.failedBlock != nil:
		return nil, nil, w.failedBlock
	case next <= w.start:
		return nil, nil, errors.New("the segment would hold no offset")
	case next < w.skips.pos:
		return nil, nil, fmt.Errorf("next is not above the last record's offset %d", w.skips.pos-1)
	case c.LastOffset >= w.start:
		return nil, nil, fmt.Errorf("the chain's last offset %d is not before the start", c.LastOffset)
	}
	skipped, err := w.skips.merge(next)
	if err != nil {
		return nil, nil, err
	}
	h := &Header{
		FormatVersion: FormatVersion,
		ClusterID:     w.id.ClusterID, TopicID: w.id.TopicID, Topic: w.id.Topic, Partition: w.id.Partition,
		Start: w.start, Next: next, Ordinal: c.Ordinal,
		Count: w.count, DatumBytes: w.datumBytes, MaxBlockBytes: max(w.maxBlock, int64(len(w.block))), Checksum: w.checksum,
		MinTimestamp: w.minTs, MaxTimestamp: w.maxTs, RunningMaxTimestamp: c.RunningMaxTimestamp,
		Isolation: w.id.Isolation, Skipped: skipped,
		LastOffset: c.LastOffset, LastEpoch: c.LastEpoch,
		Codec: w.finished.codec.name,
	}
	if len(c.LastHash) > 0 {
		h.LastHash = slices.Clone(c.LastHash)
	}
	if len(c.Rows) > 0 {
		h.Rows = slices.Clone(c.Rows)
	}
	if len(schemas) > 0 {
		h.Schemas = slices.Clone(schemas)
		slices.SortFunc(h.Schemas, compareSchemas)
		h.Schemas = slices.CompactFunc(h.Schemas, func(a, b Schema) bool { return compareSchemas(a, b) == 0 })
	}
	if w.count > 0 {
		h.RunningMaxTimestamp = max(h.RunningMaxTimestamp, h.MaxTimestamp)
		h.LastOffset, h.LastEpoch = w.skips.pos-1, w.lastEpoch
		hash := w.lastHash
		if w.blockCount > 0 {
			hash = sha256.Sum256(w.block[w.lastDatum:])
		}
		h.LastHash = hash[:]
	}
	if err := h.check(); err != nil {
		return nil, nil, err
	}
	head, err := encodeHeader(h)
	if err != nil {
		return nil, nil, err
	}
	if err := w.flush(); err != nil {
		w.failedBlock = err
		return nil, nil, err
	}
	if w.finished.settle(true); w.finished.failed != nil {
		w.failedBlock = w.finished.failed
		return nil, nil, w.failedBlock
	}
	data := make([]byte, 0, int64(len(head))+w.finished.body.size)
	data = w.finished.body.appendTo(append(data, head...))
	w.closed = true
	w.finished, w.block, w.skips = blocks{}, nil, skipper{}
	return data, h, nil
}
