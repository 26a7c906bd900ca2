package archiver

import (
	"errors"
	"fmt"
	"time"
	_ "time/tzdata" // the container image has no time zones of its own

	"tapedeck.dev/tapedeck/archiver/partition"
)

// schedule places the boundaries of rotate.schedule.interval.ms as Kafka Connect's storage sinks do: every interval from local midnight on,
// and at each local midnight anew, so that an interval which does not divide the day ends with it. The interval is time that passes, not a
// reading of the clock: on the day of a change to or from summer time 06:00 is no boundary of six hours. A day or more means each midnight. Other
// than in Connect, whose days always have 24 hours, the day of such a change ends at its midnight (23 or 25 hours after the one before).
type schedule struct {
	interval time.Duration // > 0
	zone     *time.Location
}

// after returns the first boundary later than t.
func (s schedule) after(t time.Time) time.Time {
	y, m, d := t.In(s.zone).Date()
	begin := startOfDay(y, m, d, s.zone)
	end := startOfDay(y, m, d+1, s.zone)
	next := begin.Add((t.Sub(begin)/s.interval + 1) * s.interval)
	if s.interval < 24*time.Hour && next.Before(end) || !end.After(t) { // a place that changes sides of the date line skips a day: it has no end of its own
		return next
	}
	return end
}

// startOfDay is the first moment of a day. Where clocks go forward at midnight there is no 00:00, and time.Date answers an hour of the day before.
func startOfDay(y int, m time.Month, d int, zone *time.Location) time.Time {
	t := time.Date(y, m, d, 0, 0, 0, 0, zone)
	day := time.Date(y, m, d, 12, 0, 0, 0, zone)
	if t.Day() == day.Day() {
		// Where clocks go back over midnight there are two of them; the day begins at the first, if it is of this day.
		if e := t.Add(-time.Hour); e.Day() == t.Day() {
			return e
		}
		return t
	}
	// The gap's end is the day's start: at most a few hours on, and whole minutes in every zone in use.
	for t.Day() != day.Day() {
		t = t.Add(time.Minute)
	}
	return t
}

// alarm tells when a boundary of its schedule has passed.
type alarm struct {
	schedule
	next time.Time
}

// passed reports whether a boundary has passed since the last call; several count as one. A wall clock that is set back is followed:
// otherwise nothing would rotate until it reached the old boundary again.
func (a *alarm) passed(now time.Time) bool {
	now = now.Round(0) // the wall clock, not the monotonic one
	next := a.after(now)
	due := !a.next.IsZero() && !now.Before(a.next)
	if due || a.next.IsZero() || next.Before(a.next) {
		a.next = next
	}
	return due
}

// checkZone is the check of the setting timezone.
func checkZone(s string) error {
	_, err := loadZone(s)
	return err
}

// loadZone refuses Local: which boundaries are meant must not depend on the machine.
func loadZone(name string) (*time.Location, error) {
	if name == "" || name == "Local" {
		return nil, errors.New("want a time zone by its IANA name, such as UTC or Europe/Berlin")
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("want a time zone by its IANA name, such as UTC or Europe/Berlin: %w", err)
	}
	return zone, nil
}

// ticks tells every partition that time has passed, and those whose schedule has a boundary since the last call that it has passed. A
// partition that was assigned since then meets the next one.
func (l *loop) ticks(wall time.Time) {
	for _, a := range l.parts {
		if a.topic.Schedule > 0 && l.alarms[a.topic.Schedule] == nil {
			zone := l.set.Zone
			if zone == nil {
				zone = time.UTC
			}
			l.alarms[a.topic.Schedule] = &alarm{schedule: schedule{a.topic.Schedule, zone}}
		}
	}
	passed := map[time.Duration]bool{}
	for interval, al := range l.alarms {
		passed[interval] = al.passed(wall)
	}
	for _, a := range l.parts {
		if passed[a.topic.Schedule] {
			l.on(a, partition.Boundary{})
		}
		l.on(a, partition.Tick{})
	}
}
