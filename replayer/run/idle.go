package run

import "time"

// cause of a partition's, or a whole run's, waiting.
type cause string

const (
	byRate   cause = "rate"   // recordsPerSecond or bytesPerSecond
	bySpeed  cause = "speed"  // the original pace
	bySkew   cause = "skew"   // too far ahead of another partition, in order event-time
	byTarget cause = "target" // the target refused the last try, or needs another partition first
)

// idleness sums up for how long nothing was on its way to the target although something had been loaded, by cause. Its times are given.
type idleness struct {
	why   cause // "": something is on its way, or nothing is there to be sent
	since time.Time
}

// now says why nothing is on its way, and returns what has been waited for since it was asked last, and for what.
func (i *idleness) now(at time.Time, why cause) (was cause, d time.Duration) {
	was, d = i.why, at.Sub(i.since)
	i.why, i.since = why, at
	if was == "" {
		return "", 0
	}
	return was, d
}

// meter tells how much has gone within the last seconds. The zero value has seen nothing. Its times are given.
type meter struct {
	slots [meterSlots]struct {
		second         int64
		records, bytes int64
	}
	first int64 // second of the first add
}

const meterSlots = 10

func (m *meter) add(at time.Time, records, bytes int64) {
	sec := at.Unix()
	if m.first == 0 {
		m.first = sec
	}
	s := &m.slots[sec%meterSlots]
	if s.second != sec {
		s.second, s.records, s.bytes = sec, 0, 0
	}
	s.records += records
	s.bytes += bytes
}

// perSecond is the mean over the last ten seconds, or over those since the first add.
func (m *meter) perSecond(at time.Time) (records, bytes float64) {
	sec := at.Unix()
	if m.first == 0 {
		return 0, 0
	}
	var r, b int64
	for _, s := range m.slots {
		if sec-s.second < meterSlots {
			r, b = r+s.records, b+s.bytes
		}
	}
	over := float64(min(sec-m.first+1, meterSlots))
	return float64(r) / over, float64(b) / over
}
