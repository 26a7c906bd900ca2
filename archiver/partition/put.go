package partition

import (
	"fmt"
	"time"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
)

// seal ends the open segment at next, begins the following one there, and puts the sealed one if none is being put.
func (p *Partition) seal(next int64, cause Cause) []Action {
	o := p.open
	w, err := p.writer() // a segment without records has none yet
	if err != nil {
		return p.stop(Refused, err)
	}
	p.sealed = append(p.sealed, &Sealed{
		Writer: w, ID: p.id, Incarnation: p.incarnation, Start: o.start, Next: next, Records: o.records, Cause: cause,
		Schemas: o.ids.Refs(), MemBytes: w.MemBytes(), DatumBytes: w.DatumBytes(), firstTimestamp: o.firstTimestamp,
	})
	p.openAt(next)
	return p.putNext()
}

// putNext hands out the oldest sealed segment. Exactly one is out at a time: a second create before the first is confirmed could
// succeed where the first lost, and leave a hole or an overlap.
func (p *Partition) putNext() []Action {
	if p.putting || len(p.sealed) == 0 {
		return nil
	}
	p.putting = true
	s := p.sealed[0]
	s.Chain = p.chain
	return []Action{Put{s}}
}

func (p *Partition) onPutDone(now time.Duration, e PutDone) []Action {
	if !p.putting {
		return nil
	}
	p.putting = false
	done := p.sealed[0]
	h := e.Tail.Header
	commit := Commit{Offset: h.Next, Metadata: FormatHint(p.Hint(e.Tail))}
	lastEpoch := p.lastEpoch // of what was fetched since
	if e.Adopted {
		if h.Start == 0 {
			p.seam = nil // the chain is another's, and begins where that one chose
		}
		note := Note{"warn", fmt.Sprintf("fenced or overtaken: another archiver wrote segment %d to %d first; going on behind it", h.Start, h.Next-1), nil}
		if p.state == Stopped {
			p.drop()
			p.adoptTail(e.Tail)
			return []Action{note, commit}
		}
		if p.state == Fetching && p.keepFrom(h.Next) {
			p.adoptTail(e.Tail)
			p.lastEpoch = lastEpoch
			return append([]Action{note, commit}, p.putNext()...)
		}
		if p.state == Finished && (p.keepFrom(h.Next) || h.Next >= p.end) {
			if h.Next >= p.end {
				p.drop()
			}
			p.adoptTail(e.Tail)
			return append([]Action{note, commit}, p.putNext()...)
		}
		p.drop()
		p.adoptTail(e.Tail)
		// The log's range was right when it was read; what has changed since then is answered by the fetch.
		acts := []Action{note, commit}
		return append(acts, p.begin(now, kafka.LogRange{Start: p.logStart, End: max(p.logEnd, h.Next)})...)
	}
	p.adoptTail(e.Tail)
	p.lastEpoch = lastEpoch
	p.sealed = p.sealed[1:]
	p.segments++
	p.records += done.Records
	return append([]Action{commit}, p.putNext()...)
}

// keepFrom drops the segments before next where one of ours starts exactly there, and reports whether one does. What lies behind the
// winner's segment is worth keeping: Kafka may have lost it since it was fetched.
func (p *Partition) keepFrom(next int64) bool {
	for i, s := range p.sealed[1:] {
		if s.Start == next {
			p.sealed = p.sealed[1+i:]
			return true
		}
	}
	if p.open != nil && p.open.start == next {
		p.sealed = nil
		return true
	}
	return false
}

// Hint is where t is to be looked for.
func (p *Partition) Hint(t archive.Tail) Hint { return Hint{t.Header.Start, p.incarnation} }
