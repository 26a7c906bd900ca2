package sessions

import (
	"io"
	"sort"
	"sync"

	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// content is a segment that was read to its end and found sound, so that a corrupt one has no effect. Its records are kept where there is room
// for them, which saves reading them a second time; where there is not they are read again as they are fed.
type content struct {
	h    *segment.Header
	name string
	data []byte

	kept *records // nil where they are not kept
	recs []record.Record
	sums []uint64 // checksum of each

	again *segment.Reader // not kept: it has been read to where it was fed
}

// records is memory for the records of a segment, used again and again: fresh memory of that size costs about as much as decoding does.
type records struct {
	recs []record.Record
	sums []uint64
}

var recordsPool = sync.Pool{New: func() any { return new(records) }}

// recordBytes is about what a kept record takes beside its bytes: the record, and its checksum.
const recordBytes = 136

// weight is about what keeping a segment's records takes in memory.
func weight(h *segment.Header) int64 { return h.DatumBytes + h.Count*recordBytes }

// readContent reads a whole segment. room is asked once, with the bytes that keeping the records takes.
func readContent(tp kafka.TP, start int64, data []byte, room func(bytes int64) bool) (*content, error) {
	c := &content{name: object(tp, start), data: data}
	r, err := segment.NewReader(c.name, data)
	if err != nil {
		return nil, corrupt(c.name, err)
	}
	c.h = r.Header()
	if c.h.TP() != tp || c.h.Start != start {
		return nil, refused("%s: the object holds %s from %d", c.name, c.h.TP(), c.h.Start)
	}
	if room(weight(c.h)) {
		c.kept = recordsPool.Get().(*records)
	}
	var rec record.Record
	for {
		switch err := r.Next(&rec); {
		case err == io.EOF:
			if c.kept != nil {
				c.recs, c.sums = c.kept.recs, c.kept.sums
			}
			return c, nil
		case err != nil:
			c.release()
			return nil, corrupt(c.name, err)
		}
		if c.kept != nil {
			c.kept.recs, c.kept.sums = append(c.kept.recs, rec), append(c.kept.sums, r.DatumChecksum())
		}
	}
}

// release gives memory back. Nothing that next has returned may be used any more; what the records point to stays.
func (c *content) release() {
	if c.kept == nil {
		return
	}
	clear(c.kept.recs) // the pool must not keep the segment's bytes
	c.kept.recs, c.kept.sums = c.kept.recs[:0], c.kept.sums[:0]
	recordsPool.Put(c.kept)
	c.kept, c.recs, c.sums = nil, nil, nil
}

// next returns the next records with offsets in [from, until), at most n; none at the end. They are valid until the call after.
func (c *content) next(n int, from, until int64) ([]record.Record, []uint64, error) {
	if c.kept != nil {
		i := sort.Search(len(c.recs), func(i int) bool { return c.recs[i].Offset >= from })
		j := min(i+n, len(c.recs))
		j = i + sort.Search(j-i, func(k int) bool { return c.recs[i+k].Offset >= until })
		recs, sums := c.recs[i:j], c.sums[i:j]
		c.recs, c.sums = c.recs[j:], c.sums[j:]
		return recs, sums, nil
	}
	if c.again == nil {
		var err error
		if c.again, err = segment.NewReader(c.name, c.data); err != nil {
			return nil, nil, corrupt(c.name, err)
		}
	}
	c.recs, c.sums = c.recs[:0], c.sums[:0]
	for len(c.recs) < n {
		var rec record.Record
		if err := c.again.Next(&rec); err == io.EOF {
			break
		} else if err != nil {
			return nil, nil, corrupt(c.name, err)
		}
		if rec.Offset < from || rec.Offset >= until {
			continue
		}
		c.recs, c.sums = append(c.recs, rec), append(c.sums, c.again.DatumChecksum())
	}
	return c.recs, c.sums, nil
}
