package pace

import (
	"math/rand/v2"
	"testing"
	"time"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// drive sends the units in order on a clock that stands still unless somebody waits, and returns when each went.
func drive(t *testing.T, s *Schedule, units []Unit, late func(i int) time.Duration) []time.Time {
	t.Helper()
	now := t0
	var went []time.Time
	for i, u := range units {
		if late != nil {
			now = now.Add(late(i))
		}
		if at, _ := s.Ready(u, false); at.After(now) {
			now = at
		}
		s.Take(now, u)
		went = append(went, now)
	}
	return went
}

// most returns the largest number of units, weighed, that went in any span of time [a, a+span).
func most(went []time.Time, span time.Duration, weight func(i int) int64) int64 {
	var worst int64
	for i := range went {
		var n int64
		for j := i; j < len(went) && went[j].Sub(went[i]) < span; j++ {
			n += weight(j)
		}
		worst = max(worst, n)
	}
	return worst
}

func TestRatesHoldInEverySpan(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		l := Limits{RecordsPerSecond: 1 + rng.Int64N(1000), BytesPerSecond: 1 + rng.Int64N(100_000)}
		if seed%3 == 1 {
			l.RecordsPerSecond = 0
		} else if seed%3 == 2 {
			l.BytesPerSecond = 0
		}
		var units []Unit
		var records, bytes, largest, widest int64
		for range 200 {
			u := Unit{Records: 1 + rng.Int64N(50), Bytes: 1 + rng.Int64N(5000), Timestamp: -1}
			units = append(units, u)
			records, bytes = records+u.Records, bytes+u.Bytes
			largest, widest = max(largest, u.Records), max(widest, u.Bytes)
		}
		// Now and then nothing is sent for a while: that is not made up for.
		went := drive(t, NewSchedule(l), units, func(int) time.Duration {
			if rng.IntN(20) == 0 {
				return time.Duration(rng.Int64N(int64(10 * time.Second)))
			}
			return 0
		})
		for _, span := range []time.Duration{time.Second, 7 * time.Second} {
			if l.RecordsPerSecond > 0 {
				if got, bound := most(went, span, func(i int) int64 { return units[i].Records }), l.RecordsPerSecond*int64(span/time.Second)+largest; got > bound {
					t.Errorf("seed %d: %d records in %s, at most %d", seed, got, span, bound)
				}
			}
			if l.BytesPerSecond > 0 {
				if got, bound := most(went, span, func(i int) int64 { return units[i].Bytes }), l.BytesPerSecond*int64(span/time.Second)+widest; got > bound {
					t.Errorf("seed %d: %d bytes in %s, at most %d", seed, got, span, bound)
				}
			}
		}
		// Nor is it slower than asked where nothing else holds it up.
		went = drive(t, NewSchedule(l), units, nil)
		seconds := 0.0
		if l.RecordsPerSecond > 0 {
			seconds = float64(records) / float64(l.RecordsPerSecond)
		}
		if l.BytesPerSecond > 0 {
			seconds += float64(bytes) / float64(l.BytesPerSecond) // both: at most the sum
		}
		if took := went[len(went)-1].Sub(t0).Seconds(); took > seconds {
			t.Errorf("seed %d: took %.1f s for %.1f s of records", seed, took, seconds)
		}
	}
}

// At a factor, the time between two units is that between their timestamps, divided.
func TestSpeedKeepsThePace(t *testing.T) {
	for _, speed := range []float64{0.25, 1, 10, 3600} {
		s := NewSchedule(Limits{Speed: speed})
		s.Begin(t0, 1000)
		var units []Unit
		for i := range int64(100) {
			units = append(units, Unit{Records: 1, Timestamp: 1000 + i*i*50})
		}
		for i, at := range drive(t, s, units, nil) {
			want := float64(i*i*50) / 1000 / speed
			if got := at.Sub(t0).Seconds(); got < want-1e-6 || got > want+1e-6 {
				t.Fatalf("speed %v: unit %d goes after %.4f s, want %.4f", speed, i, got, want)
			}
		}
	}
}

// Two partitions whose data begin at different times keep their distance.
func TestSpeedKeepsPartitionsTogether(t *testing.T) {
	s := NewSchedule(Limits{Speed: 2})
	s.Begin(t0, 0)
	if at, cause := s.Ready(Unit{Timestamp: 10_000}, false); at.Sub(t0) != 5*time.Second || cause != Speed {
		t.Errorf("a partition that begins 10 s later goes after %s (%s), want 5 s", at.Sub(t0), cause)
	}
	if at, _ := s.Ready(Unit{Timestamp: 10_000}, true); at.After(t0) {
		t.Error("what the target needs waits for the pace")
	}
	if at, _ := s.Ready(Unit{Timestamp: -1}, false); at.After(t0) {
		t.Error("a unit without timestamps waits for the pace")
	}
}

// After an hour in which nothing could go, as much is made up for as the slack allows, and the rest keeps its pace.
func TestNoBurstAfterAPause(t *testing.T) {
	s := NewSchedule(Limits{Speed: 1})
	var units []Unit
	for i := range int64(2 * 3600) {
		units = append(units, Unit{Records: 1, Timestamp: i * 1000})
	}
	went := drive(t, s, units, func(i int) time.Duration {
		if i == 100 {
			return time.Hour
		}
		return 0
	})
	if worst := most(went, time.Second, func(int) int64 { return 1 }); worst > int64(Slack/time.Second)+1 {
		t.Errorf("%d units of a second each went within one second", worst)
	}
	// Of the hour, the second that was to be waited for anyway is not late.
	if got, want := went[len(went)-1].Sub(t0), time.Duration(len(units)-1)*time.Second+time.Hour-time.Second-Slack; got != want {
		t.Errorf("ended after %s, want %s", got, want)
	}
}

func TestExtremes(t *testing.T) {
	s := NewSchedule(Limits{Speed: 1e-9, RecordsPerSecond: 1, BytesPerSecond: 1})
	s.Begin(t0, 0)
	u := Unit{Records: 1 << 62, Bytes: 1 << 62, Timestamp: 1 << 62}
	if at, _ := s.Ready(u, false); !at.After(t0) {
		t.Errorf("ready at %s", at)
	}
	s.Take(t0, u)
	if at, cause := s.Ready(u, true); !at.After(t0) || cause != Rate {
		t.Errorf("after a huge unit the next is ready at %s for %q", at, cause)
	}
	back := NewSchedule(Limits{Speed: 1})
	back.Begin(t0, 1<<62)
	if at, _ := back.Ready(Unit{Timestamp: 0}, false); at.After(t0) {
		t.Errorf("a record of long ago waits until %s", at)
	}
}

func TestBounds(t *testing.T) {
	tests := []struct {
		limits Limits
		want   Bounds
	}{
		{Limits{}, Bounds{}},
		{Limits{Speed: 1}, Bounds{Millis: 250}},
		{Limits{Speed: 0.001}, Bounds{Millis: 1}},
		{Limits{RecordsPerSecond: 1, BytesPerSecond: 4000}, Bounds{Records: 1, Bytes: 1000}},
		{Limits{RecordsPerSecond: 1 << 62}, Bounds{Records: 1<<31 - 1}},
	}
	for _, c := range tests {
		if got := c.limits.Bounds(); got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.limits, got, c.want)
		}
	}
	if got := (Bounds{Records: 5, Millis: 7}).Min(Bounds{Records: 9, Bytes: 3}); got != (Bounds{Records: 5, Bytes: 3, Millis: 7}) {
		t.Errorf("%+v", got)
	}
}
