// Package pace says when a part of a replay may go: how fast (a factor of the original pace, records or bytes a second) and in which order
// of event time. The rules are pure functions of the times that they are given; a Pacer puts a clock and a lock around them.
package pace

import (
	"math"
	"time"
)

// Limits that a job asks for. The zero value limits nothing.
type Limits struct {
	Speed            float64 // factor of the original pace by record timestamps, > 0; 0: as fast as possible
	RecordsPerSecond int64   // over all partitions; 0: no limit
	BytesPerSecond   int64   // of what is sent, over all partitions; 0: no limit
}

// None reports whether nothing is limited.
func (l Limits) None() bool { return l == Limits{} }

const (
	// step is how much of a limit one unit may use up at once: units are cut so that limits hold within about this time.
	step = 250 * time.Millisecond
	// Slack is how much lateness a replay at a factor makes up for. What is later than that (a pause of the target, a slow store) moves the
	// whole schedule, so that there is never a burst of everything that should have gone in the meantime.
	Slack = 2 * time.Second
	// never bounds computed times, so that sums stay in range.
	never = 100 * 365 * 24 * time.Hour
)

// Bounds of one unit; 0 means none. A unit holds at least one record, whatever its size.
type Bounds struct {
	Records int64
	Bytes   int64
	Millis  int64 // record time from its first record to its last
}

// None reports whether units need not be cut.
func (b Bounds) None() bool { return b == Bounds{} }

// Min takes the narrower of each bound.
func (b Bounds) Min(o Bounds) Bounds {
	least := func(x, y int64) int64 {
		if x == 0 || y != 0 && y < x {
			return y
		}
		return x
	}
	return Bounds{Records: least(b.Records, o.Records), Bytes: least(b.Bytes, o.Bytes), Millis: least(b.Millis, o.Millis)}
}

// Bounds returns how small units must be for the limits to hold within a quarter of a second, one record at least.
func (l Limits) Bounds() Bounds {
	part := func(perSecond float64) int64 {
		if perSecond <= 0 {
			return 0
		}
		return max(1, int64(math.Min(perSecond*step.Seconds(), math.MaxInt32)))
	}
	return Bounds{Records: part(float64(l.RecordsPerSecond)), Bytes: part(float64(l.BytesPerSecond)), Millis: part(l.Speed * 1000)}
}

// Unit is what goes at once.
type Unit struct {
	Records int64
	Bytes   int64
	// Timestamp is the running maximum of its partition's record timestamps up to the unit's end, in ms; −1: it has none, and does not wait
	// for the original pace.
	Timestamp int64
}

// Cause of a wait.
type Cause string

// Causes.
const (
	NoWait Cause = ""
	Rate   Cause = "rate"  // recordsPerSecond or bytesPerSecond
	Speed  Cause = "speed" // the original pace
)

// Schedule is the plan of who may go when. The zero value is not usable; make one with NewSchedule. It is not safe for concurrent use.
//
// Rates: a unit goes when what went before has been paid for, record by record and byte by byte; time without units is not saved up. So in any
// span of time no more goes than rate × time and one unit.
//
// Speed: record time runs at the asked factor from the moment that it begins. A unit goes when the clock has reached its Timestamp, so no record
// goes earlier than its pace. One that goes late by more than Slack moves the clock back, for all partitions alike: the order between them stays,
// and nothing is made up for in a burst. Timestamps are believed: one far in the future is waited for.
type Schedule struct {
	limits Limits

	paid time.Time // when what went is paid for by the rates; zero: nothing has gone

	begun bool
	at    time.Time // when the record clock…
	ts    int64     // …shows this
}

// NewSchedule makes the schedule of a run. Runs begin anew after a pause, a resume or a takeover, and so do their schedules.
func NewSchedule(l Limits) *Schedule { return &Schedule{limits: l} }

// Begin starts the record clock at ts ms, if it has not been started. Without it, the first unit that goes starts it.
func (s *Schedule) Begin(now time.Time, ts int64) {
	if !s.begun && ts >= 0 {
		s.begun, s.at, s.ts = true, now, ts
	}
}

// Ready returns when u may go, if nothing else goes before it; a time that has passed, or the zero time, means now. The cause is what it waits
// for the longest. With must, the original pace is not waited for: the target has said that it needs this unit before it takes others. Rates
// always hold.
func (s *Schedule) Ready(u Unit, must bool) (at time.Time, cause Cause) {
	if s.rated() {
		at, cause = s.paid, Rate
	}
	if due, ok := s.due(u); ok && !must && due.After(at) {
		at, cause = due, Speed
	}
	return at, cause
}

// Take notes that u goes now, and with it whatever a schedule needs to know.
func (s *Schedule) Take(now time.Time, u Unit) {
	if s.rated() {
		if s.paid.Before(now) {
			s.paid = now
		}
		s.paid = s.paid.Add(s.cost(u))
	}
	if s.limits.Speed <= 0 || u.Timestamp < 0 {
		return
	}
	s.Begin(now, u.Timestamp)
	if due, _ := s.due(u); now.Sub(due) > Slack {
		s.at = s.at.Add(now.Sub(due) - Slack)
	}
}

func (s *Schedule) rated() bool { return s.limits.RecordsPerSecond > 0 || s.limits.BytesPerSecond > 0 }

// due is when the record clock reaches u.
func (s *Schedule) due(u Unit) (time.Time, bool) {
	if s.limits.Speed <= 0 || u.Timestamp < 0 || !s.begun {
		return time.Time{}, false
	}
	return s.at.Add(seconds(float64(u.Timestamp-s.ts) / 1000 / s.limits.Speed)), true
}

func (s *Schedule) cost(u Unit) time.Duration {
	var sec float64
	if r := s.limits.RecordsPerSecond; r > 0 {
		sec = float64(u.Records) / float64(r)
	}
	if b := s.limits.BytesPerSecond; b > 0 {
		sec = math.Max(sec, float64(u.Bytes)/float64(b))
	}
	return seconds(sec)
}

func seconds(sec float64) time.Duration {
	return time.Duration(math.Min(math.Max(sec, -never.Seconds()), never.Seconds()) * float64(time.Second))
}
