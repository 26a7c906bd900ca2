package partition

import (
	"fmt"
	"time"

	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// Begin says where a new chain begins to hold records. It means nothing where there is a chain.
type Begin struct {
	Offset int64 // the first offset to archive, ≥ 0
	// Named: a person, or another group's position, says this very offset. Where Kafka does not hold it any more, that is a gap as
	// any other, and not what a log that is older than the archive lacks.
	Named bool
	// Settle: another process might choose another offset, so the choice is written as soon as that is possible.
	Settle bool
	Source string // where the offset comes from, for people
}

// Seam is where the records of a chain begin that this process began.
type Seam struct {
	Offset int64  `json:"offset"` // the first one fetched; those below are recorded as not archived, or as lost
	Source string `json:"source"`
}

// beginChain starts a partition without a chain. Its first segment starts at 0 whatever Kafka still holds and wherever records are to begin, so
// that writers which see different log starts, or have different settings, collide on one name.
func (p *Partition) beginChain(now time.Duration, b Begin, log kafka.LogRange) []Action {
	if !b.Named {
		b.Offset = p.upTo(b.Offset) // what came after the end was frozen is the next run's
	}
	if b.Offset > log.End {
		p.tries++
		err := fmt.Errorf("start: offset %d (%s) of %s is beyond the log's end %d: that position is not of this log (was the topic created again?); "+
			"correct start, or use earliest", b.Offset, b.Source, p.tp, log.End)
		if p.tries >= beyondEndTries {
			return p.stop(BadStart, err)
		}
		return p.restart(beyondEndPause, err) // a new leader may be behind for a moment
	}
	p.position = 0
	p.openAt(0)
	p.state, p.tries = Fetching, 0
	if b.Named && b.Offset < log.Start && p.cfg.Gap != GapRecord {
		p.position = b.Offset
		return p.lost(now, log.Start)
	}
	begin := max(b.Offset, log.Start)
	p.seam = &Seam{Offset: begin, Source: b.Source}
	acts := []Action{Fetch{Offset: begin, Epoch: record.NoEpoch},
		Note{"info", fmt.Sprintf("a new chain: its records begin at offset %d (%s)", begin, b.Source), nil}}
	for _, s := range []segment.Skip{{To: b.Offset, Class: segment.NotArchived}, {To: log.Start, Class: segment.Lost}} {
		if s.To <= p.position {
			continue
		}
		more, ok := p.skip(now, s.To, s.Class)
		if !ok {
			return more
		}
		acts = append(acts, more...)
	}
	if b.Offset > 0 {
		// Written at once: a process that ends before its first segment would else let the next one choose again, further on.
		acts = append(acts, p.seal(p.position, CauseStart)...)
	} else {
		p.settle = b.Settle
	}
	return acts
}

// settleStart writes a chain that begins at offset 0 with the first that it holds. Only then it is there: a process that comes before would
// choose again, and a start like latest leave out what has come since.
func (p *Partition) settleStart() []Action {
	if !p.settle || p.state != Fetching || !p.open.holding {
		return nil
	}
	p.settle = false
	return p.sealHeld(CauseStart)
}
