package engine

import "strconv"

// partition is how far one input log has been read, and what that says about time.
type partition struct {
	tp        TP
	source    *source
	shard     *shard
	index     int      // in shard.parts
	pos       int64    // next offset to read
	maxTime   int64    // M_p: maximum event time below pos
	floor     int64    // maximum W of the floors that have been applied
	floors    []Floor  // those that lie ahead, by offset
	handedOut int64    // side outputs below this offset were handed out before the restart
	side      []Output // late, future and poison records since the last Take
}

// watermark is w_p = max(M_p − delay, floor).
func (p *partition) watermark() int64 {
	if p.maxTime == NoTime {
		return p.floor
	}
	return max(p.maxTime-p.source.DelayMs, p.floor)
}

// advance moves the position forward and applies the floors at or below it.
func (p *partition) advance(next int64) {
	if next > p.pos {
		p.pos = next
	}
	if len(p.floors) > 0 {
		p.applyFloors()
	}
}

func (p *partition) applyFloors() {
	for len(p.floors) > 0 && p.floors[0].Offset <= p.pos {
		p.floor = max(p.floor, p.floors[0].W)
		p.floors = p.floors[1:]
	}
}

// lateRule decides whether a record that is about to be taken from p is late for a window that ends at end. Production code has one rule; the
// tests put the two rules of other systems in its place, to show that they would be caught.
type lateRule func(e *Engine, p *partition, end int64) bool

// lateByOwnPartition compares with the watermark of the record's own partition, before the record itself moves it. That depends on the
// partition's log and floors alone, so it is the same in every run.
func lateByOwnPartition(_ *Engine, p *partition, end int64) bool { return end <= p.watermark() }

func timeText(t int64) string {
	if t == NoTime {
		return "not set"
	}
	return strconv.FormatInt(t, 10)
}
