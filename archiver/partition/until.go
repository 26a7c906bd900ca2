package partition

import "fmt"

// EndAt bounds the partition: nothing at or behind Offset is archived. It comes once, before Recovered. Where the chain, or what Kafka
// still holds, is behind Offset already, nothing is archived.
type EndAt struct{ Offset int64 }

func (EndAt) isEvent() {}

// beyondEnd reports whether a record at this offset is not wanted any more. There is no record between the position and it, so that the
// position is the end then.
func (p *Partition) beyondEnd(offset int64) bool {
	if !p.bounded || offset < p.end {
		return false
	}
	p.position = max(p.position, p.end)
	return true
}

// upTo cuts an offset to the end.
func (p *Partition) upTo(offset int64) int64 {
	if p.bounded {
		return min(offset, p.end)
	}
	return offset
}

// finishAtEnd ends the partition where it has reached its end: what is open is sealed, whatever the cut rule says.
func (p *Partition) finishAtEnd() []Action {
	if !p.bounded || p.state != Fetching || p.position < p.end {
		return nil
	}
	var acts []Action
	if p.position > p.open.start {
		if acts = p.seal(p.position, CauseEnd); p.state != Fetching {
			return acts // the segment cannot be made
		}
	}
	p.open = nil
	p.state = Finished
	return append(acts, StopFetch{})
}

// endInLog looks whether the end is still one of this log. A log that has become shorter than it was when the end was frozen never reaches it.
func (p *Partition) endInLog() []Action {
	if !p.bounded || p.state != Fetching || p.logEnd >= p.end {
		p.short = 0
		return nil
	}
	if p.short++; p.short < beyondEndTries {
		return nil // a new leader may be behind for a moment
	}
	return p.stop(Diverged, fmt.Errorf("the log of %s ends at %d, and ended at %d when this run began: it was truncated", p.tp, p.logEnd, p.end))
}

// Done reports that nothing will happen any more by itself: finished or stopped, with no put left.
func (p *Partition) Done() bool {
	return (p.state == Finished || p.state == Stopped) && len(p.sealed) == 0
}
