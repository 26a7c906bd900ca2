package run

import (
	"time"

	"tapedeck.dev/tapedeck/replayer/pace"
)

// Who is loaded and sent next. What may hold a loaded unit back, and who wins where they contradict each other:
//
//	the target's last answer (503)   waits for its backoff, or until the partition that it names has moved on
//	order event-time                 waits until the furthest behind has come near enough; not if the target needs it
//	speed                            waits for its time; not if the target needs it
//	recordsPerSecond, bytesPerSecond wait for what went before; always
//
// The need wins over order and speed, since the target takes nothing else before it has that: holding it back would hold up everything, and for
// ever. Rates may hold the needed up, since that always ends. Where nothing is needed, somebody may send: of the partitions with records left, the one
// that is furthest behind is never held back by order, and its time comes.
//
// What is loaded ahead has a bound, and so must not be used up by partitions that wait for their time while the one that all wait for is not
// loaded. So the furthest behind, and what the target needs, are loaded past the bound; where partitions are cut, what is held then is bounded in bytes
// and the partition that is furthest ahead gives its own up, to be loaded again later.

// before orders partitions for loading and sending.
func (t *tracker) before(a, b *part) bool {
	if t.needed[a] != t.needed[b] {
		return t.needed[a]
	}
	return a.reached < b.reached
}

// cutting reports whether partitions may wait for their time with part of a segment sent.
func (t *tracker) cutting() bool { return !t.bounds.None() }

// open reports whether p has records left to send.
func (p *part) open() bool { return p.expected < p.rng.Until && p.at(p.expected) < p.spans.last }

// mark is what is known of a partition at one expected offset, from what was sent.
type mark struct {
	expected       int64
	reached        int64 // running maximum of the records in range before expected
	records, bytes int64 // of the segment that holds expected, before it
}

// after is p's mark once the target has taken s of l.
func (p *part) after(l *loaded, s *span) mark {
	reached := p.spans.reached[l.index]
	if p.mark.expected == p.expected {
		reached = p.mark.reached
	}
	m := mark{expected: min(s.next, p.rng.Until), reached: max(reached, s.maxTs)}
	if m.expected < min(l.next, p.rng.Until) {
		m.records, m.bytes = l.sent(m.expected)
	}
	return m
}

// place notes where p stands in record time: the running maximum of the records that the target has taken, or, where it has taken none, the smallest
// timestamp of those that come. What was sent tells exactly; where an earlier run or the target's restart has moved p, what is loaded and the
// plan tell it as far as they can. The lock is held.
func (t *tracker) place(p *part) {
	i := p.at(p.expected)
	if p.mark.expected != p.expected && len(p.queue) > 0 && p.queue[0].index == i {
		l := p.queue[0]
		if s := l.at(p.expected); s != &l.spans[0] { // kept, for when the segment is given up and p seems to be further behind than it is
			p.mark = mark{expected: p.expected, reached: max(p.spans.reached[i], l.at(s.start-1).maxTs)}
			p.mark.records, p.mark.bytes = l.sent(p.expected)
		}
	}
	p.reached = p.spans.at(i)
	if p.mark.expected == p.expected && p.mark.reached != noTime {
		p.reached = p.mark.reached
	}
	if t.order != nil {
		t.order.Set(p.i, p.reached, p.open())
	}
}

// begin starts the clock of the original pace where the furthest behind stands. The lock is held.
func (t *tracker) begin() {
	least := int64(noTime)
	for _, p := range t.parts {
		if p.open() && (least == noTime || p.reached < least) {
			least = p.reached
		}
	}
	t.pacer.Begin(least)
}

// nextLoad chooses a segment to load.
func (t *tracker) nextLoad() (p *part, index, gen int, ok bool) {
	ok = t.wait(func() bool {
		p = nil
		waiting, held := 0, int64(0)
		for _, c := range t.parts {
			waiting += len(c.queue)
			for _, l := range c.queue {
				held += l.size
			}
			if c.loading {
				waiting++
				held += c.segs[min(c.load, len(c.segs)-1)].Bytes
			}
			if c.loading || len(c.queue) > 0 {
				continue
			}
			if c.load < len(c.segs) && (p == nil || t.before(c, p)) {
				p = c
			}
		}
		if p == nil {
			return false
		}
		if waiting >= t.ahead && !(t.cutting() && held+p.segs[p.load].Bytes <= t.hold) {
			// Loaded segments of partitions that wait must not keep out the one that they wait for.
			if !t.needed[p] && !(t.cutting() && t.furthestBehind(p)) {
				return false
			}
			for t.cutting() && waiting >= t.ahead && held+p.segs[p.load].Bytes > t.hold {
				n, bytes := t.giveUp(p)
				if n == 0 {
					break
				}
				waiting, held = waiting-n, held-bytes
			}
		}
		p.loading, index, gen = true, p.load, p.gen
		return true
	})
	return p, index, gen, ok
}

// furthestBehind reports whether no partition with records left is further behind than p.
func (t *tracker) furthestBehind(p *part) bool {
	for _, o := range t.parts {
		if o.open() && o.reached < p.reached {
			return false
		}
	}
	return true
}

// giveUp drops what has been loaded of the partition that would go last, to make room for a load of p, if there is one after p that waits. It returns
// how many segments that were, and their bytes. The lock is held.
func (t *tracker) giveUp(p *part) (n int, bytes int64) {
	var far *part
	for _, o := range t.parts {
		if len(o.queue) > 0 && o.sending == nil && t.before(p, o) && (far == nil || t.before(far, o)) {
			far = o
		}
	}
	if far == nil {
		return 0, 0
	}
	for _, l := range far.queue {
		n++
		bytes += l.size
	}
	t.drop(far)
	t.place(far)
	return n, bytes
}

// nextSend chooses a loaded unit to send: s of l. Where the next one may go only later, the alarm wakes the waiting.
func (t *tracker) nextSend() (p *part, l *loaded, s *span, ok bool) {
	ok = t.wait(func() bool {
		now := time.Now()
		var soonest time.Time
		p, soonest = t.choose(now)
		if p == nil {
			t.wakeAt(now, soonest)
			return false
		}
		l = p.queue[0]
		s = l.at(p.expected)
		p.queue, p.sending = p.queue[1:], s
		if p.fails == 0 {
			t.moved = now // what was waited for until now was not the target
		}
		t.idles(now, "")
		t.wake.Broadcast() // room for a load
		return true
	})
	return p, l, s, ok
}

// wakeAt sets the alarm to at, unless it is set to an earlier time; a zero at sets nothing. There is one alarm however many wait and however often they look:
// with one each, those that all of them wake set by each, there would soon be as many as there were looks. The lock is held.
func (t *tracker) wakeAt(now, at time.Time) {
	if at.IsZero() || t.alarm != nil && !t.alarmAt.After(at) {
		return
	}
	t.silence()
	t.alarmAt = at
	var mine *time.Timer
	mine = time.AfterFunc(at.Sub(now), func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.alarm == mine { // not one that came too late to be stopped
			t.alarm = nil
			t.wake.Broadcast()
		}
	})
	t.alarm = mine
}

// silence takes the alarm back. The lock is held.
func (t *tracker) silence() {
	if t.alarm != nil {
		t.alarm.Stop()
		t.alarm = nil
	}
}

// choose returns the partition that sends now, or when to look again (zero: when something has changed). The lock is held.
func (t *tracker) choose(now time.Time) (p *part, soonest time.Time) {
	inFlight, why := false, cause("")
	for _, c := range t.parts {
		if c.sending != nil {
			inFlight = true
		}
		if len(c.queue) == 0 || c.sending != nil {
			continue
		}
		at, by := t.ready(c, now)
		switch {
		case by == "":
			if p == nil || t.before(c, p) {
				p = c
			}
			continue
		case !at.IsZero() && (soonest.IsZero() || at.Before(soonest)):
			soonest = at
		}
		if why == "" || by.rank() < why.rank() {
			why = by
		}
	}
	if p != nil {
		if _, _, ok := t.pacer.Try(now, t.unit(p), t.needed[p]); !ok {
			return nil, now // somebody outside of this run's lock took the turn
		}
		return p, time.Time{}
	}
	if inFlight {
		why = ""
	}
	t.idles(now, why)
	return nil, soonest
}

// rank says which cause is named where partitions wait for different ones: what the user asked for goes before what follows from it.
func (c cause) rank() int {
	switch c {
	case byRate:
		return 0
	case bySpeed:
		return 1
	case byTarget:
		return 2
	}
	return 3
}

// ready reports whether what p has loaded may go ("" for yes), or what it waits for, and until when, if that is known. The lock is held.
func (t *tracker) ready(p *part, now time.Time) (at time.Time, by cause) {
	must := t.needed[p]
	if p.notBefore.After(now) {
		return p.notBefore, byTarget
	}
	u := t.unit(p)
	if t.order != nil && !must && u.Records > 0 && !t.order.May(p.i) {
		return time.Time{}, bySkew
	}
	at, why := t.pacer.Ready(u, must)
	if !at.After(now) {
		return time.Time{}, ""
	}
	if why == pace.Speed {
		return at, bySpeed
	}
	return at, byRate
}

// unit is what p would send next.
func (t *tracker) unit(p *part) pace.Unit {
	s := p.queue[0].at(p.expected)
	u := pace.Unit{Records: s.records, Bytes: s.bytes, Timestamp: -1}
	if s.records > 0 {
		u.Timestamp = max(p.reached, s.maxTs)
	}
	return u
}

// idles notes why nothing is on its way. The lock is held.
func (t *tracker) idles(now time.Time, why cause) {
	if was, d := t.idle.now(now, why); d > 0 && t.waited != nil {
		t.waited(was, d)
	}
}
