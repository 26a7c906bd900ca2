package partition

import "time"

// Detail is what people and metrics want to know of what is not archived yet, and of what was archived last.
type Detail struct {
	OpenBytes int64         `json:"openBytes"` // memory of the open segment
	OpenSince time.Duration `json:"-"`         // when it first held something, as now of On; −1: it holds nothing
	// OldestTimestamp is the timestamp of the oldest record that is fetched and not archived, in ms; −1: there is none, or it has none.
	OldestTimestamp int64        `json:"oldestTimestamp"`
	Last            *LastSegment `json:"lastSegment,omitempty"` // newest of the chain
}

// LastSegment is the newest confirmed segment of a chain.
type LastSegment struct {
	Start   int64 `json:"start"`
	Next    int64 `json:"next"`
	Records int64 `json:"records"`
	Bytes   int64 `json:"bytes"` // of the object
}

func (p *Partition) detail() Detail {
	d := Detail{OpenBytes: p.OpenBytes(), OpenSince: -1, OldestTimestamp: -1}
	if p.open != nil && p.open.holding {
		d.OpenSince = p.open.since
	}
	for _, s := range p.sealed {
		if s.Records > 0 {
			d.OldestTimestamp = s.firstTimestamp
			break
		}
	}
	if d.OldestTimestamp < 0 && p.open != nil && p.open.records > 0 {
		d.OldestTimestamp = p.open.firstTimestamp
	}
	if p.haveTail {
		h := p.tail.Header
		d.Last = &LastSegment{Start: h.Start, Next: h.Next, Records: h.Count, Bytes: p.tail.Size}
	}
	return d
}
