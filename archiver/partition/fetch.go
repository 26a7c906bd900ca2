package partition

import (
	"fmt"
	"slices"
	"time"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// openAt begins an empty segment.
func (p *Partition) openAt(start int64) {
	p.open = &open{start: start, cutter: segment.NewCutter(p.cfg.Rule)}
}

// writer returns the open segment's writer, made when it is first needed: 500 idle partitions need no 500 writers.
func (p *Partition) writer() (*segment.Writer, error) {
	if p.open.writer == nil {
		w, err := segment.NewWriter(p.id, p.open.start, p.cfg.Codec)
		if err != nil {
			return nil, err
		}
		p.open.writer = w
	}
	return p.open.writer, nil
}

// holdSomething starts the age of the open segment.
func (p *Partition) holdSomething(now time.Duration) {
	if !p.open.holding {
		p.open.holding, p.open.since = true, now
	}
}

func (p *Partition) onRecords(now time.Duration, recs []record.Record) []Action {
	var acts []Action
	for i := range recs {
		r := &recs[i]
		switch p.state {
		case Checking:
			if err := p.check(r); err != nil {
				return append(acts, p.stop(Diverged, err)...)
			}
			if r.Offset < p.position {
				continue
			}
			p.state = Fetching
		case Fetching:
			if r.Offset < p.position {
				continue
			}
		default:
			return acts
		}
		if p.beyondEnd(r.Offset) {
			return acts
		}
		more, ok := p.take(now, r)
		acts = append(acts, more...)
		if !ok {
			return acts
		}
	}
	return acts
}

// check compares what the log holds, from the archive's last record on, with what the archive says. A record that is gone proves
// nothing: compaction may have taken it.
func (p *Partition) check(r *record.Record) error {
	h := p.tail.Header
	switch {
	case r.Offset == h.LastOffset:
		if hash := segment.Hash(r); !slices.Equal(hash[:], h.LastHash) {
			return fmt.Errorf("the record at offset %d, the last one archived, is another one in Kafka now: the log was rewritten (an unclean election?); the archive is left as it is", r.Offset)
		}
		p.checked = true
	case r.Offset >= h.Start && r.Offset < h.Next:
		for _, s := range h.Skipped {
			if s.Class == segment.NoData && s.From <= r.Offset && r.Offset < s.To {
				return fmt.Errorf("there is a record in Kafka at offset %d, where there was none when it was archived: the log was rewritten (an unclean election?); the archive is left as it is", r.Offset)
			}
		}
	}
	return nil
}

// take adds one record; ok is false where the partition stopped.
func (p *Partition) take(now time.Duration, r *record.Record) (acts []Action, ok bool) {
	if r.LeaderEpoch != record.NoEpoch {
		if p.lastEpoch != record.NoEpoch && r.LeaderEpoch < p.lastEpoch {
			return p.stop(Diverged, fmt.Errorf("the record at offset %d is of leader epoch %d, an earlier one of epoch %d: the log was rewritten; the archive is left as it is",
				r.Offset, r.LeaderEpoch, p.lastEpoch)), false
		}
		p.lastEpoch = r.LeaderEpoch
	}
	n := segment.Size(r)
	if p.open.cutter.Before(r, n) {
		acts = p.seal(r.Offset, causeOf(p.open.cutter.By()))
	}
	w, err := p.writer()
	if err == nil {
		_, err = w.Append(r)
	}
	if err != nil {
		return append(acts, p.stop(Refused, err)...), false
	}
	p.truncated, p.failures = 0, 0
	if p.open.records++; p.open.records == 1 {
		p.open.firstTimestamp = r.Timestamp
	}
	p.position = r.Offset + 1
	p.holdSomething(now)
	if p.cfg.SchemaIDs {
		p.open.ids.Add(r)
	}
	if p.open.cutter.Add(r, n) {
		acts = append(acts, p.seal(p.position, causeOf(p.open.cutter.By()))...)
	}
	return acts, true
}

func (p *Partition) onEnd(now time.Duration, offset int64) []Action {
	if p.state == Checking && offset >= p.position {
		p.state = Fetching
	}
	if p.state != Fetching {
		return nil
	}
	p.truncated, p.failures = 0, 0
	p.logEnd = max(p.logEnd, offset)
	if offset = p.upTo(offset); offset > p.position {
		p.position = offset
		p.holdSomething(now)
	}
	return nil
}

func (p *Partition) onOutOfRange(now time.Duration, e OutOfRange) []Action {
	if p.state != Checking && p.state != Fetching {
		return nil
	}
	p.logStart, p.logEnd = e.LogStart, e.LogEnd
	if p.state == Checking {
		h := p.tail.Header
		if e.LogStart <= h.LastOffset && h.LastOffset <= e.LogEnd { // it is in range: the broker erred for a moment
			return []Action{Fetch{Offset: h.LastOffset, Epoch: h.LastEpoch}}
		}
		p.state = Fetching // retention has moved past the last record: there is nothing to compare
	}
	switch {
	case p.position < e.LogStart:
		return p.lost(now, e.LogStart)
	case p.position > e.LogEnd:
		return p.restart(beyondEndPause, fmt.Errorf("position %d is beyond the log's end %d", p.position, e.LogEnd))
	}
	return []Action{p.fetchNext()}
}

func (p *Partition) onTick(now time.Duration) []Action {
	if p.state == Fetching && p.cfg.RotateAge > 0 && p.open.holding && now-p.open.since >= p.cfg.RotateAge {
		return p.sealHeld(CauseAge)
	}
	return nil
}

// sealHeld ends the open segment at the position, where it holds anything.
func (p *Partition) sealHeld(cause Cause) []Action {
	if p.state != Fetching || !p.open.holding {
		return nil
	}
	return p.seal(p.position, cause)
}
