package archiver

import (
	"cmp"
	"slices"
	"time"
)

// A backlog of a thousand partitions does not fit into memory. Fetching all of them at once until memory is full, and ending all of their
// segments there, would give a thousand tiny objects. So a partition is fetched only where there is room for what its segment still needs, and then
// until that segment is full; then it goes to the end of the queue. A partition at the end of its log needs next to nothing and never waits.

// turn is what admission knows of a partition that could be fetched.
type turn struct {
	open    int64         // bytes in its open segment
	need    int64         // bytes until that is full or the log's end is reached, estimated; ≥ 0
	running bool          // it has its turn already
	pos     int64         // of the partition, as last seen
	moved   time.Duration // when it was last seen to move, or the turn began
	since   int64         // waiting since; smaller is longer. Equal only by chance
	fetch   bool          // the answer
}

// standsStill is how long a turn may bring nothing before no room is kept for it: what lies behind its position may be a transaction that is open
// for hours, or have no leader. It keeps the turn, and what it brings later counts like everything that is held.
const standsStill = 5 * time.Second

// look notes at now that the partition is at pos, and what it may still need.
func (t *turn) look(now time.Duration, pos, need int64) {
	if !t.running || pos != t.pos {
		t.pos, t.moved = pos, now
	}
	if t.need = need; t.running && now-t.moved > standsStill {
		t.need = 0
	}
}

// smallNeed passes by those that wait, in bytes: a partition that follows its log.
const smallNeed = 256 << 10

// admit hands out room, in bytes, and reports whether somebody waits for room that none of those who run will give back.
func admit(turns []*turn, room int64) (stuck bool) {
	waiting := make([]*turn, 0, len(turns))
	working := false
	for _, t := range turns {
		if t.fetch = t.running; t.running {
			room -= t.need
			working = working || t.need > 0
			continue
		}
		waiting = append(waiting, t)
	}
	// Those that hold something come first: what they hold is of no use to anybody before it is complete.
	slices.SortFunc(waiting, func(a, b *turn) int {
		return cmp.Or(cmp.Compare(min(b.open, 1), min(a.open, 1)), cmp.Compare(a.since, b.since))
	})
	for _, t := range waiting {
		// Who does not fit waits, and those behind him wait too, or he would wait for ever; but for those that need next to nothing.
		if t.need > 0 && (t.need > room || stuck && t.need > smallNeed) {
			stuck = true
			continue
		}
		t.fetch = true
		room -= t.need
		working = working || t.need > smallNeed
	}
	return stuck && !working
}

// rates estimate how much memory records take, from segments that have ended.
type rates struct {
	perRecord float64 // bytes in memory per record
	perDatum  float64 // bytes in memory per encoded byte before compression
}

const (
	guessPerRecord = 1 << 10
	guessPerDatum  = 1
	rateWeight     = 0.1 // of the newest segment
	leastRecords   = 64  // to learn from
)

// learn takes a segment into account.
func (r *rates) learn(mem, records, datum int64) {
	if records < leastRecords {
		return
	}
	mix := func(old *float64, now float64) {
		if *old == 0 {
			*old = now
			return
		}
		*old += rateWeight * (now - *old)
	}
	mix(&r.perRecord, float64(mem)/float64(records))
	mix(&r.perDatum, float64(mem)/float64(datum))
}

// need estimates the bytes that a segment still takes: until a rule on records or bytes ends it (0: there is none), or lag records are read. lag < 0
// is not known.
func (r *rates) need(open, records, lag, flushSize, segmentBytes int64) int64 {
	perRecord, perDatum := r.perRecord, r.perDatum
	if perRecord == 0 {
		perRecord, perDatum = guessPerRecord, guessPerDatum
	}
	if records >= leastRecords {
		perRecord = float64(open) / float64(records)
	}
	most := float64(1 << 40)
	if flushSize > 0 {
		most = min(most, float64(flushSize)*perRecord)
	}
	if segmentBytes > 0 {
		most = min(most, float64(segmentBytes)*perDatum)
	}
	need := max(0, most-float64(open))
	if lag >= 0 {
		need = min(need, float64(lag)*perRecord)
	}
	return int64(need)
}
