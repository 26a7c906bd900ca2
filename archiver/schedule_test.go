package archiver

import (
	"math/rand/v2"
	"testing"
	"time"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := loadZone(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func TestBoundariesLieAsInConnect(t *testing.T) {
	const h = time.Hour
	for _, tt := range []struct {
		name, zone string
		interval   time.Duration
		at, want   string // RFC 3339
	}{
		{"within the hour", "UTC", h, "2026-03-01T10:20:30Z", "2026-03-01T11:00:00Z"},
		{"on a boundary: the next one", "UTC", h, "2026-03-01T10:00:00Z", "2026-03-01T11:00:00Z"},
		{"the last of the day is midnight", "UTC", h, "2026-03-01T23:59:59.999Z", "2026-03-02T00:00:00Z"},
		{"an interval that does not divide the day", "UTC", 7 * h, "2026-03-01T14:00:01Z", "2026-03-01T21:00:00Z"},
		{"... ends with the day", "UTC", 7 * h, "2026-03-01T21:00:00Z", "2026-03-02T00:00:00Z"},
		{"longer than a day: each midnight", "UTC", 48 * h, "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z"},
		{"local midnight", "Asia/Kolkata", 6 * h, "2026-03-01T12:40:00Z", "2026-03-01T18:30:00Z"},
		{"milliseconds", "UTC", 250 * time.Millisecond, "2026-03-01T12:00:00.1Z", "2026-03-01T12:00:00.25Z"},
		// Clocks go from 02:00 to 03:00: the day has 23 hours, and six hours after midnight it is 07:00.
		{"summer time begins", "Europe/Berlin", 6 * h, "2026-03-29T00:00:00+01:00", "2026-03-29T07:00:00+02:00"},
		{"... the last interval is short", "Europe/Berlin", 6 * h, "2026-03-29T19:00:00+02:00", "2026-03-30T00:00:00+02:00"},
		// Clocks go from 03:00 to 02:00: 25 hours.
		{"summer time ends", "Europe/Berlin", 6 * h, "2026-10-25T00:00:00+02:00", "2026-10-25T05:00:00+01:00"},
		{"... the 25th hour", "Europe/Berlin", 6 * h, "2026-10-25T23:00:00+01:00", "2026-10-26T00:00:00+01:00"},
		{"... within it", "Europe/Berlin", h, "2026-10-25T23:30:00+01:00", "2026-10-26T00:00:00+01:00"},
		{"an hour that comes twice", "Europe/Berlin", h, "2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00"},
		// A day that begins at 01:00, and one whose first hour comes twice.
		{"no midnight", "America/Sao_Paulo", 24 * h, "2018-11-03T12:00:00-03:00", "2018-11-04T01:00:00-02:00"},
		{"... the intervals begin at 01:00", "America/Sao_Paulo", 6 * h, "2018-11-04T01:00:00-02:00", "2018-11-04T07:00:00-02:00"},
		{"two midnights", "America/Havana", 24 * h, "2026-10-31T12:00:00-04:00", "2026-11-01T00:00:00-04:00"},
		{"... a day is to midnight, of 25 hours too", "America/Havana", 24 * h, "2026-11-01T00:30:00-04:00", "2026-11-02T00:00:00-05:00"},
		// Samoa had no 30 December 2011.
		{"a day that is skipped", "Pacific/Apia", 24 * h, "2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at, err := time.Parse(time.RFC3339Nano, tt.at)
			if err != nil {
				t.Fatal(err)
			}
			want, err := time.Parse(time.RFC3339Nano, tt.want)
			if err != nil {
				t.Fatal(err)
			}
			z := zone(t, tt.zone)
			if got := (schedule{tt.interval, z}).after(at); !got.Equal(want) {
				t.Errorf("after %s: %s, want %s", at.In(z), got, want.In(z))
			}
		})
	}
}

// Whatever zone, moment and interval: the next boundary is later, not further than the interval, and the same from every moment before it.
func TestBoundariesAreOneSequence(t *testing.T) {
	zones := []string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "America/Havana", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu", "Africa/Casablanca"}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		s := schedule{time.Duration(1+rnd.Int64N(int64(30*time.Hour))).Round(time.Millisecond) + time.Millisecond, zone(t, zones[rnd.IntN(len(zones))])}
		at := time.UnixMilli(1_200_000_000_000 + rnd.Int64N(800_000_000_000))
		next := s.after(at)
		if d := next.Sub(at); d <= 0 || d > s.interval && (s.interval < 24*time.Hour || d > 25*time.Hour) {
			t.Fatalf("%s every %s after %s: %s", s.zone, s.interval, at.In(s.zone), next)
		}
		if between := at.Add(time.Duration(rnd.Int64N(int64(next.Sub(at))))); !s.after(between).Equal(next) {
			t.Fatalf("%s every %s: %s after %s, %s after %s", s.zone, s.interval, next, at.In(s.zone), s.after(between), between.In(s.zone))
		}
	}
}

func TestAlarm(t *testing.T) {
	at := func(hhmm string) time.Time {
		v, err := time.Parse("2006-01-02 15:04", "2026-03-01 "+hhmm)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	a := alarm{schedule: schedule{time.Hour, time.UTC}}
	for _, s := range []struct {
		now  string
		want bool
	}{
		{"10:30", false}, // the first call
		{"10:59", false},
		{"11:00", true},
		{"11:00", false}, // once
		{"14:20", true},  // three boundaries at once
		{"14:21", false},
		{"12:10", false}, // set back
		{"12:59", false},
		{"13:00", true}, // the boundary after the clock that was set back, not 15:00
	} {
		if got := a.passed(at(s.now)); got != s.want {
			t.Errorf("%s: %t", s.now, got)
		}
	}
}

func TestZonesThatAreRefused(t *testing.T) {
	for _, bad := range []string{"", "Local", "Europe/Nowhere", "../etc/passwd"} {
		if checkZone(bad) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
